"""`token-critic refine`: images that exist, made better by the critic."""

from pathlib import Path

from tokencritic.cli.arguments import add_settings, check_device, make_parser, parse, settings_of
from tokencritic.cli.given_images import class_text, labels_for, read_picture

_MOST_IN_GRID = 64


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

    import torch

    from tokencritic.image_forms import to_images, to_pil
    from tokencritic.pictures import MOST_IMAGES, before_and_after, image_grid, save
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.sampling.trace import Trace

    files = [Path(name) for name in given.images]
    pipe = TokenCriticPipeline.from_pretrained(given.model).to(check_device(given.device))
    settings = pipe.refinement_settings(**settings_of(given))
    size, channels = pipe.tokenizer.image_size, pipe.tokenizer.channels
    # One file at a time: photographs are large, what is kept of them is not.
    images = torch.cat([to_images(read_picture(file), size, channels) for file in files])
    tokens = pipe.encode(images, given.batch_size)
    labels = labels_for(pipe, tokens, given.classes, given.batch_size)
    # Of several candidates the chosen one is not traced.
    trace = Trace(MOST_IMAGES) if settings.sampler == "critic" and settings.candidates == 1 else None
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
    save(image_grid([image for row in rows for image in row], columns=3), folder / "before_after.png")
    if trace is not None:
        names = [pipe.class_names[label] for label in labels[:MOST_IMAGES].tolist()] if pipe.class_names else ()
        picture = before_and_after(trace, pipe.tokenizer, names, probabilities=settings.probabilities)
        save(picture, folder / "critic.png")
    if given.classes is None:
        for file, label in zip(files, labels.tolist(), strict=True):
            print(f"{file}: refined as {class_text(pipe, label)}, as the classifier has it")
    sheets = "before_after.png" if trace is None else "before_after.png and critic.png"
    print(f"wrote {len(files)} refined images, {sheets} to {folder}")
