"""`token-critic refine`: improve existing images with the critic."""

from pathlib import Path

from tokencritic.cli.arguments import add_model, load_model, make_parser, parse_work, say_device, settings_of
from tokencritic.sampling.settings import REFINEMENT_RATIO

_MOST_IN_GRID = 64


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "refine",
        "Resample the tokens of images with the lowest critic scores, in 9 steps by default. Writes the result and the "
        "tokenizer's reconstruction of each image, before_after.png of all images, and critic.png with the scores.",
        "MODEL IMAGE [IMAGE ...] [OPTIONS]",
    )
    add_model(parser)
    parser.add_argument("images", nargs="+", help="image files; the centre square is resized to the model's size")
    text = (
        "numbers or names, one for each image or one for all; by default the classifier's, if there are several classes"
    )
    parser.add_argument("--classes", nargs="+", metavar="C", help=text)
    parser.add_argument("--ratio", type=float, default=REFINEMENT_RATIO, help="share of tokens hidden at the start")
    given = parse_work(parser, arguments, "out/refined")

    import torch

    from tokencritic.image_forms import read_picture, to_images, to_pil
    from tokencritic.pictures.grids import image_grid, save
    from tokencritic.pictures.steps import MOST_IMAGES, before_and_after
    from tokencritic.pipeline import Given
    from tokencritic.sampling.trace import Trace

    files = [Path(name) for name in given.images]
    pipe = load_model(given)
    settings = pipe.sampling.for_refinement(**settings_of(given))
    size, channels = pipe.tokenizer.image_size, pipe.tokenizer.channels
    # One file at a time, because photographs need much more memory than resized images.
    images = torch.cat([to_images(read_picture(file, str(file)), size, channels) for file in files])
    tokens = pipe.encode(images, given.batch_size)
    asked = given.classes is None and pipe.generator.num_classes > 1
    labels = pipe.labels_of(tokens, given.classes, given.batch_size, called="--classes")
    names = pipe.names(labels)
    # A trace does not show which of several candidates was chosen.
    trace = Trace(MOST_IMAGES) if settings.sampler == "critic" and settings.candidates == 1 else None
    start = Given(tokens, given.ratio)
    batches = pipe.token_batches(labels, given.seed, settings, start, batch_size=given.batch_size, on_step=trace)
    say_device(given)
    refined = torch.cat(list(batches))
    before, after = (pipe.images(some, batch_size=given.batch_size) for some in (tokens, refined))
    originals = [to_pil(image) for image in images.permute(0, 2, 3, 1).numpy()]

    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    for index, file in enumerate(files):
        save(before[index], folder / f"{index:03}_{file.stem}_reconstructed.png")
        save(after[index], folder / f"{index:03}_{file.stem}_refined.png")
    rows = list(zip(originals, before, after, strict=True))[:_MOST_IN_GRID]
    save(image_grid([image for row in rows for image in row], columns=3), folder / "before_after.png")
    if trace is not None:
        shown = names[:MOST_IMAGES]
        save(before_and_after(trace, pipe.tokenizer, shown, settings.probabilities), folder / "critic.png")
    if asked:
        for file, name in zip(files, names, strict=True):
            print(f"{file}: refined as {name}, predicted by the classifier")
    sheets = "before_after.png" if trace is None else "before_after.png and critic.png"
    print(f"wrote {len(files)} refined images, {sheets} to {folder}")
