"""What tokenizers learn: the VQGAN objective, term by term, and the discriminator. Values are unreduced."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.errors import check_at_least


def commitment_error(latents: Tensor, quantized: Tensor) -> Tensor:
    """(b, d, gh, gw) both -> the same: draws the encoder to the codes it chose and leaves the codes alone."""
    return (latents - quantized.detach()).square()


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


def fooling_loss(fake_logits: Tensor) -> Tensor:
    """The tokenizer's non-saturating adversarial loss. Any shape of logits, higher = more real; the same shape back."""
    return F.softplus(-fake_logits)


def discriminator_loss(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """The discriminator's logistic loss on pairs: softplus(-real) + softplus(fake), of the logits' common shape."""
    return F.softplus(-real_logits) + F.softplus(fake_logits)


def gradient_penalty(discriminator: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """R1: the squared length of the discriminator's gradient at real images. (b, c, h, w) -> (b,), differentiable.

    The gradient is that of the sum of an image's logits over its patches.
    """
    images = images.detach().requires_grad_()
    with torch.enable_grad():
        logits = discriminator(images)
        (gradient,) = torch.autograd.grad(logits.sum(), images, create_graph=True)
    return gradient.square().flatten(1).sum(1)


class PatchDiscriminator(nn.Module):
    """Strided convolutions that end in one logit per patch, higher = more real.

    channels: of the images. filters: of the first layer, doubled at each further one up to eight times. levels: how often the
    resolution is halved; 2 suits images of about 32 pixels, 3 or 4 those of 256. There is no normalisation, so that the
    R1 penalty of an image depends on that image alone.
    """

    def __init__(self, channels: int, filters: int = 64, levels: int = 3) -> None:
        super().__init__()
        check_at_least(1, channels=channels, filters=filters, levels=levels)
        layers: list[nn.Module] = []
        width = channels
        for level in range(levels):
            new = filters * min(2**level, 8)
            layers += [nn.Conv2d(width, new, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
            width = new
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(width, 1, 3, padding=1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """(b, c, h, w) about [0, 1] -> (b, h / 2^levels, w / 2^levels) logits."""
        return self.layers(2 * images - 1)[:, 0]
