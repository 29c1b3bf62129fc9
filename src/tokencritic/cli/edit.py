"""`token-critic edit`: resample part of an image and freeze the rest."""

from pathlib import Path

from jsonargparse import Namespace

from tokencritic.cli.arguments import add_model, load_model, make_parser, parse_work, say_device, settings_of
from tokencritic.errors import InputError

_MOST_IN_GRID, _MOST_COLUMNS = 64, 8


def main(arguments: list[str]) -> None:
    given = _parse(arguments)
    boxes = [_whole_numbers("--region", text, "LEFT,TOP,RIGHT,BOTTOM") for text in given.region or ()]
    shift = _whole_numbers("--shift", given.shift, "DX,DY")

    import torch
    from PIL import Image

    from tokencritic.image_forms import read_picture, to_images, to_pil
    from tokencritic.pictures.grids import image_grid, save
    from tokencritic.pictures.panels import decode, hidden_panels
    from tokencritic.pipeline import Given
    from tokencritic.tokenizers.regions import grid_of, move, pixels_in, tokens_touched

    file = Path(given.image)
    pipe = load_model(given)
    tokenizer = pipe.tokenizer
    grid = grid_of(tokenizer)
    region = pixels_in(boxes, tokenizer.image_size)  # pyright: ignore[reportArgumentType]
    image = to_images(read_picture(file, str(file)), tokenizer.image_size, tokenizer.channels)
    moved, empty = move(image, *shift)
    region |= empty
    if not region.any():
        raise InputError("there is nothing to sample; give a --region, or move the image with --shift")
    resampled = tokens_touched(region, tokenizer)
    # The classifier sees the original image, not the moved one.
    asked = given.classes is None and pipe.generator.num_classes > 1
    seen = pipe.encode(image).expand(given.num if given.classes else 1, -1)
    labels = pipe.labels_of(seen, given.classes, called="--classes")
    if labels is not None and len(labels) == 1:
        labels = labels.expand(given.num)
    tokens, names = pipe.encode(moved), pipe.names(labels) or [""] * given.num
    settings, start = pipe.settings(**settings_of(given)), Given(tokens.expand(given.num, -1), region=resampled)
    batches = pipe.token_batches(labels, given.seed, settings, start, batch_size=given.batch_size)
    say_device(given)
    edited = pipe.images(torch.cat(list(batches)), batch_size=given.batch_size)

    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    for index, picture in enumerate(edited):
        save(picture, folder / f"{index:03}_{file.stem}_edited.png")
    greyed = hidden_panels(decode(tokens, tokenizer), resampled[None].numpy(), None, grid)
    first, end = tokenizer.margin, tokenizer.margin + tokenizer.image_size
    kept = Image.fromarray(greyed[0, first:end, first:end])
    shown = [to_pil(image[0].permute(1, 2, 0).numpy()), kept, *edited][:_MOST_IN_GRID]
    below = ["given", "kept", *names][: len(shown)]
    save(image_grid(shown, min(_MOST_COLUMNS, len(shown)), names=below), folder / "before_after.png")
    if asked:
        print(f"{file}: edited as {names[0]}, predicted by the classifier")
    count = f"{int(resampled.sum())} of {len(resampled)} tokens resampled"
    print(f"wrote {given.num} edited images and before_after.png to {folder}: {count}")


def _parse(arguments: list[str]) -> Namespace:
    parser = make_parser(
        "edit",
        "Resample parts of an image, several times, and freeze the rest: fill in, replace, or extend the image with "
        "--shift. Positions are pixels of the centre square at the model's size. Every token that a region touches is "
        "resampled. Writes each result and before_after.png.",
        "MODEL IMAGE [OPTIONS]",
    )
    add_model(parser)
    parser.add_argument("image", help="image file; the centre square is resized to the model's size")
    text = "box to resample, without its right column and bottom row; may be repeated"
    parser.add_argument("--region", action="append", metavar="LEFT,TOP,RIGHT,BOTTOM", help=text)
    text = "move the image right and down (negative: left and up) and sample the empty part"
    parser.add_argument("--shift", default="0,0", metavar="DX,DY", help=text)
    text = (
        "number or name, one for all results or one for each; by default the classifier's, if there are several classes"
    )
    parser.add_argument("--classes", nargs="+", metavar="C", help=text)
    parser.add_argument("--num", type=int, default=4, help="number of results")
    if "--shift" in arguments[:-1]:  # joined to `--shift=-8,0`, because the parser reads -8,0 as a flag
        at = arguments.index("--shift")
        arguments = [*arguments[:at], "=".join(arguments[at : at + 2]), *arguments[at + 2 :]]
    return parse_work(parser, arguments, "out/edited", seed="result i has seed + i")


def _whole_numbers(flag: str, text: str, form: str) -> tuple[int, ...]:
    """Parse whole numbers such as "2,3", as many as the form has."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != form.count(",") + 1:
        raise InputError(f"{flag} is {text!r}; expected {form}, whole numbers of pixels")
    return numbers
