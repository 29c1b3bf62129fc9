"""Fashion-MNIST, 28 x 28 grey, 10 classes: 14 x 14 tokens of 128 codes. For two CPU cores and an afternoon.

Expected with `recipes/fashion_mnist/train`, which trains the bundled model:
  tokenizer       PSNR 28.8 dB on held-out images after 3,500 steps
  generator       validation loss 1.44 after 18,000 steps
  critic          AUC within an image 0.629 after 4,000 steps
  inline critic   AUC within an image 0.531 after 900 steps

Cost per image, forward and backward:
  generator       0.85 million parameters, 1.2 GFLOP
  critic          the generator's trunk; 1.6 GFLOP including the evaluation of the frozen generator
  inline critic   0.1 million parameters; 1.3 GFLOP including three evaluations of the frozen generator
  classifier      0.8 million parameters, 0.13 GFLOP

Dropout is 0. It would cost a fifth of the speed on a CPU, and runs this short do not overfit.
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
    # Wide and shallow, which is fast on a CPU. The target is 16 images at 27 NFE in less than 2 s on two cores.
    # Pre-norm allows three times the learning rate.
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
    # No label smoothing: it would spread a tenth of the probability at temperature 1 over all codes.
    objective=GeneratorObjective(label_smoothing=0.0),
    optimizer=OptimizerSettings(learning_rate=1.5e-3),
    training=TrainingSettings(batch_size=32, minutes=60.0),
)

CRITIC = Preset(
    # The ratio-conditioned loss trains the ranking within an image, which the sampler uses (docs/training.md).
    model=CriticConfig(**vars(GENERATOR.model), ratio_conditioned=True),
    objective=CriticObjective(),
    optimizer=GENERATOR.optimizer,
    training=GENERATOR.training,
)

INLINE_CRITIC = Preset(
    model=InlineCriticConfig(width=64, layers=2, heads=4, mlp_width=128),
    # Two fills at a sampler's temperatures resemble the images of a sampling run (docs/inline-critic.md).
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
