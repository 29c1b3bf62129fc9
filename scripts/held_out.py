"""Evaluate each part of a model on its own reference images, which no part was trained on, to one line of JSON.

    python scripts/held_out.py MODEL FILE

The losses and metrics are those of validation in training, with the objectives of the Fashion-MNIST preset. MODEL is a
model with all parts that includes reference images.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tokencritic import TokenCriticPipeline
from tokencritic.data.sources import open_source
from tokencritic.data.tokens import TokenArrays
from tokencritic.data.transforms import ImageBatches, Preprocess
from tokencritic.presets import find_preset
from tokencritic.pretrained import place_of
from tokencritic.training.image_tasks import ClassifierTask, TokenizerTask
from tokencritic.training.token_tasks import CriticTask, GeneratorTask, InlineCriticTask


def tokenized(pipe: TokenCriticPipeline, images: ImageBatches) -> TokenArrays:
    """Return the tokens and labels of all images."""
    tokenizer = pipe.tokenizer
    batches = [images.labelled(rows, None) for rows in torch.arange(len(images)).split(256)]
    tokens = torch.cat([tokenizer.encode(pixels) for pixels, _ in batches]).numpy().astype(np.uint16)
    labels = torch.cat([labels for _, labels in batches]).numpy().astype(np.int32)
    names = tuple(images.source.class_names)
    grid = tokenizer.grid or (1, tokenizer.num_tokens)
    return TokenArrays(tokens, labels, tokenizer.fingerprint(), tokenizer.codebook_size, grid, names, {})


@torch.inference_mode()
def main(model: str, file: str) -> None:
    pipe = TokenCriticPipeline.from_pretrained(model)
    source = open_source(Path(place_of(model)) / "reference.npz")
    images = ImageBatches(source, Preprocess(pipe.tokenizer.image_size, pipe.tokenizer.channels))
    arrays = tokenized(pipe, images)
    objectives = {
        name: find_preset(name, "fashion-mnist").objective
        for name in ("tokenizer", "generator", "critic", "inline-critic", "classifier")
    }
    parts: dict[str, Any] = pipe.parts
    tasks = [
        TokenizerTask(parts["tokenizer"], images, objectives["tokenizer"]),
        GeneratorTask(parts["generator"], arrays, objectives["generator"]),
        CriticTask(parts["critic"], pipe.generator, arrays, objectives["critic"]),
        InlineCriticTask(parts["inline_critic"], pipe.generator, arrays, objectives["inline-critic"]),
        ClassifierTask(parts["classifier"], images, objectives["classifier"]),
    ]
    found: dict[str, float] = {"images": len(images)}
    for task in tasks:
        numbers = task.validate(task.model.eval(), torch.arange(len(images)))
        found |= {f"{task.name}_{name}": value for name, value in numbers.items()}
        print(f"{task.name}: {', '.join(f'{name} {value:.4g}' for name, value in numbers.items())}", flush=True)
    Path(file).write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python scripts/held_out.py MODEL FILE")
    main(*sys.argv[1:])
