"""An independent implementation of the FID Inception, with torchvision's names and without folded batch norms."""

import torch
import torch.nn.functional as F
from torch import Tensor

WIDTHS_C = {"Mixed_6b": 128, "Mixed_6c": 160, "Mixed_6d": 160, "Mixed_6e": 192}


def random_state(seed: int = 0) -> dict[str, Tensor]:
    """Random weights under torchvision's names, scaled so that activations neither vanish nor explode."""
    rng = torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = {}

    def add(name: str, inputs: int, outputs: int, height: int, width: int) -> None:
        fan = inputs * height * width
        weight = torch.randn(outputs, inputs, height, width, generator=rng) * (2 / fan) ** 0.5
        state[f"{name}.conv.weight"] = weight
        state[f"{name}.bn.weight"] = torch.ones(outputs)
        state[f"{name}.bn.bias"] = torch.randn(outputs, generator=rng) * 0.2
        state[f"{name}.bn.running_mean"] = torch.randn(outputs, generator=rng) * 0.2
        state[f"{name}.bn.running_var"] = torch.rand(outputs, generator=rng) + 0.5
        state[f"{name}.bn.num_batches_tracked"] = torch.tensor(0)

    for name, *sizes in layers():
        add(name, *sizes)
    state["fc.weight"] = torch.randn(1008, 2048, generator=rng) * 0.02
    state["fc.bias"] = torch.randn(1008, generator=rng)
    return state


def layers() -> list[tuple[str, int, int, int, int]]:
    """Name, inputs, outputs, kernel height and width of every convolution."""
    found = [
        ("Conv2d_1a_3x3", 3, 32, 3, 3),
        ("Conv2d_2a_3x3", 32, 32, 3, 3),
        ("Conv2d_2b_3x3", 32, 64, 3, 3),
        ("Conv2d_3b_1x1", 64, 80, 1, 1),
        ("Conv2d_4a_3x3", 80, 192, 3, 3),
    ]
    for block, inputs, pooled in (("Mixed_5b", 192, 32), ("Mixed_5c", 256, 64), ("Mixed_5d", 288, 64)):
        found += [
            (f"{block}.branch1x1", inputs, 64, 1, 1),
            (f"{block}.branch5x5_1", inputs, 48, 1, 1),
            (f"{block}.branch5x5_2", 48, 64, 5, 5),
            (f"{block}.branch3x3dbl_1", inputs, 64, 1, 1),
            (f"{block}.branch3x3dbl_2", 64, 96, 3, 3),
            (f"{block}.branch3x3dbl_3", 96, 96, 3, 3),
            (f"{block}.branch_pool", inputs, pooled, 1, 1),
        ]
    found += [
        ("Mixed_6a.branch3x3", 288, 384, 3, 3),
        ("Mixed_6a.branch3x3dbl_1", 288, 64, 1, 1),
        ("Mixed_6a.branch3x3dbl_2", 64, 96, 3, 3),
        ("Mixed_6a.branch3x3dbl_3", 96, 96, 3, 3),
    ]
    for block, width in WIDTHS_C.items():
        found += [
            (f"{block}.branch1x1", 768, 192, 1, 1),
            (f"{block}.branch7x7_1", 768, width, 1, 1),
            (f"{block}.branch7x7_2", width, width, 1, 7),
            (f"{block}.branch7x7_3", width, 192, 7, 1),
            (f"{block}.branch7x7dbl_1", 768, width, 1, 1),
            (f"{block}.branch7x7dbl_2", width, width, 7, 1),
            (f"{block}.branch7x7dbl_3", width, width, 1, 7),
            (f"{block}.branch7x7dbl_4", width, width, 7, 1),
            (f"{block}.branch7x7dbl_5", width, 192, 1, 7),
            (f"{block}.branch_pool", 768, 192, 1, 1),
        ]
    found += [
        ("Mixed_7a.branch3x3_1", 768, 192, 1, 1),
        ("Mixed_7a.branch3x3_2", 192, 320, 3, 3),
        ("Mixed_7a.branch7x7x3_1", 768, 192, 1, 1),
        ("Mixed_7a.branch7x7x3_2", 192, 192, 1, 7),
        ("Mixed_7a.branch7x7x3_3", 192, 192, 7, 1),
        ("Mixed_7a.branch7x7x3_4", 192, 192, 3, 3),
    ]
    for block, inputs in (("Mixed_7b", 1280), ("Mixed_7c", 2048)):
        found += [
            (f"{block}.branch1x1", inputs, 320, 1, 1),
            (f"{block}.branch3x3_1", inputs, 384, 1, 1),
            (f"{block}.branch3x3_2a", 384, 384, 1, 3),
            (f"{block}.branch3x3_2b", 384, 384, 3, 1),
            (f"{block}.branch3x3dbl_1", inputs, 448, 1, 1),
            (f"{block}.branch3x3dbl_2", 448, 384, 3, 3),
            (f"{block}.branch3x3dbl_3a", 384, 384, 1, 3),
            (f"{block}.branch3x3dbl_3b", 384, 384, 3, 1),
            (f"{block}.branch_pool", inputs, 192, 1, 1),
        ]
    return found


