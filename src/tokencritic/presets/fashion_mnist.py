"""Fashion-MNIST, 28 x 28 grey, 10 classes: 14 x 14 tokens of 128 codes. Made for two CPU cores and an afternoon.

`recipes/fashion_mnist/train` trains the bundled model with it: PSNR 28.8 dB on held-out images for the tokenizer (3,500
steps), loss 1.44 for the generator (18,000 steps), AUC within an image 0.629 for the critic (4,000 steps) and 0.531 for the
inline critic (900 steps). docs/training.md shows what two minutes a stage come to.
Generator: 0.85 million parameters, 1.2 GFLOP an image, forward and backward.
Critic: the generator's trunk; with the frozen generator's evaluation, 1.6 GFLOP an image.
Inline critic: 0.1 million parameters; with the frozen generator's three evaluations, 1.3 GFLOP an image.
Classifier: 0.8 million parameters, 0.13 GFLOP an image.
There is no dropout: it costs a CPU a fifth of its speed, and so short a run does not overfit.
"""

from tokencritic.models.classifier import ClassifierConfig
from tokencritic.models.critic import CriticConfig
from tokencritic.models.inline_critic import InlineCriticConfig
from tokencritic.models.transformer import TransformerConfig
from tokencritic.tokenizers.compact import FASHION_MNIST
from tokencritic.training.image_tasks import ClassifierObjective, TokenizerObjective
from tokencritic.training.settings import ImagePreset, OptimizerSettings, Preset, TrainingSettings
from tokencritic.training.token_tasks import CriticObjective, GeneratorObjective, InlineCriticObjective

TOKENIZER = ImagePreset(
    model=FASHION_MNIST,
    objective=TokenizerObjective(),
    optimizer=OptimizerSettings(learning_rate=2e-3, betas=(0.9, 0.95), weight_decay=1e-4, ema=0.998),
    training=TrainingSettings(batch_size=64, minutes=14.0),
)

GENERATOR = Preset(
    # Wide and shallow, which a CPU likes; no wider, as 16 images at 27 NFE are to take less than 2 s on two cores.
    # Normalised before each layer, which bears three times the learning rate.
    model=TransformerConfig(
        num_tokens=196,
        codebook_size=128,
        num_classes=10,
        width=128,
        layers=4,
        heads=4,
        mlp_width=512,
        dropout=0.0,
        norm_first=True,
    ),
    # Smoothing would spread a tenth of every draw at temperature 1 over all codes; few classes and short runs need none.
    objective=GeneratorObjective(label_smoothing=0.0),
    optimizer=OptimizerSettings(learning_rate=1.5e-3),
    training=TrainingSettings(batch_size=32, minutes=60.0),
)

CRITIC = Preset(
    # The ratio-conditioned loss asks at once what the sampler asks: docs/training.md.
    model=CriticConfig(**vars(GENERATOR.model), ratio_conditioned=True),
    objective=CriticObjective(),
    optimizer=GENERATOR.optimizer,
    training=GENERATOR.training,
)

INLINE_CRITIC = Preset(
    model=InlineCriticConfig(width=64, layers=2, heads=4, mlp_width=128),
    # Two fills at a sampler's temperatures resemble what it sees while sampling: docs/inline-critic.md.
    objective=InlineCriticObjective(temperature=(1.0, 0.75), fills=2),
    optimizer=OptimizerSettings(learning_rate=3e-3, ema=0.995),
    training=TrainingSettings(batch_size=64, steps=900),
)

CLASSIFIER = ImagePreset(
    model=ClassifierConfig(image_size=28, channels=1, num_classes=10, width=32),
    objective=ClassifierObjective(label_smoothing=0.05, shift=2),
    optimizer=OptimizerSettings(learning_rate=2e-3, betas=(0.9, 0.99)),
    training=TrainingSettings(batch_size=64, minutes=6.0),
)
