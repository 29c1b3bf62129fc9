"""The paper's models on ImageNet, 256 x 256: 16 x 16 tokens of 1024 codes.

Generator and critic as in the paper: batches of 256 over all ranks, Adam (0.9, 0.96), dropout 0.1, 600 epochs, cosine masks;
what it does not name is MaskGIT's: weight decay 0.045, a learning rate of 1e-4 after 5,000 steps of warm-up, label smoothing
0.1. The paper's critic starts at random (`--start random`); by default it starts from the generator's trunk, with its heads.
The paper crops each image anew every time it is seen: tokenize with `--crop random --crops_per_image N`, N as the disk allows.

Expected, from the paper's tables (against the training set; each at its best FID):
  MaskGIT, 18 steps                      FID 6.56, IS 203.6, precision 0.79, recall 0.48
  with the critic, 18 steps              FID 4.69, IS 174.5, precision 0.76, recall 0.53
  with the critic, classifier, 1 of 5    FID 3.75, IS 287.0, precision 0.75, recall 0.55

Cost, estimated from FLOPs and not measured, on A100s at 40 % of their bfloat16 peak: generator 280 GFLOP an image, 470
GPU-hours; critic 320, 550 GPU-hours; tokenizer 1,100 GFLOP an image, 630 GPU-hours for 100 epochs in TF32. The tokenizer is
trained without a discriminator; the paper uses a published one (`token-critic import-maskgit`, `import-tokenizer`).
The inline critic, which the paper does not have: a head of 3 % of the generator's FLOPs, 20 epochs, 195 GFLOP an image for two
generator evaluations and the head, 11 GPU-hours.
The classifier is a small one for rejection by the data set's own classes; the paper's is a ResNet-50.
"""

from dataclasses import replace

from tokencritic.models import critic, generator
from tokencritic.models.classifier import ClassifierConfig
from tokencritic.models.inline_critic import InlineCriticConfig
from tokencritic.tokenizers import vqgan
from tokencritic.training.image_tasks import ClassifierObjective, TokenizerObjective
from tokencritic.training.settings import ImagePreset, OptimizerSettings, Preset, TrainingSettings
from tokencritic.training.token_tasks import CriticObjective, GeneratorObjective, InlineCriticObjective

IMAGES, BATCH = 1_281_167, 256
STEPS = 600 * IMAGES // BATCH  # not `epochs`: token arrays may hold several crops of each image

PAPER_OPTIMIZER = OptimizerSettings(learning_rate=1e-4, warmup=5000 / STEPS, schedule="constant", ema=0.9999)
_LONG = TrainingSettings(batch_size=BATCH, held_out=0.002, validate_seconds=1800, checkpoint_seconds=900)
PAPER_TRAINING = replace(_LONG, steps=STEPS, precision="bfloat16", log_every=100, keep_every=250_000)

TOKENIZER = ImagePreset(
    model=vqgan.PAPER_256,
    objective=TokenizerObjective(absolute=0.0, commitment=0.25, perceptual=0.1),
    optimizer=OptimizerSettings(learning_rate=1e-4, betas=(0.9, 0.99), weight_decay=0.0, warmup=0.01),
    training=replace(_LONG, epochs=100),
    crop="random",
    flip=True,
)

GENERATOR = Preset(generator.PAPER_256, GeneratorObjective(label_smoothing=0.1), PAPER_OPTIMIZER, PAPER_TRAINING)

CRITIC = Preset(critic.PAPER_256, CriticObjective(), PAPER_OPTIMIZER, PAPER_TRAINING)

INLINE_CRITIC = Preset(
    InlineCriticConfig(),
    InlineCriticObjective(),
    OptimizerSettings(learning_rate=1e-3, ema=0.9999),
    replace(PAPER_TRAINING, steps=20 * IMAGES // BATCH, keep_every=0),
)

CLASSIFIER = ImagePreset(
    model=ClassifierConfig(image_size=256, channels=3, num_classes=1000, width=64, blocks=3),
    objective=ClassifierObjective(label_smoothing=0.1),
    optimizer=OptimizerSettings(learning_rate=1e-3, betas=(0.9, 0.99), ema=0.9999),
    training=replace(_LONG, epochs=90, precision="bfloat16"),
    crop="random",
    flip=True,
)
