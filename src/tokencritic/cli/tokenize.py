"""`token-critic tokenize`: encode images to token arrays."""

from functools import partial
from pathlib import Path

from tokencritic.cli.arguments import add_machine, check_device, make_parser, parse, say_device
from tokencritic.cli.factories import is_factory, pipeline_of
from tokencritic.cli.outputs import check_folder
from tokencritic.errors import one_line


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "tokenize",
        "Turn images into memory-mapped token arrays. Rerun the command to resume an interrupted one.",
        "MODEL DATA --out FOLDER [OPTIONS]",
    )
    text = "a model folder or Hub id, the folder of a tokenizer alone, or module:factory, which returns (generator, tokenizer)"
    parser.add_argument("model", help=text)
    parser.add_argument(
        "data", help="a folder of class folders or of images, idx files, CIFAR-10 in any form, or an .npz"
    )
    parser.add_argument("--out", required=True, help="the folder to write")
    parser.add_argument("--split", choices=["train", "test"], default="train", help="split of the data set")
    parser.add_argument("--crop", choices=["center", "random"], default="center", help="random: RandomResizedCrop")
    parser.add_argument("--flip", action="store_true", help="flip each image with probability 1/2")
    parser.add_argument("--crops_per_image", type=int, default=1, help="rows per image, each of another crop")
    parser.add_argument("--seed", type=int, default=0, help="of the random crops and flips")
    parser.add_argument("--workers", type=int, default=4, help="processes that read image files; 0: none")
    parser.add_argument("--max_corrupt", type=int, default=10, help="unreadable files that are skipped before an error")
    add_machine(parser)
    given = parse(parser, arguments)
    check_folder("--out", given.out)

    from tokencritic.data.sources import open_source
    from tokencritic.data.tokenizing import TokenizeJob
    from tokencritic.data.transforms import Preprocess
    from tokencritic.distribution import joined
    from tokencritic.pipeline_folder import load_part

    source = open_source(given.data, given.split, max_corrupt=given.max_corrupt)
    source.check()
    device = check_device(given.device)
    tokenizer = pipeline_of(given.model).tokenizer if is_factory(given.model) else load_part(given.model, "tokenizer")
    for network in tokenizer.networks:
        network.to(device)
    preprocess = Preprocess(tokenizer.image_size, tokenizer.channels, given.crop, given.flip)
    how = {name: given[name] for name in ("crops_per_image", "seed", "batch_size", "workers")}
    job = TokenizeJob(source, tokenizer, Path(given.out), preprocess, **how)
    with joined(device) as ranks:
        arrays = job.run(ranks, on_start=partial(say_device, given))
        if not ranks.first:
            return
    for name, reason in arrays.facts["corrupt"].items():
        print(f"skipped {one_line(name)}: {one_line(reason)}")
    classes = f"{len(arrays.class_names)} classes" if arrays.class_names else "without classes"
    about = f"{len(arrays)} images of {arrays.tokens.shape[1]} tokens, {classes}"
    print(f"wrote {given.out}: {about}")
