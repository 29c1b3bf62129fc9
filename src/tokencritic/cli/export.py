"""`token-critic export`: the model of a training run as a part of a pipeline folder."""

from tokencritic.cli.arguments import make_parser, parse


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
    given = parse(parser, arguments)

    from tokencritic.export import export

    written, notes = export(given.run, given.folder, half=given.half, best=given.best)
    print(*(f"note: {note}" for note in notes), written, sep="\n")
