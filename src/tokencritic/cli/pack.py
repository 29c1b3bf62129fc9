"""`token-critic pack`: include tokens and reference images in a model folder."""

from pathlib import Path

from tokencritic.cli.arguments import make_parser, parse
from tokencritic.cli.outputs import check_folder
from tokencritic.errors import InputError


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "pack",
        "Include tokens and reference images in a model folder. They allow training a critic and evaluating the model "
        "without the data set.",
        "MODEL [OPTIONS]",
    )
    parser.add_argument("model", help="a model folder")
    parser.add_argument("--tokens", metavar="FOLDER", help="tokens that `tokenize` wrote with the model's tokenizer")
    parser.add_argument("--reference", metavar="DATA", help="a data set")
    parser.add_argument("--split", choices=["train", "test"], default="test", help="split of the reference")
    parser.add_argument("--reference_num", type=int, metavar="N", help="include only N images, evenly spaced")
    given = parse(parser, arguments)
    if not given.tokens and not given.reference:
        raise InputError("--tokens and --reference are both missing; give at least one of them")
    folder = Path(given.model)
    if not folder.is_dir():
        raise InputError(f"{given.model} is not a folder; expected a model folder that can be written to")
    check_folder("MODEL", folder)

    from tokencritic.data.tokens import PACKED, TokenArrays
    from tokencritic.evaluation import reference
    from tokencritic.evaluation.image_sets import open_images
    from tokencritic.pipeline_folder import load_part

    tokenizer = load_part(folder, "tokenizer")
    wanted = given.reference_num, given.split, (tokenizer.image_size, tokenizer.image_size), tokenizer.channels
    arrays = TokenArrays.open(given.tokens, tokenizer.fingerprint()) if given.tokens else None
    images = open_images(given.reference, *wanted) if given.reference else None
    if arrays is not None:
        arrays.pack(folder / PACKED)
        print(f"wrote {folder / PACKED}: {len(arrays)} images of {arrays.tokens.shape[1]} tokens")
    if images is not None:
        reference.pack_images(images, folder / reference.PACKED)
        print(f"wrote {folder / reference.PACKED}: {len(images)} images")
