"""Fashion-MNIST, 28 x 28 grey, 10 classes."""

from tokencritic.presets import TokenizerPreset
from tokencritic.tokenizers.compact import CompactConfig
from tokencritic.training.optimizer import OptimizerSettings
from tokencritic.training.tokenizer_task import TokenizerObjective

TOKENIZER = TokenizerPreset(
    config=CompactConfig(image_size=28, channels=1, codebook_size=1024),
    batch_size=128,
    minutes=8.0,
    objective=TokenizerObjective(adversarial=0.002),
    optimizer=OptimizerSettings(learning_rate=2e-3, betas=(0.9, 0.95), weight_decay=1e-4, ema=0.998),
)
