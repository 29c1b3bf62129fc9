"""Fashion-MNIST, 28 x 28 grey, 10 classes: 10 x 10 tokens of 512 codes. Made for two CPU cores and an afternoon.

`recipes/fashion_mnist` trains the model inside the package with it: PSNR 27.9 dB on held-out images for the tokenizer
(12,000 steps, with LPIPS), loss 2.99 for the generator (5,600 steps), AUC within an image 0.655 for the critic (2,600 steps).
docs/training.md shows what two minutes a stage come to.
Generator: 1.4 million parameters, 0.9 GFLOP an image, forward and backward.
Critic: the generator's trunk; with the frozen generator's pass, 1.2 GFLOP an image.
Classifier: 0.8 million parameters, 0.13 GFLOP an image.
There is no dropout: it costs a CPU a fifth of its speed, and so short a run does not overfit.
"""

from tokencritic.models.classifier import ClassifierConfig
from tokencritic.models.critic import CriticConfig
from tokencritic.models.transformer import TransformerConfig
from tokencritic.presets.recipe import ClassifierPreset, CriticPreset, GeneratorPreset, TokenizerPreset
from tokencritic.tokenizers.compact import FASHION_MNIST
from tokencritic.training.classifier_task import ClassifierObjective
from tokencritic.training.critic_task import CriticObjective
from tokencritic.training.generator_task import GeneratorObjective
from tokencritic.training.optimizer import OptimizerSettings
from tokencritic.training.settings import TrainingSettings
from tokencritic.training.tokenizer_task import TokenizerObjective

TOKENIZER = TokenizerPreset(
    model=FASHION_MNIST,
    objective=TokenizerObjective(),
    optimizer=OptimizerSettings(learning_rate=2e-3, betas=(0.9, 0.95), weight_decay=1e-4, ema=0.998),
    training=TrainingSettings(batch_size=64, minutes=14.0),
)

GENERATOR = GeneratorPreset(
    # Wide and shallow, which a CPU likes: forward and backward, one core does 54 images/s at width 192, 71 to 77 at 160 and
    # 87 to 97 at 128, so narrower saves less than it costs; and 16 images of 18 steps are to take less than 2 s.
    # Normalised before each layer, which bears three times the learning rate: with 6 layers of width 128, after 150 steps of
    # 64 images, validation loss 3.73 at 3e-3 against 4.05 for either order at 1e-3.
    model=TransformerConfig(
        num_tokens=100,
        codebook_size=512,
        num_classes=10,
        width=160,
        layers=4,
        heads=4,
        mlp_width=640,
        dropout=0.0,
        norm_first=True,
    ),
    # Smoothing would spread a tenth of every draw at temperature 1 over all codes; few classes and short runs need none.
    objective=GeneratorObjective(label_smoothing=0.0),
    optimizer=OptimizerSettings(learning_rate=2e-3),
    training=TrainingSettings(batch_size=64, minutes=60.0),
)

CRITIC = CriticPreset(
    # Told the ratio, it learns at once what the sampler asks it: docs/training.md.
    model=CriticConfig(**vars(GENERATOR.model), told_ratio=True),
    objective=CriticObjective(),
    optimizer=OptimizerSettings(learning_rate=1.5e-3),  # the trunk has learned already
    training=TrainingSettings(batch_size=64, minutes=60.0),
)

CLASSIFIER = ClassifierPreset(
    model=ClassifierConfig(image_size=28, channels=1, num_classes=10, width=32),
    objective=ClassifierObjective(label_smoothing=0.05, shift=2),
    optimizer=OptimizerSettings(learning_rate=2e-3, betas=(0.9, 0.99)),
    training=TrainingSettings(batch_size=64, minutes=6.0),
)
