"""The paper's models on ImageNet, 512 x 512: 32 x 32 tokens of 1024 codes.

The settings are those of `imagenet-256` with four times the tokens. The trunk's activations are recomputed in the
backward pass to save memory. The paper uses the tokenizer trained at 256 x 256, which is fully convolutional.

Expected, from the paper's tables (reference: training set; best FID of each)
  MaskGIT, 18 steps                          FID 8.48, IS 167.1, precision 0.78, recall 0.46
  critic, 18 steps                           FID 6.80, IS 182.1, precision 0.73, recall 0.50
  critic, classifier rejection, 1 of 5       FID 4.03, IS 305.2, precision 0.73, recall 0.50

Cost, estimated from FLOPs on A100s at 40 % of their bfloat16 peak, including recomputation; not measured
  generator          1,700 GFLOP per image, 2,900 GPU-hours
  critic             1,900 GFLOP per image, 3,200 GPU-hours
  inline critic      880 GFLOP per image, 50 GPU-hours for 20 epochs
"""

from dataclasses import replace

from tokencritic.models import critic, generator
from tokencritic.presets import imagenet_256
from tokencritic.tokenizers import vqgan

_TRAINING = replace(imagenet_256.PAPER_TRAINING, recompute_activations=True)

TOKENIZER = replace(imagenet_256.TOKENIZER, model=vqgan.PAPER_512)

GENERATOR = replace(imagenet_256.GENERATOR, model=generator.PAPER_512, training=_TRAINING)

CRITIC = replace(imagenet_256.CRITIC, model=critic.PAPER_512, training=_TRAINING)

INLINE_CRITIC = replace(imagenet_256.INLINE_CRITIC, model=replace(imagenet_256.INLINE_CRITIC.model, num_tokens=1024))

CLASSIFIER = replace(imagenet_256.CLASSIFIER, model=replace(imagenet_256.CLASSIFIER.model, image_size=512))
