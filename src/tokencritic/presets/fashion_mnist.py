"""Fashion-MNIST, 28 x 28 grey, 10 classes: 7 x 7 tokens of 512 codes.

Tokenizer: 12,000 steps of 64 images took 13 minutes on one CPU core and gave a PSNR of 24.4 dB on test images.
"""

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
