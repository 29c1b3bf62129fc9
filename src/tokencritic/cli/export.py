"""`token-critic export`: the model of a training run as a part of a pipeline folder."""

from pathlib import Path

from tokencritic.cli.arguments import make_parser, parse
from tokencritic.errors import InputError


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "export",
        "Put the averaged model of a run into a pipeline folder, beside the parts that are there. Start with the tokenizer.",
        "RUN FOLDER [OPTIONS]",
    )
    parser.add_argument("run", help="the folder of the run")
    parser.add_argument("folder", help="the pipeline folder; it is made if there is none")
    parser.add_argument("--half", action="store_true", help="write float16 weights; a tokenizer's stay float32")
    text = "the checkpoint of the lowest validation loss instead of the last weights"
    parser.add_argument("--best", action="store_true", help=text)
    text = "upload the whole folder to the Hub too, with a model card if it has none; needs `hf auth login`"
    parser.add_argument("--push", metavar="REPO_ID", help=text)
    text = "with --push: the Hub's name for the licence of the weights, such as mit"
    parser.add_argument("--licence", default="unknown", metavar="NAME", help=text)
    parser.add_argument("--private", action="store_true", help="with --push: make the repository private, if it is new")
    given = parse(parser, arguments)
    if given.push is None and (given.private or given.licence != "unknown"):
        raise InputError("--licence and --private are for --push; give it too, or leave them out")

    from tokencritic.export import export
    from tokencritic.hub import model_card, push_folder
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.pipeline_folder import PIPELINE

    written, notes = export(given.run, given.folder, half=given.half, best=given.best)
    print(*(f"note: {note}" for note in notes), written, sep="\n")
    if given.push is not None:
        if not (Path(given.folder) / PIPELINE).is_file():
            raise InputError(f"--push is {given.push}, but {given.folder} is not a pipeline yet; nothing is pushed")
        card = model_card(TokenCriticPipeline.from_pretrained(given.folder), given.push, given.licence)
        address = push_folder(Path(given.folder), given.push, card, given.private)
        print(f"pushed {given.folder} to {address}")
