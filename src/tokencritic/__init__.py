"""Token-Critic: train a critic for any masked image generator, then sample, refine and edit with it.

Names are imported when they are first used: `import tokencritic` itself does not import torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokencritic.errors import InputError
    from tokencritic.models.critic import Critic, CriticConfig
    from tokencritic.models.generator import Generator
    from tokencritic.models.transformer import TransformerConfig
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.sampling import (
        ChanceScorer,
        ConfidenceScorer,
        CriticScorer,
        HaltonScorer,
        Proposal,
        RandomScorer,
        Trace,
        edit,
        refine,
        sample,
    )
    from tokencritic.training.losses import critic_loss, generator_loss

__version__ = "0.1.0"

_HOMES = {
    "InputError": "errors",
    "Critic": "models.critic",
    "CriticConfig": "models.critic",
    "Generator": "models.generator",
    "TransformerConfig": "models.transformer",
    "TokenCriticPipeline": "pipeline",
    "ChanceScorer": "sampling",
    "ConfidenceScorer": "sampling",
    "CriticScorer": "sampling",
    "HaltonScorer": "sampling",
    "Proposal": "sampling",
    "RandomScorer": "sampling",
    "Trace": "sampling",
    "edit": "sampling",
    "refine": "sampling",
    "sample": "sampling",
    "critic_loss": "training.losses",
    "generator_loss": "training.losses",
}

__all__ = [
    "ChanceScorer",
    "ConfidenceScorer",
    "Critic",
    "CriticConfig",
    "CriticScorer",
    "Generator",
    "HaltonScorer",
    "InputError",
    "Proposal",
    "RandomScorer",
    "TokenCriticPipeline",
    "Trace",
    "TransformerConfig",
    "critic_loss",
    "edit",
    "generator_loss",
    "refine",
    "sample",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"tokencritic.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tokencritic' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
