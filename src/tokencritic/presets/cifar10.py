"""CIFAR-10, 32 x 32 colour, 10 classes."""

from tokencritic.presets import TokenizerPreset
from tokencritic.tokenizers.compact import CompactConfig
from tokencritic.training.optimizer import OptimizerSettings
from tokencritic.training.tokenizer_task import TokenizerObjective

TOKENIZER = TokenizerPreset(
    config=CompactConfig(image_size=32, channels=3, codebook_size=1024),
    batch_size=128,
    minutes=15.0,
    objective=TokenizerObjective(adversarial=0.002),
    optimizer=OptimizerSettings(learning_rate=2e-3, betas=(0.9, 0.95), weight_decay=1e-4, ema=0.998),
    flip=True,
)
