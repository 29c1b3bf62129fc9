"""Token-Critic: train a critic for any masked image generator, then sample, refine and edit with it.

Names are imported when they are first used: `import tokencritic` itself does not import torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokencritic.adapters import as_critic, as_generator, as_scorer
    from tokencritic.contracts import MaskedGenerator, Proposal, Scorer, TokenCritic
    from tokencritic.errors import InputError
    from tokencritic.models.critic import Critic, CriticConfig
    from tokencritic.models.generator import Generator
    from tokencritic.models.transformer import TransformerConfig
    from tokencritic.pipeline import Given, TokenCriticPipeline
    from tokencritic.sampling.scorers import (
        ConfidenceScorer,
        CriticScorer,
        HaltonScorer,
        RandomOrderScorer,
        RandomRemaskScorer,
        WindowScorer,
    )
    from tokencritic.sampling.settings import SamplingSettings
    from tokencritic.sampling.starts import edit, refine, sample
    from tokencritic.sampling.trace import Trace
    from tokencritic.training.losses import critic_loss, generator_loss

__version__ = "0.1.0"

# module -> the public names that it holds
_HOMES = {
    "adapters": ["as_critic", "as_generator", "as_scorer"],
    "contracts": ["MaskedGenerator", "Proposal", "Scorer", "TokenCritic"],
    "errors": ["InputError"],
    "models.critic": ["Critic", "CriticConfig"],
    "models.generator": ["Generator"],
    "models.transformer": ["TransformerConfig"],
    "pipeline": ["Given", "TokenCriticPipeline"],
    "sampling.scorers": [
        "ConfidenceScorer",
        "CriticScorer",
        "HaltonScorer",
        "RandomOrderScorer",
        "RandomRemaskScorer",
        "WindowScorer",
    ],
    "sampling.settings": ["SamplingSettings"],
    "sampling.starts": ["edit", "refine", "sample"],
    "sampling.trace": ["Trace"],
    "training.losses": ["critic_loss", "generator_loss"],
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return vars(importlib.import_module(f"tokencritic.{_MODULES[name]}"))[name]
    raise AttributeError(f"module 'tokencritic' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
