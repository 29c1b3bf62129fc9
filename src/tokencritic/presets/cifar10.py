"""CIFAR-10, 32 x 32 colour, 10 classes: 8 x 8 tokens of 1024 codes. Made for two CPU cores and an evening.

`recipes/cifar10` trains it: PSNR 25.8 dB on held-out images for the tokenizer (6,800 steps, the last 1,800 with LPIPS),
loss 6.05 for the generator (5,000 steps). Its critic had an AUC of 0.796 (1,800 steps) with
`--model.ratio_conditioned false`. docs/results/cifar10.md shows what comes of it.
Generator: 1.4 million parameters, 0.6 GFLOP an image, forward and backward.
Critic: the generator's trunk; with the frozen generator's evaluation, 0.8 GFLOP an image.
Classifier: 3.3 million parameters, 0.7 GFLOP an image.
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
    objective=TokenizerObjective(perceptual=0.1),  # where there are weights for it
    training=TrainingSettings(batch_size=64, minutes=25.0),
    flip=True,
)

GENERATOR = replace(
    fashion_mnist.GENERATOR,
    # Nearly as small as that of Fashion-MNIST: an hour of two cores is 37 million tokens, 26 for each of its parameters.
    model=replace(fashion_mnist.GENERATOR.model, num_tokens=64, codebook_size=1024, width=160, mlp_width=640),
    optimizer=OptimizerSettings(learning_rate=2e-3),
    training=TrainingSettings(batch_size=64, minutes=60.0),
)

CRITIC = replace(
    fashion_mnist.CRITIC,
    model=CriticConfig(**vars(GENERATOR.model), ratio_conditioned=True),
    optimizer=OptimizerSettings(learning_rate=1e-3),  # the trunk has learned already
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
