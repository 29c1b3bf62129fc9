"""The network that tells reconstructions from images, patch by patch."""

from torch import Tensor, nn

from tokencritic.errors import InputError


class PatchDiscriminator(nn.Module):
    """Strided convolutions that end in one logit per patch, higher = more real.

    channels: of the images. filters: of the first layer, doubled at each further one up to eight times. levels: how often the
    resolution is halved; 2 suits images of about 32 pixels, 3 or 4 those of 256. There is no normalisation, so that the
    R1 penalty of an image depends on that image alone.
    """

    def __init__(self, channels: int, filters: int = 64, levels: int = 3) -> None:
        super().__init__()
        for name, value in (("channels", channels), ("filters", filters), ("levels", levels)):
            if value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1")
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
