"""Fashion-MNIST, 28 x 28 grey, 10 classes."""

from tokencritic.presets import TokenizerPreset
from tokencritic.tokenizers.compact import FASHION_MNIST
from tokencritic.training.optimizer import OptimizerSettings
from tokencritic.training.tokenizer_task import TokenizerObjective

TOKENIZER = TokenizerPreset(
    config=FASHION_MNIST,
    batch_size=64,
    minutes=14.0,
    objective=TokenizerObjective(),
    optimizer=OptimizerSettings(learning_rate=2e-3, betas=(0.9, 0.95), weight_decay=1e-4, ema=0.998),
)
