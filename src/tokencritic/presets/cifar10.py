"""CIFAR-10, 32 x 32 colour, 10 classes: 8 x 8 tokens of 1024 codes. For two CPU cores and an evening.

Expected with `recipes/cifar10` (docs/results/cifar10.md):
  tokenizer    PSNR 25.8 dB on held-out images after 6,800 steps, the last 1,800 with LPIPS
  generator    validation loss 6.05 after 5,000 steps
  critic       AUC 0.796 after 1,800 steps, with `--model.ratio_conditioned false`

Cost per image, forward and backward:
  generator    1.4 million parameters, 0.6 GFLOP
  critic       the generator's trunk; 0.8 GFLOP including the evaluation of the frozen generator
  classifier   3.3 million parameters, 0.7 GFLOP
"""

from dataclasses import replace

from tokencritic.models.classifier import ClassifierConfig
from tokencritic.models.critic import CriticConfig
from tokencritic.presets import fashion_mnist
from tokencritic.tokenizers.compact import CIFAR_10
from tokencritic.training.image_tasks import ClassifierObjective, TokenizerObjective
from tokencritic.training.settings import OptimizerSettings, TrainingSettings

TOKENIZER = replace(
    fashion_mnist.TOKENIZER,
    model=CIFAR_10,
    objective=TokenizerObjective(perceptual=0.1),  # unused without LPIPS weights
    training=TrainingSettings(batch_size=64, minutes=25.0),
    flip=True,
)

GENERATOR = replace(
    fashion_mnist.GENERATOR,
    # Small, because two cores train on 37 million tokens per hour, which is 26 per parameter.
    model=replace(fashion_mnist.GENERATOR.model, num_tokens=64, codebook_size=1024, width=160, mlp_width=640),
    optimizer=OptimizerSettings(learning_rate=2e-3),
    training=TrainingSettings(batch_size=64, minutes=60.0),
)

CRITIC = replace(
    fashion_mnist.CRITIC,
    model=CriticConfig(**vars(GENERATOR.model), ratio_conditioned=True),
    optimizer=OptimizerSettings(learning_rate=1e-3),  # lower than the generator's, because the trunk is trained
    training=GENERATOR.training,
)

INLINE_CRITIC = replace(
    fashion_mnist.INLINE_CRITIC, model=replace(fashion_mnist.INLINE_CRITIC.model, width=80, mlp_width=160)
)

CLASSIFIER = replace(
    fashion_mnist.CLASSIFIER,
    model=ClassifierConfig(image_size=32, channels=3, num_classes=10, width=64),
    objective=ClassifierObjective(label_smoothing=0.05, shift=3),
    training=TrainingSettings(batch_size=64, minutes=40.0),
    flip=True,
)
