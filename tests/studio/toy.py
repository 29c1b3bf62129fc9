"""A studio of a model that takes no time: random weights, 4 x 4 tokens, 3 classes; and pictures that strangers send."""

import dataclasses
import io
import struct
import zlib

import numpy as np
import torch
from PIL import Image

from tokencritic import Generator, TokenCriticPipeline, TransformerConfig
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.models.maskbit import MaskBitConfig, MaskBitGenerator
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer
from tokencritic.tokenizers.maskbit import MaskBitTokenizer, MaskBitTokenizerConfig
from tokencritic.tokenizers.titok import TiTok, TiTokConfig

SIZES = TransformerConfig(num_tokens=16, codebook_size=12, num_classes=3, width=16, layers=1, heads=2, mlp_width=32)


def toy_pipe(critic=True, classifier=True, inline_critic=False, side=4):
    """Images of 10 x 10 pixels in 4 x 4 tokens of 3 x 3, with a margin of 1. side: more tokens take time."""
    torch.manual_seed(0)
    size = 3 * side - 2
    tokenizer = CompactTokenizer(CompactConfig(image_size=size, factor=3, margin=1, width=16, codebook_size=12)).eval()
    generator = Generator(dataclasses.replace(SIZES, num_tokens=side**2)).eval()
    critic = generator.start_critic().eval() if critic else None
    classifier = Classifier(ClassifierConfig(image_size=size, num_classes=3, width=8)).eval() if classifier else None
    names, defaults = ("cat", "big dog", "owl"), SamplingSettings(steps=4)
    pipe = TokenCriticPipeline(tokenizer, generator, critic, classifier, class_names=names, defaults=defaults)
    for part in pipe.parts.values():
        for parameter in part.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
    if inline_critic:
        sizes = {"num_features": 1, "feature_width": 16, "width": 16, "layers": 1, "heads": 2, "mlp_width": 32}
        config = InlineCriticConfig(side**2, codebook_size=12, num_classes=3, generator=generator.identity(), **sizes)
        pipe.inline_critic = InlineCritic(config).eval()
    return pipe


def unlabelled_pipe():
    """The toy without classes; it keeps its classifier, which has nothing to find."""
    pipe = toy_pipe()
    generator = Generator(dataclasses.replace(SIZES, num_classes=0)).eval()
    return TokenCriticPipeline(pipe.tokenizer, generator, generator.start_critic().eval(), pipe.classifier)


def gridless_pipe():
    """The toy with 16 tokens that have no place in the image."""
    pipe, vit = toy_pipe(), {"encoder_width": 64, "encoder_layers": 1, "decoder_width": 64, "decoder_layers": 1}
    config = TiTokConfig(10, 1, 32, (1, 1), 1, codebook_size=12, code_width=4, num_tokens=16, **vit)
    pipe.tokenizer = TiTok(config).eval()
    return pipe


def split_pipe():
    """12 x 12 pixels in 3 x 3 places with 2 tokens each, 2 classes, without critic and classifier."""
    torch.manual_seed(0)
    sizes = MaskBitTokenizerConfig(
        image_size=12, filters=32, multipliers=(1, 1, 1), blocks=1, splits=2, bits_per_part=3
    )
    small = {"width": 16, "layers": 1, "heads": 2, "mlp_width": 16}
    generator = MaskBitGenerator(MaskBitConfig(places=9, splits=2, bits_per_part=3, num_classes=2, **small))
    defaults = SamplingSettings(steps=2, sampler="confidence")
    return TokenCriticPipeline(MaskBitTokenizer(sizes).eval(), generator.eval(), defaults=defaults)


def png_bytes(image, form="PNG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def bomb(side=20000):
    """A PNG of many pixels in a few hundred bytes; its header is all that a decoder should look at."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + content


def noise_picture(width=10, height=10, channels=1, seed=0):
    shape = (height, width) if channels == 1 else (height, width, channels)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def done(run):
    """What a run came to, once it has come to an end."""
    assert run.finished.wait(60)
    assert (run.state, run.message) == ("done", "")
    return run.result
