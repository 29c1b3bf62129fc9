"""`token-critic sample`: new images from a model folder."""

import time
from pathlib import Path

from tokencritic.cli.arguments import add_settings, check_device, make_parser, parse, settings_of
from tokencritic.errors import InputError


def main(arguments: list[str]) -> None:
    parser = make_parser("sample", "Make images: one PNG each, and a grid of all of them.")
    parser.add_argument("model", help="a model folder or Hub id")
    parser.add_argument("--classes", nargs="+", help="numbers or names; all classes in turn if not given")
    parser.add_argument("--num", type=int, default=16, help="how many images in all; the classes take turns")
    parser.add_argument("--seed", type=int, default=0, help="image i has seed + i")
    parser.add_argument("--out", default="out/samples", help="the folder to write")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    add_settings(parser)
    given = parse(parser, arguments)
    if given.num < 1:
        raise InputError(f"--num is {given.num}; it must be at least 1")

    from tokencritic.pictures.grids import grid, save
    from tokencritic.pipeline import TokenCriticPipeline

    pipe = TokenCriticPipeline.from_pretrained(given.model).to(check_device(given.device))
    settings = pipe.settings(**settings_of(given))
    classes = pipe.labels(given.classes or list(range(pipe.generator.num_classes)))
    labels = classes.repeat(-(-given.num // len(classes)))[: given.num]
    start = time.perf_counter()
    tokens = pipe.sample_tokens(labels, given.seed, settings, given.batch_size)
    images = pipe.images(tokens, batch_size=given.batch_size)
    seconds = time.perf_counter() - start
    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    for index, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        save(image, folder / f"{given.seed + index:06}_class{label}.png")
    save(grid(images), folder / "grid.png")
    print(f"wrote {len(images)} images and grid.png to {folder} in {seconds:.1f} s")