def forward(state: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
    """x: (b, 3, 299, 299) in [-1, 1). Returns the features at every depth and the logits without bias."""

    def conv(name: str, x: Tensor, stride: int = 1, padding: int | tuple[int, int] = 0) -> Tensor:
        bn = f"{name}.bn."
        x = F.conv2d(x, state[f"{name}.conv.weight"], None, stride, padding)
        moments = state[bn + "running_mean"], state[bn + "running_var"]
        return F.relu(F.batch_norm(x, *moments, state[bn + "weight"], state[bn + "bias"], False, 0.1, 0.001))

    def average(x: Tensor) -> Tensor:
        there = F.avg_pool2d(torch.ones_like(x), 3, 1, 1)  # the share of each window that is not padding
        return F.avg_pool2d(x, 3, 1, 1) / there

    found: dict[str, Tensor] = {}
    x = conv("Conv2d_2b_3x3", conv("Conv2d_2a_3x3", conv("Conv2d_1a_3x3", x, 2)), padding=1)
    x = F.max_pool2d(x, 3, 2)
    found["64"] = x.mean((2, 3))
    x = F.max_pool2d(conv("Conv2d_4a_3x3", conv("Conv2d_3b_1x1", x)), 3, 2)
    found["192"] = x.mean((2, 3))
    for b in ("Mixed_5b", "Mixed_5c", "Mixed_5d"):
        five = conv(f"{b}.branch5x5_2", conv(f"{b}.branch5x5_1", x), padding=2)
        three = conv(f"{b}.branch3x3dbl_2", conv(f"{b}.branch3x3dbl_1", x), padding=1)
        three = conv(f"{b}.branch3x3dbl_3", three, padding=1)
        x = torch.cat([conv(f"{b}.branch1x1", x), five, three, conv(f"{b}.branch_pool", average(x))], 1)
    b = "Mixed_6a"
    three = conv(f"{b}.branch3x3dbl_3", conv(f"{b}.branch3x3dbl_2", conv(f"{b}.branch3x3dbl_1", x), padding=1), 2)
    x = torch.cat([conv(f"{b}.branch3x3", x, 2), three, F.max_pool2d(x, 3, 2)], 1)
    flat, tall = (0, 3), (3, 0)
    for b in WIDTHS_C:
        seven = conv(f"{b}.branch7x7_2", conv(f"{b}.branch7x7_1", x), padding=flat)
        seven = conv(f"{b}.branch7x7_3", seven, padding=tall)
        double = conv(f"{b}.branch7x7dbl_1", x)
        for number, padding in ((2, tall), (3, flat), (4, tall), (5, flat)):
            double = conv(f"{b}.branch7x7dbl_{number}", double, padding=padding)
        one = conv(f"{b}.branch1x1", x)
        x = torch.cat([one, seven, double, conv(f"{b}.branch_pool", average(x))], 1)
    found["768"] = x.mean((2, 3))
    b = "Mixed_7a"
    seven = conv(f"{b}.branch7x7x3_2", conv(f"{b}.branch7x7x3_1", x), padding=flat)
    seven = conv(f"{b}.branch7x7x3_4", conv(f"{b}.branch7x7x3_3", seven, padding=tall), 2)
    x = torch.cat([conv(f"{b}.branch3x3_2", conv(f"{b}.branch3x3_1", x), 2), seven, F.max_pool2d(x, 3, 2)], 1)
    for b in ("Mixed_7b", "Mixed_7c"):
        three = conv(f"{b}.branch3x3_1", x)
        three = [conv(f"{b}.branch3x3_2a", three, padding=(0, 1)), conv(f"{b}.branch3x3_2b", three, padding=(1, 0))]
        double = conv(f"{b}.branch3x3dbl_2", conv(f"{b}.branch3x3dbl_1", x), padding=1)
        double = [
            conv(f"{b}.branch3x3dbl_3a", double, padding=(0, 1)),
            conv(f"{b}.branch3x3dbl_3b", double, padding=(1, 0)),
        ]
        pooled = average(x) if b == "Mixed_7b" else F.max_pool2d(x, 3, 1, 1)
        x = torch.cat([conv(f"{b}.branch1x1", x), *three, *double, conv(f"{b}.branch_pool", pooled)], 1)
    found["2048"] = x.mean((2, 3))
    found["logits"] = found["2048"] @ state["fc.weight"].T
    return found
