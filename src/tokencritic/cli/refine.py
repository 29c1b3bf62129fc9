"""`token-critic refine`: images that exist, made better by the critic."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from tokencritic.cli.arguments import add_settings, check_device, make_parser, parse, settings_of
from tokencritic.errors import InputError

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from tokencritic.pipeline import TokenCriticPipeline

_STEPS = 9
_MOST_IN_GRID = 64
_BROKEN = (OSError, SyntaxError, ValueError, EOFError)  # what Pillow raises on a broken file


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "refine",
        "Draw again the tokens of an image that the critic trusts least, in 9 steps unless told otherwise. Writes, for "
        "each image, the result and the tokenizer's own reconstruction, so that what refinement changed can be told from "
        "what the tokenizer lost; before_after.png of all; and critic.png, what the critic distrusted.",
    )
    parser.add_argument("model", help="a model folder or Hub id")
    parser.add_argument("images", nargs="+", help="image files; the middle square is resized to the model's size")
    parser.add_argument(
        "--classes", nargs="+", help="numbers or names, one for each image or one for all; else the classifier says"
    )
    parser.add_argument("--ratio", type=float, default=0.6, help="the share of tokens hidden at first")
    parser.add_argument("--seed", type=int, default=0, help="image i has seed + i")
    parser.add_argument("--out", default="out/refined", help="the folder to write")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    add_settings(parser)
    given = parse(parser, arguments)
    changes = settings_of(given)

    import torch

    from tokencritic.image_forms import to_images, to_pil
    from tokencritic.pictures import MOST_IMAGES, before_and_after, grid, save
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.sampling.trace import Trace

    files = [Path(name) for name in given.images]
    pipe = TokenCriticPipeline.from_pretrained(given.model).to(check_device(given.device))
    settings = pipe.refinement_settings(changes.pop("steps", _STEPS), **changes)
    size, channels = pipe.tokenizer.image_size, pipe.tokenizer.channels
    # One file at a time: photographs are large, what is kept of them is not.
    images = torch.cat([to_images(_read(file), size, channels) for file in files])
    tokens = pipe.encode(images, given.batch_size)
    labels = _labels(pipe, tokens, given.classes, files, given.batch_size)
    trace = (
        Trace(MOST_IMAGES) if settings.candidates == 1 else None
    )  # of several candidates the chosen one is not traced
    refined = pipe.refine_tokens(
        tokens, labels, given.seed, settings, given.batch_size, trace and trace.on_step_end, ratio=given.ratio
    )
    before, after = (pipe.images(some, batch_size=given.batch_size) for some in (tokens, refined))
    originals = [to_pil(image) for image in images.permute(0, 2, 3, 1).numpy()]

    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    for index, file in enumerate(files):
        save(before[index], folder / f"{index:03}_{file.stem}_reconstructed.png")
        save(after[index], folder / f"{index:03}_{file.stem}_refined.png")
    rows = list(zip(originals, before, after, strict=True))[:_MOST_IN_GRID]
    save(grid([image for row in rows for image in row], columns=3), folder / "before_after.png")
    if trace is not None:
        names = [pipe.class_names[label] for label in labels.tolist()] if pipe.class_names else ()
        save(before_and_after(trace, pipe.tokenizer, names), folder / "critic.png")
    if given.classes is None:
        for file, label in zip(files, labels.tolist(), strict=True):
            name = f" ({pipe.class_names[label]})" if pipe.class_names else ""
            print(f"{file}: refined as class {label}{name}, as the classifier has it")
    sheets = "before_after.png" if trace is None else "before_after.png and critic.png"
    print(f"wrote {len(files)} refined images, {sheets} to {folder}")


def _labels(
    pipe: "TokenCriticPipeline", tokens: "Tensor", classes: list[str] | None, files: list[Path], batch_size: int
) -> "Tensor":
    """One class per image: as given, or as the classifier says."""
    if classes is None:
        if pipe.classifier is None:
            raise InputError(
                "--classes is missing and the model has no classifier; give one for each image, or one for all"
            )
        return pipe.classify(tokens, batch_size)
    if len(classes) not in (1, len(files)):
        raise InputError(
            f"--classes has {len(classes)} entries for {len(files)} images; give one for each, or one for all"
        )
    labels = pipe.labels(classes)
    return labels.expand(len(files)) if len(labels) == 1 else labels


def _read(file: Path) -> "Image.Image":
    """A picture in mode L or RGB. One that would take absurd room in memory is refused as if it were broken."""
    from PIL import Image

    from tokencritic.data.folder import read_image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return read_image(file)
    except (*_BROKEN, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        reason = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
        raise InputError(f"{file} is no image that can be read: {reason.splitlines()[0]}") from error
