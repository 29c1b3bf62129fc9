"""CIFAR-10, 32 x 32 colour, 10 classes: 8 x 8 tokens of 1024 codes. Made for two CPU cores and patience.

Tokenizer: 2,622 steps of 128 images, 25 minutes on half of a busy CPU, without LPIPS, gave a PSNR of 24.9 dB on test images.
That is blurred: it wants longer training, and LPIPS weights (`--lpips`).
Generator: 5.1 million parameters, 1.9 GFLOP an image, forward and backward.
Critic: the generator's trunk; with the frozen generator's pass, 2.5 GFLOP an image.
Classifier: 3.3 million parameters, 0.7 GFLOP an image.
The minutes are those of a first look; good samples want the night.
"""

from tokencritic.models.classifier import ClassifierConfig
from tokencritic.models.critic import CriticConfig
from tokencritic.models.transformer import TransformerConfig
from tokencritic.presets.recipe import ClassifierPreset, CriticPreset, GeneratorPreset, TokenizerPreset
from tokencritic.tokenizers.compact import CIFAR_10
from tokencritic.training.classifier_task import ClassifierObjective
from tokencritic.training.critic_task import CriticObjective
from tokencritic.training.generator_task import GeneratorObjective
from tokencritic.training.optimizer import OptimizerSettings
from tokencritic.training.settings import TrainingSettings
from tokencritic.training.tokenizer_task import TokenizerObjective

TOKENIZER = TokenizerPreset(
    model=CIFAR_10,
    objective=TokenizerObjective(perceptual=0.1),  # where there are weights for it
    optimizer=OptimizerSettings(learning_rate=2e-3, betas=(0.9, 0.95), weight_decay=1e-4, ema=0.998),
    training=TrainingSettings(batch_size=64, minutes=25.0),
    flip=True,
)

GENERATOR = GeneratorPreset(
    # As small as that of Fashion-MNIST: an hour of two cores is 27 million tokens, twenty for each of its parameters.
    model=TransformerConfig(
        num_tokens=64,
        codebook_size=1024,
        num_classes=10,
        width=160,
        layers=4,
        heads=4,
        mlp_width=640,
        dropout=0.0,
        norm_first=True,
    ),
    objective=GeneratorObjective(label_smoothing=0.0),
    optimizer=OptimizerSettings(learning_rate=2e-3),
    training=TrainingSettings(batch_size=64, minutes=60.0),
)

CRITIC = CriticPreset(
    model=CriticConfig(**vars(GENERATOR.model)),
    objective=CriticObjective(),
    optimizer=OptimizerSettings(learning_rate=1e-3),  # the trunk has learned already
    training=TrainingSettings(batch_size=64, minutes=60.0),
)

CLASSIFIER = ClassifierPreset(
    model=ClassifierConfig(image_size=32, channels=3, num_classes=10, width=64),
    objective=ClassifierObjective(label_smoothing=0.05, shift=3),
    optimizer=OptimizerSettings(learning_rate=2e-3, betas=(0.9, 0.99)),
    training=TrainingSettings(batch_size=64, minutes=40.0),
    flip=True,
)
