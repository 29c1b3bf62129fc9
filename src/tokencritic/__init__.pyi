# The public names, for type checkers; `__init__.py` imports them when they are first used.
from tokencritic.adapters import as_critic as as_critic
from tokencritic.adapters import as_generator as as_generator
from tokencritic.adapters import as_scorer as as_scorer
from tokencritic.contracts import FeatureCritic as FeatureCritic
from tokencritic.contracts import MaskedGenerator as MaskedGenerator
from tokencritic.contracts import TokenCritic as TokenCritic
from tokencritic.errors import InputError as InputError
from tokencritic.models.critic import Critic as Critic
from tokencritic.models.critic import CriticConfig as CriticConfig
from tokencritic.models.generator import Generator as Generator
from tokencritic.models.inline_critic import InlineCritic as InlineCritic
from tokencritic.models.inline_critic import InlineCriticConfig as InlineCriticConfig
from tokencritic.models.transformer import TransformerConfig as TransformerConfig
from tokencritic.pipeline import Given as Given
from tokencritic.pipeline import TokenCriticPipeline as TokenCriticPipeline
from tokencritic.sampling.scorers import ConfidenceScorer as ConfidenceScorer
from tokencritic.sampling.scorers import CriticScorer as CriticScorer
from tokencritic.sampling.scorers import HaltonScorer as HaltonScorer
from tokencritic.sampling.scorers import InlineScorer as InlineScorer
from tokencritic.sampling.scorers import RandomOrderScorer as RandomOrderScorer
from tokencritic.sampling.scorers import RandomRemaskScorer as RandomRemaskScorer
from tokencritic.sampling.scorers import WindowScorer as WindowScorer
from tokencritic.sampling.settings import SamplingSettings as SamplingSettings
from tokencritic.sampling.starts import edit as edit
from tokencritic.sampling.starts import refine as refine
from tokencritic.sampling.starts import sample as sample
from tokencritic.sampling.trace import Trace as Trace
from tokencritic.scoring import Proposal as Proposal
from tokencritic.scoring import Scorer as Scorer
from tokencritic.training.losses import critic_loss as critic_loss
from tokencritic.training.losses import generator_loss as generator_loss
from tokencritic.training.losses import inline_critic_loss as inline_critic_loss

__version__: str
