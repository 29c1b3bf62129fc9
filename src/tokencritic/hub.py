"""Model cards and uploads to the Hugging Face Hub."""

import json
from pathlib import Path

import huggingface_hub

from tokencritic.errors import InputError
from tokencritic.files import reason_of, write_text
from tokencritic.model_parts import ModelParts

CARD = "README.md"
_TITLES = {
    "tokenizer": "encodes images to tokens and decodes them",
    "generator": "predicts hidden tokens",
    "critic": "scores which tokens to resample",
    "inline_critic": "a head on the generator that scores which tokens to resample",
    "classifier": "for rejection sampling and features",
}


def model_card(model: ModelParts, repo_id: str, licence: str) -> str:
    """Return the text of a model card: summary, usage, parts, default settings and licence."""
    tokenizer, classes, size = model.tokenizer, model.generator.num_classes, model.tokenizer.image_size
    images = f"{size} x {size} images, {tokenizer.num_tokens} tokens of {tokenizer.codebook_size} codes"
    with_classes = f"{classes} classes" if classes else "without classes"
    call = f"pipe({json.dumps(model.names([0])[0]) if model.class_names else 0})" if classes else "pipe()"
    rows = [
        f"| {name} | {type(part).__name__} | {sum(p.numel() for n in part.networks for p in n.parameters()):,} | "
        f"{_TITLES[name]} |"
        for name, part in model.parts.items()
    ]
    settings = model.sampling.changed().in_effect(model.critic is not None)
    used = json.dumps({name: value for name, value in settings.items() if value is not None}, indent=2)
    return f"""---
library_name: token-critic
license: {licence}
tags:
- masked-image-generation
- token-critic
---

# {repo_id.rpartition("/")[2]}

A masked image generator for the Python package `token-critic`: {images}, {with_classes}.

```python
from tokencritic import TokenCriticPipeline

pipe = TokenCriticPipeline.from_pretrained("{repo_id}")
{call}[0].save("image.png")
```

```bash
token-critic sample {repo_id} --num 16 --out samples
```

## Parts

| part | class | parameters | |
|---|---|---:|---|
{chr(10).join(rows)}

## Settings

The default sampling settings:

```json
{used}
```

## Licence

Licence of the weights: {licence}. The package `token-critic` is under Apache-2.0.
"""


def push_folder(folder: Path, repo_id: str, card: str, private: bool = False, token: str | None = None) -> str:
    """Upload a model folder and return the URL of its page.

    card: the model card, written if the folder has none.
    private: create a private repository.
    token: a Hub token; by default the stored one.
    """
    if not (folder / CARD).exists():
        write_text(folder / CARD, card)
    try:
        huggingface_hub.create_repo(repo_id, private=private, exist_ok=True, token=token)
        huggingface_hub.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            commit_message="Model by token-critic",
            ignore_patterns=[".*", "**/.*"],  # leftovers of interrupted writes
            token=token,
        )
    except Exception as error:  # the class differs between versions of huggingface_hub
        raise InputError(f"{folder} could not be pushed to {repo_id}: {reason_of(error)}") from error
    return f"https://huggingface.co/{repo_id}"
