"""`token-critic export`: export the model of a training run to a model folder."""

from pathlib import Path

from tokencritic.cli.arguments import make_parser, parse
from tokencritic.cli.outputs import check_folder
from tokencritic.errors import InputError


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "export",
        "Write the averaged model of a run to a model folder, as one of its parts. Export the tokenizer first.",
        "RUN FOLDER [OPTIONS]",
    )
    parser.add_argument("run", help="the folder of the run")
    parser.add_argument("folder", help="the model folder, created if needed")
    parser.add_argument("--half", action="store_true", help="write float16 weights; tokenizers stay float32")
    text = "export the checkpoint with the lowest validation loss instead of the last"
    parser.add_argument("--best", action="store_true", help=text)
    text = "also upload the folder to the Hub, with a model card if it has none; needs `hf auth login`"
    parser.add_argument("--push", metavar="REPO_ID", help=text)
    text = "with --push: the Hub's name for the licence of the weights, such as mit"
    parser.add_argument("--licence", default="unknown", metavar="NAME", help=text)
    parser.add_argument("--private", action="store_true", help="with --push: create a private repository")
    given = parse(parser, arguments)
    if given.push is None and (given.private or given.licence != "unknown"):
        raise InputError("--licence and --private need --push; give it too, or omit them")
    check_folder("FOLDER", given.folder)

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
