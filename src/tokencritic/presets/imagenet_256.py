"""The paper's models on ImageNet, 256 x 256: 16 x 16 tokens of 1024 codes.

Settings of generator and critic
  from the paper     batch size 256 over all ranks, Adam (0.9, 0.96), dropout 0.1, 600 epochs, cosine masks
  from MaskGIT       weight decay 0.045, learning rate 1e-4 after 5,000 steps of warm-up, label smoothing 0.1

Differences from the paper
  critic             starts from the generator's trunk with its heads; the paper's starts at random (`--start random`)
  crops              fixed when tokenizing; the paper crops in every epoch (use `--crop random --crops_per_image N`)
  tokenizer          trained without a discriminator; the paper uses a published one (`token-critic import maskgit`)
  classifier         a small one on the classes of the data set; the paper uses a ResNet-50
  inline critic      not in the paper; a head with 3 % of the generator's FLOPs

Expected, from the paper's tables (reference: training set; best FID of each)
  MaskGIT, 18 steps                          FID 6.56, IS 203.6, precision 0.79, recall 0.48
  critic, 18 steps                           FID 4.69, IS 174.5, precision 0.76, recall 0.53
  critic, classifier rejection, 1 of 5       FID 3.75, IS 287.0, precision 0.75, recall 0.55

Cost, estimated from FLOPs on A100s at 40 % of their peak (bfloat16; TF32 for the tokenizer); not measured
  generator          280 GFLOP per image, 480 GPU-hours
  critic             320 GFLOP per image, 550 GPU-hours
  tokenizer          1,100 GFLOP per image, 630 GPU-hours for 100 epochs
  inline critic      190 GFLOP per image, including two generator evaluations; 11 GPU-hours for 20 epochs
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
STEPS = 600 * IMAGES // BATCH  # steps instead of epochs, because token arrays may have several crops of each image

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
