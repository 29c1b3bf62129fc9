"""Token-Critic: train a critic for any masked image generator, then sample, refine and edit with it.

Names are imported when they are first used: `import tokencritic` itself does not import torch.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

# module -> the public names that it holds
_HOMES = {
    "adapters": ["as_critic", "as_generator", "as_scorer"],
    "contracts": ["FeatureCritic", "MaskedGenerator", "TokenCritic"],
    "scoring": ["Proposal", "Scorer"],
    "errors": ["InputError"],
    "models.critic": ["Critic", "CriticConfig"],
    "models.generator": ["Generator"],
    "models.inline_critic": ["InlineCritic", "InlineCriticConfig"],
    "models.transformer": ["TransformerConfig"],
    "pipeline": ["Given", "TokenCriticPipeline"],
    "sampling.scorers": [
        "ConfidenceScorer",
        "CriticScorer",
        "HaltonScorer",
        "InlineScorer",
        "RandomOrderScorer",
        "RandomRemaskScorer",
        "WindowScorer",
    ],
    "sampling.settings": ["SamplingSettings"],
    "sampling.starts": ["edit", "refine", "sample"],
    "sampling.trace": ["Trace"],
    "training.losses": ["critic_loss", "generator_loss", "inline_critic_loss"],
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return vars(importlib.import_module(f"tokencritic.{_MODULES[name]}"))[name]
    raise AttributeError(f"module 'tokencritic' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
