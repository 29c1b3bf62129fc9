"""`token-critic pack`: what a model was made with, put into its folder."""

from pathlib import Path

from tokencritic.cli.arguments import make_parser, parse
from tokencritic.errors import InputError


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "pack",
        "Include tokens and reference images in a model folder, so that its critic can be trained and its images evaluated "
        "without the data set.",
        "MODEL [OPTIONS]",
    )
    parser.add_argument("model", help="a model folder")
    parser.add_argument("--tokens", help="a folder that `tokenize` wrote with the model's tokenizer")
    parser.add_argument("--reference", help="a data set")
    parser.add_argument("--split", choices=["train", "test"], default="test", help="of the reference")
    parser.add_argument("--reference_num", type=int, help="only so many of its images, evenly spaced")
    given = parse(parser, arguments)
    if not given.tokens and not given.reference:
        raise InputError("--tokens and --reference are both missing; give at least one of them")
    if not Path(given.model).is_dir():
        raise InputError(f"{given.model} is no folder; give a model folder that can be written to")

    from tokencritic.data.tokens import PACKED, TokenArrays
    from tokencritic.evaluation.reference import PACKED as PACKED_REFERENCE
    from tokencritic.evaluation.reference import ReferenceImages, pack_images
    from tokencritic.pipeline_folder import load_part

    folder = Path(given.model)
    tokenizer = load_part(folder, "tokenizer")
    size = tokenizer.image_size, tokenizer.image_size
    arrays = TokenArrays.open(given.tokens, tokenizer.fingerprint()) if given.tokens else None
    images = None
    if given.reference:
        wanted = ReferenceImages(size, tokenizer.channels, given.split, given.reference_num)
        images = wanted.open(Path(given.reference))
    if arrays is not None:
        arrays.pack(folder / PACKED)
        print(f"wrote {folder / PACKED}: {len(arrays)} images of {arrays.tokens.shape[1]} tokens")
    if images is not None:
        pack_images(images, folder / PACKED_REFERENCE)
        print(f"wrote {folder / PACKED_REFERENCE}: {len(images)} images")
