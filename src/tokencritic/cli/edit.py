"""`token-critic edit`: part of an image drawn anew, and the rest left alone."""

from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import Namespace

from tokencritic.cli.arguments import add_settings, check_device, make_parser, parse, settings_of
from tokencritic.cli.given_images import class_text, labels_for, read_picture
from tokencritic.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image
    from torch import Tensor

_MOST_IN_GRID, _MOST_COLUMNS = 64, 8


def main(arguments: list[str]) -> None:
    given = _parse(arguments)
    boxes = [_whole_numbers("--region", text, "LEFT,TOP,RIGHT,BOTTOM") for text in given.region or ()]
    shift = _whole_numbers("--shift", given.shift, "DX,DY") if given.shift is not None else None
    changes = settings_of(given)

    from tokencritic.image_forms import to_images, to_pil
    from tokencritic.pictures import image_grid, save
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.tokenizers.regions import move, pixels_in, pixels_of, tokens_touched

    file = Path(given.image)
    pipe = TokenCriticPipeline.from_pretrained(given.model).to(check_device(given.device))
    tokenizer = pipe.tokenizer
    region = pixels_in(boxes, tokenizer.image_size)  # pyright: ignore[reportArgumentType]
    image = moved = to_images(read_picture(file), tokenizer.image_size, tokenizer.channels)
    if shift is not None:
        moved, empty = move(image, *shift)
        region |= empty
    if not region.any():
        raise InputError(f"--shift is {given.shift}, which leaves nothing to draw; move the image, or give a --region")
    drawn_anew = tokens_touched(region, tokenizer)
    # The classifier is asked about the image as it was given, whole.
    labels = labels_for(pipe, pipe.encode(image).expand(given.num, -1), given.classes, given.batch_size)
    tokens = pipe.encode(moved)
    edited = pipe.edit(
        tokens.expand(given.num, -1),
        drawn_anew,
        labels.tolist(),
        num_inference_steps=changes.pop("steps", None),
        seed=given.seed,
        batch_size=given.batch_size,
        **changes,
    )

    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    for index, picture in enumerate(edited):
        save(picture, folder / f"{index:03}_{file.stem}_edited.png")
    kept = _greyed(pipe.images(tokens, "np")[0], pixels_of(drawn_anew, tokenizer))
    shown = [to_pil(image[0].permute(1, 2, 0).numpy()), kept, *edited][:_MOST_IN_GRID]
    texts = [pipe.class_names[label] if pipe.class_names else f"class {label}" for label in labels.tolist()]
    names = ["given", "kept", *texts][: len(shown)]
    save(image_grid(shown, min(_MOST_COLUMNS, len(shown)), names=names), folder / "before_after.png")
    if given.classes is None:
        print(f"{file}: edited as {class_text(pipe, int(labels[0]))}, as the classifier has it")
    count = f"{int(drawn_anew.sum())} of {len(drawn_anew)} tokens drawn anew"
    print(f"wrote {given.num} edited images and before_after.png to {folder}: {count}")


def _parse(arguments: list[str]) -> Namespace:
    parser = make_parser(
        "edit",
        "Draw parts of an image anew, several times, and leave the rest alone: fill in, replace, or, with --shift, go on "
        "beyond the edge. Positions are pixels of the image as the model sees it: the middle square at the model's size. "
        "Every token that a region touches is drawn anew. Writes each result and before_after.png.",
    )
    parser.add_argument("model", help="a model folder or Hub id")
    parser.add_argument("image", help="an image file; the middle square is resized to the model's size")
    text = "a box to draw anew, without its right column and bottom row; may be given several times"
    parser.add_argument("--region", action="append", metavar="LEFT,TOP,RIGHT,BOTTOM", help=text)
    text = "move the image right and down, or by negative numbers left and up, and draw what becomes empty"
    parser.add_argument("--shift", metavar="DX,DY", help=text)
    text = "a number or name, one for all results or one for each; else the classifier says"
    parser.add_argument("--classes", nargs="+", help=text)
    parser.add_argument("--num", type=int, default=4, help="how many results")
    parser.add_argument("--seed", type=int, default=0, help="result i has seed + i")
    parser.add_argument("--out", default="out/edited", help="the folder to write")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    add_settings(parser)
    given = parse(parser, _joined(arguments))
    if given.region is None and given.shift is None:
        raise InputError("--region and --shift are missing; give at least one of them")
    for name in ("num", "batch_size"):
        if given[name] < 1:
            raise InputError(f"--{name} is {given[name]}; it must be at least 1")
    return given


def _joined(arguments: list[str]) -> list[str]:
    """`--shift -8,0` as `--shift=-8,0`: a parser would take the number for a flag."""
    joined: list[str] = []
    for word in arguments:
        if joined and joined[-1] == "--shift" and word[:1] == "-" and word[1:2].isdecimal():
            joined[-1] = f"--shift={word}"
        else:
            joined.append(word)
    return joined


def _whole_numbers(flag: str, text: str, form: str) -> tuple[int, ...]:
    """ "2,3" -> (2, 3), as many as the form has."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != form.count(",") + 1:
        raise InputError(f"{flag} is {text!r}; expected {form}, whole numbers of pixels")
    return numbers


def _greyed(image: "np.ndarray", region: "Tensor") -> "Image.Image":
    """An image (h, w, c) in [0, 1] with a region (h, w) of it in the colour of what is hidden."""
    import numpy as np
    from PIL import Image

    from tokencritic.pictures.look import HIDDEN

    pixels = np.broadcast_to((image * 255).round().astype(np.uint8), (*image.shape[:2], 3))
    return Image.fromarray(np.where(region.numpy()[..., None], np.array(HIDDEN, np.uint8), pixels))
