"""The tasks on images: learning to tokenize, the VQGAN objective term by term, and to name the class of an image."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from tokencritic.data.transforms import ImageBatches
from tokencritic.errors import InputError, check_at_least
from tokencritic.image_forms import to_pil
from tokencritic.models.classifier import Classifier
from tokencritic.models.saved import with_weights
from tokencritic.pictures.grids import image_grid
from tokencritic.randomness import example_seeds, torch_rng
from tokencritic.tokenizers.quantizer import CodebookUpkeep, code_counts, perplexity, squared_distances
from tokencritic.tokenizers.tokenizer import Tokenizer, TokenizerOutput
from tokencritic.training.learner import make_optimizer, optimizer_tensors
from tokencritic.training.perceptual import Lpips
from tokencritic.training.settings import OptimizerSettings
from tokencritic.training.task import VALIDATION_BATCH, Loss, Task, named

_PENALTY_EVERY = 16  # steps
_SETTLED = 0.8  # of a run; after it no code is re-seeded, so that decoder and average can settle on the codebook


@dataclass(frozen=True)
class TokenizerObjective:
    """The weight of each term.

    absolute: of the absolute pixel error; that of the squared one is 1. commitment: draws latents to codes. entropy: sharp
    choices, even use.
    perceptual: LPIPS. perceptual_scale: how many times both images are enlarged for it, as it is blind to small ones.
    perceptual_after: the step at which it joins in; on small images it costs most of a step. adversarial: of the patch
    discriminator. adversarial_after: the step at which it joins in.
    gradient_penalty: R1, every 16th step. discriminator_filters, discriminator_levels: its size. discriminator_rate: its
    learning rate.
    """

    absolute: float = 0.2
    commitment: float = 0.025
    entropy: float = 0.0
    perceptual: float = 0.0
    perceptual_scale: int = 1
    perceptual_after: int = 0
    adversarial: float = 0.0
    adversarial_after: int = 1000
    gradient_penalty: float = 0.0
    discriminator_filters: int = 16
    discriminator_levels: int = 2
    discriminator_rate: float = 5e-4

    def __post_init__(self) -> None:
        check_at_least(1, perceptual_scale=self.perceptual_scale)


class PatchDiscriminator(nn.Module):
    """Strided convolutions that end in one logit per patch, higher = more real.

    channels: of the images. filters: of the first layer, doubled at each further one up to eight times. levels: how often the
    resolution is halved; 2 suits images of about 32 pixels, 3 or 4 those of 256. There is no normalisation, so that the
    R1 penalty of an image depends on that image alone.
    """

    def __init__(self, channels: int, filters: int = 64, levels: int = 3) -> None:
        super().__init__()
        check_at_least(1, channels=channels, filters=filters, levels=levels)
        widths = [channels, *(filters * min(2**level, 8) for level in range(levels))]
        self.layers = nn.Sequential()
        for old, new in pairwise(widths):
            self.layers.extend([nn.Conv2d(old, new, 4, stride=2, padding=1), nn.LeakyReLU(0.2)])
        last = widths[-1]
        self.layers.extend([nn.Conv2d(last, last, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(last, 1, 3, padding=1)])

    def forward(self, images: Tensor) -> Tensor:
        """(b, c, h, w) about [0, 1] -> (b, h / 2^levels, w / 2^levels) logits."""
        return self.layers(2 * images - 1)[:, 0]


def affinity_entropy(distances: Tensor, temperature: float = 0.01) -> Tensor:
    """How undecided each latent is between the codes, less how evenly the codes are used by all: small is good.

    distances: (m, k) squared distances of latents to codes. Returns (m,); its mean is MaskGIT's entropy loss, from -ln k to 0.
    """
    logs = F.log_softmax(-distances.float() / temperature, dim=1)
    shares = logs.exp()
    undecided = -(shares * logs).sum(1)
    use = shares.mean(0)
    # The clamp is for the gradient alone: 0 ln 0 is 0, but its slope is not a number.
    return undecided + (use * use.clamp(min=1e-20).log()).sum()


def gradient_penalty(discriminator: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """R1: the squared length of the discriminator's gradient at real images. (b, c, h, w) -> (b,), differentiable.

    The gradient is that of the sum of an image's logits over its patches.
    """
    images = images.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(discriminator(images).sum(), images, create_graph=True)
    return gradient.square().flatten(1).sum(1)


class TokenizerTask(Task):
    """A tokenizer learns to compress and restore images.

    images: (rows, step) -> (b, c, h, w) float in [0, 1]; a step of None gives each image without chance.
    perceptual: LPIPS, (b, c, h, w) twice -> (b,), if its weight is not 0.
    """

    name = "tokenizer"

    def __init__(
        self,
        model: Tokenizer,
        images: ImageBatches,
        objective: TokenizerObjective,
        perceptual: Lpips | None = None,
        seed: int = 0,
    ) -> None:
        self.images = images
        self.perceptual = perceptual if objective.perceptual else None
        model.quantizer.codebook.requires_grad_(False)  # moved by the upkeep, as the mean of the latents that chose it
        self.upkeep = CodebookUpkeep(model.quantizer)
        sizes = model.channels, objective.discriminator_filters, objective.discriminator_levels
        self.discriminator = PatchDiscriminator(*sizes) if objective.adversarial else None
        super().__init__(model, images, objective, seed, self.upkeep, self.discriminator, self.perceptual)
        # Of each part of this step: images, reconstructions, latents and tokens.
        self._seen: list[tuple[Tensor, ...]] = []

    def to(self, device: torch.device) -> None:
        super().to(device)
        if self.discriminator is not None:  # only now: an optimizer's state lies where the weights lie
            settings = OptimizerSettings(self.objective.discriminator_rate, betas=(0.5, 0.9), weight_decay=0.01)
            self.optimizer = make_optimizer(self.discriminator, settings)

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        assert step is not None  # validation has numbers of its own
        images = self._images(rows, step)
        out: TokenizerOutput = network(images)
        weights = self.objective
        squared = (out.reconstruction - images).square().flatten(1).mean(1)  # b
        absolute = (out.reconstruction - images).abs().flatten(1).mean(1)  # less blur than the squared error alone
        total = squared + weights.absolute * absolute
        if self.perceptual is not None and step >= weights.perceptual_after:
            pair = [out.reconstruction, images]
            if weights.perceptual_scale > 1:
                pair = [F.interpolate(side, scale_factor=weights.perceptual_scale, mode="bilinear") for side in pair]
            total = total + weights.perceptual * self.perceptual(*pair)
        commitment = (out.latents - out.quantized.detach()).square()  # moves the encoder, and leaves the codes alone
        total = total + weights.commitment * commitment.flatten(1).mean(1)
        if weights.entropy:
            latents = out.latents.permute(0, 2, 3, 1).flatten(0, 2)
            distances = squared_distances(latents, self.model.quantizer.codebook)
            total = total + weights.entropy * affinity_entropy(distances).view(len(images), -1).mean(1)
        if self.discriminator is not None and step >= self.objective.adversarial_after:
            self.discriminator.requires_grad_(False)
            fooling = F.softplus(-self.discriminator(out.reconstruction)).flatten(1).mean(1)  # b
            self.discriminator.requires_grad_(True)
            total = total + weights.adversarial * fooling
        # In float32, whatever the precision of the step: what is done with them is not part of it.
        self._seen.append((images, out.reconstruction.detach().float(), out.latents.detach().float(), out.tokens))
        return Loss(total, {"squared_error": squared.mean(), "perplexity": perplexity(self.upkeep.counts)})

    def after_step(self, step: int, progress: float) -> None:
        images, reconstructions, latents, tokens = (torch.cat(parts) for parts in zip(*self._seen, strict=True))
        self._seen.clear()
        rng = torch_rng(int(example_seeds(self.seed, step, torch.tensor([0]))))
        self.upkeep.update(self.model.quantizer, latents, tokens, rng, reseed=progress < _SETTLED)
        discriminator = self.discriminator
        if discriminator is None or step < self.objective.adversarial_after // 2:  # it learns, then is heard
            return
        loss = (F.softplus(-discriminator(images)) + F.softplus(discriminator(reconstructions))).mean()
        if self.objective.gradient_penalty and step % _PENALTY_EVERY == 0:
            penalty = gradient_penalty(discriminator, images).mean()
            loss = loss + _PENALTY_EVERY * self.objective.gradient_penalty * penalty
        loss.backward()
        if dist.is_initialized():
            for parameter in discriminator.parameters():
                assert parameter.grad is not None
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def validate(self, network: nn.Module, rows: Tensor) -> dict[str, float]:
        squared, counts = [], torch.zeros(self.model.codebook_size)
        for part in rows.split(VALIDATION_BATCH):
            images = self._images(part, None)
            out: TokenizerOutput = network(images)
            squared.append((out.reconstruction.clamp(0, 1) - images).square().flatten(1).mean(1))
            counts += code_counts(out.tokens, self.model.codebook_size).cpu()
        error = torch.cat(squared)
        psnr = float(-10 * error.clamp(min=1e-10).log10().mean())
        return {"loss": float(error.mean()), "psnr": psnr, "perplexity": float(perplexity(counts))}

    def pictures(self, network: nn.Module) -> dict[str, Image.Image]:
        """Originals, each row of them above its reconstructions."""
        images = self._images(torch.arange(min(16, self.num_rows)), None)
        pairs = zip(images.split(8), network(images).reconstruction.clamp(0, 1).split(8), strict=True)
        arrays = torch.cat([image for pair in pairs for image in pair]).permute(0, 2, 3, 1).cpu().numpy()
        return {"reconstructions": image_grid([to_pil(array) for array in arrays], columns=8)}

    def facts(self) -> dict[str, Any]:
        network = self.perceptual
        return super().facts() | {"perceptual": None if network is None else with_weights(hashlib.sha256(), network)}

    def state_dict(self) -> dict[str, Tensor]:
        groups = {"upkeep": self.upkeep.state_dict()}
        if self.discriminator is not None:
            groups["discriminator"] = self.discriminator.state_dict()
            groups["optimizer"] = optimizer_tensors(self.discriminator, self.optimizer)
        return named(**groups)

    def _images(self, rows: Tensor, step: int | None) -> Tensor:
        return self.images(rows, step).to(self.upkeep.counts.device)


@dataclass(frozen=True)
class ClassifierObjective:
    """What the classifier's loss is made of.

    label_smoothing: the share of each target that is spread evenly over all classes.
    shift: each image is moved by up to so many pixels along each side, at random.
    """

    label_smoothing: float = 0.1
    shift: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise InputError(f"label_smoothing is {self.label_smoothing}; it must lie in [0, 1)")
        check_at_least(0, shift=self.shift)


class ClassifierTask(Task):
    """A classifier learns to name the classes of images. seed: of the shifts."""

    name = "classifier"

    def __init__(self, model: Classifier, images: ImageBatches, objective: ClassifierObjective, seed: int = 0) -> None:
        classes, size = len(images.source.class_names), model.config.image_size
        if model.num_classes != classes:
            raise InputError(f"the classifier's num_classes is {model.num_classes} but the images' is {classes}")
        if objective.shift >= size:
            raise InputError(f"shift is {objective.shift}; it must be below the image's {size} pixels")
        super().__init__(model, images, objective, seed)
        self.images = images

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        device = self.model.device
        images, labels = (tensor.to(device) for tensor in self.images.labelled(rows, step))
        if self.objective.shift and step is not None:
            images = shifted(images, example_seeds(self.seed, step, rows).to(device), self.objective.shift)
        logits, smoothing = network(images).float(), self.objective.label_smoothing
        values = F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
        return Loss(values, {"accuracy": logits.argmax(1) == labels})

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"class_names": list(self.images.source.class_names)}


def shifted(images: Tensor, seeds: Tensor, most: int) -> Tensor:
    """Each image moved by up to `most` pixels along each side, black coming in. images: (b, c, h, w); seeds: (b,) int64."""
    (height, width), choices = images.shape[2:], 2 * most + 1
    down, right = seeds % choices, seeds // choices % choices  # a seed is a hash: its remainders are as good as draws
    padded = F.pad(images, (most,) * 4).permute(0, 2, 3, 1)
    places = zip(padded, down.tolist(), right.tolist(), strict=True)
    return torch.stack([image[y : y + height, x : x + width] for image, y, x in places]).permute(0, 3, 1, 2)
