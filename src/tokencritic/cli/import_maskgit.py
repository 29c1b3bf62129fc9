"""`token-critic import-maskgit`: the official MaskGIT checkpoints as a model folder of ours."""

from pathlib import Path

from tokencritic.cli.arguments import make_parser, parse
from tokencritic.files import reading


def main(arguments: list[str]) -> None:
    parser = make_parser("import-maskgit", "Read the official flax checkpoints, without JAX, and write a model folder.")
    parser.add_argument("--generator", required=True, help="maskgit_imagenet256_checkpoint or the like")
    parser.add_argument("--tokenizer", required=True, help="tokenizer_imagenet256_checkpoint or the like")
    parser.add_argument("--out", required=True, help="the folder to write")
    parser.add_argument("--class_names", help="a text file with one class name per line")
    given = parse(parser, arguments)

    from tokencritic.interop.maskgit import import_pair
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.sampling.settings import SamplingSettings

    names: list[str] = []
    if given.class_names:
        with reading(f"--class_names {given.class_names}", "a list of class names"):
            lines = Path(given.class_names).read_text(encoding="utf-8").splitlines()
        names = [line.strip() for line in lines if line.strip()]
    generator, tokenizer = import_pair(given.generator, given.tokenizer)
    # The published settings: 8 to 16 steps, choice temperature 4.5 at 256 x 256 and 7 at 512 x 512.
    defaults = SamplingSettings(steps=12, selection_noise=4.5 if tokenizer.image_size <= 256 else 7.0)
    TokenCriticPipeline(tokenizer, generator, class_names=names, defaults=defaults).save_pretrained(given.out)
    config, size = generator.config, tokenizer.image_size
    print(
        f"wrote {given.out}: {size} x {size} images, {config.num_tokens} tokens, {config.codebook_size} codes, "
        f"{config.num_classes} classes, {config.layers} layers of width {config.width}"
    )
