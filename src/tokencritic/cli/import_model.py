"""`token-critic import`: import published checkpoints to a model folder. A module cannot be named `import`."""

from pathlib import Path

from jsonargparse import Namespace

from tokencritic.cli.arguments import check_positive, make_parser, parse
from tokencritic.cli.outputs import check_folder
from tokencritic.errors import InputError
from tokencritic.files import reading
from tokencritic.interop.families import GENERATORS, TOKENIZERS

_OF_TOKENIZERS, _OF_GENERATORS = ("image_size",), ("generator", "heads", "config", "class_names")


def main(arguments: list[str]) -> None:
    given = _parse(arguments)
    names = _class_names(given.class_names)

    from tokencritic.interop.importing import check_place

    for flag in ("generator", "tokenizer"):
        if given[flag]:
            check_place(f"--{flag}", given[flag])
    if given.kind in TOKENIZERS:
        _import_tokenizer(given)
    else:
        _import_generator(given, names)


def _parse(arguments: list[str]) -> Namespace:
    parser = make_parser(
        "import",
        "Read published checkpoints and write a model folder. A PATH is a file of weights, a folder with weights and "
        "config.json, or a Hub id: owner/name, or owner/name/file.",
        "KIND --generator PATH --tokenizer PATH --out FOLDER [OPTIONS]",
    )
    kinds = "; ".join(f"{kind}: {title}" for kind, title in (GENERATORS | TOKENIZERS).items())
    parser.add_argument("kind", metavar="KIND", help=f"kind of the checkpoints. {kinds}")
    parser.add_argument("--generator", metavar="PATH", help="the generator's weights")
    parser.add_argument("--tokenizer", metavar="PATH", required=True, help="the tokenizer's weights")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="the folder to write")
    text = "attention heads of the generator, if files and published sizes do not determine them"
    parser.add_argument("--heads", type=int, metavar="N", help=text)
    text = "the authors' config, if it is not in the folder of the weights"
    parser.add_argument("--config", metavar="FILE.yaml", help=text)
    parser.add_argument("--class_names", metavar="FILE", help="a text file with one class name per line")
    text = "for a tokenizer without a generator: pixels along each side, 256 by default"
    parser.add_argument("--image_size", type=int, metavar="N", help=text)
    given = parse(parser, arguments)
    if given.kind not in GENERATORS | TOKENIZERS:
        raise InputError(f"KIND is {given.kind!r}; choose one of {', '.join(GENERATORS | TOKENIZERS)}")
    check_positive(given, "heads", "image_size")
    for name in _OF_GENERATORS if given.kind in TOKENIZERS else _OF_TOKENIZERS:
        if given[name] is not None:
            raise InputError(f"--{name} is {given[name]}; kind {given.kind} does not use it; omit the flag")
    if given.kind in GENERATORS and not given.generator:
        raise InputError(f"--generator is missing; kind {given.kind} needs it")
    _check_out(Path(given.out))
    return given


def _check_out(folder: Path) -> None:
    """Raise InputError unless the folder can be written without losing files."""
    check_folder("--out", folder)
    parts = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    ours = "pipeline.json" in parts or {"config.json", "model.safetensors"} <= parts
    if parts and not ours:
        raise InputError(f"--out is {folder}, which holds other files; choose a new or empty folder")
    if kept := sorted(parts & {"critic", "inline_critic", "classifier"}):
        raise InputError(f"--out is {folder}, a model that already has a {kept[0]}; choose another folder")


def _class_names(file: str | None) -> list[str]:
    if file is None:
        return []
    with reading(f"--class_names {file}", "a list of class names"):
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _import_generator(given: Namespace, names: list[str]) -> None:
    from tokencritic.files import read_yaml
    from tokencritic.interop.family import Sources
    from tokencritic.interop.importing import find_weights, import_model
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.pipeline_folder import About

    config = read_yaml(given.config) if given.config else None
    generator, tokenizer = (find_weights(f"--{flag}", given[flag]) for flag in ("generator", "tokenizer"))
    config = generator.config or tokenizer.config if config is None else config
    found = import_model(given.kind, Sources(generator.file, tokenizer.file, given.heads, config))
    about = About(names, defaults=found.defaults, published=found.defaults)
    pipe = TokenCriticPipeline(found.tokenizer, found.generator, **vars(about))
    pipe.save_pretrained(given.out)
    print(f"read {generator.file} and {tokenizer.file}")
    trunk, size = found.generator.trunk, found.tokenizer.image_size
    print(
        f"wrote {given.out}: {size} x {size} images, {trunk.num_tokens} tokens, {trunk.codebook_size} codes, "
        f"{trunk.num_classes} classes, {trunk.config.layers} layers of width {trunk.width}"
    )


def _import_tokenizer(given: Namespace) -> None:
    from tokencritic.interop.importing import find_weights, import_tokenizer

    file = find_weights("--tokenizer", given.tokenizer).file
    tokenizer = import_tokenizer(given.kind, file, given.image_size)
    tokenizer.save_pretrained(given.out)
    print(f"read {file}")
    sizes = f"{tokenizer.num_tokens} tokens of {tokenizer.codebook_size} codes, {tokenizer.image_size} pixels"
    print(f"wrote {given.out}: {sizes}")
