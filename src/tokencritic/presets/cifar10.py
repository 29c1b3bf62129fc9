"""CIFAR-10, 32 x 32 colour, 10 classes: 8 x 8 tokens of 1024 codes.

Tokenizer: 2,622 steps of 128 images, 25 minutes on half of a busy CPU, without LPIPS, gave a PSNR of 24.9 dB on test images.
That is blurred: it wants longer training, and LPIPS weights (`--lpips`).
"""

from tokencritic.presets import TokenizerPreset
from tokencritic.tokenizers.compact import CIFAR_10
from tokencritic.training.optimizer import OptimizerSettings
from tokencritic.training.tokenizer_task import TokenizerObjective

TOKENIZER = TokenizerPreset(
    config=CIFAR_10,
    batch_size=128,
    minutes=25.0,
    objective=TokenizerObjective(perceptual=0.1),  # where there are weights for it
    optimizer=OptimizerSettings(learning_rate=2e-3, betas=(0.9, 0.95), weight_decay=1e-4, ema=0.998),
    flip=True,
)
