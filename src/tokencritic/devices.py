"""The device that networks run on: which there are, which one a command takes, and how it is made ready."""

from typing import Any

import torch
from torch import nn

from tokencritic.contracts import MaskedGenerator, Trunk
from tokencritic.errors import InputError
from tokencritic.files import reason_of
from tokencritic.launch import read_launch

AUTO = "auto"


def choose_device(name: str = AUTO, training: bool = False) -> str:
    """The name of a device that is there: as given, or for "auto" cuda, else mps, else cpu.

    training: leave out mps, as the masks of training are counted in float64, which mps does not have.

    Matrix products in float32 use TF32 on a GPU that has it, from here on.
    """
    if name == AUTO:
        mps = torch.backends.mps.is_available() and not training
        name = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    if training and name.startswith("mps"):
        raise InputError(f"--device is {name}, which has no float64, and training needs it; choose auto, cpu or cuda")
    # Each process of torchrun tries its own GPU; all trying the first one would leave their contexts in its memory.
    tried = f"cuda:{read_launch().local_rank}" if name == "cuda" else name
    try:
        if torch.empty(0, device=tried).is_meta:
            raise InputError("--device is meta, whose tensors hold no values; choose auto, cpu, cuda or mps")
        if name == "cuda":
            torch.cuda.set_device(tried)  # from here on the plain name means it too
    except (RuntimeError, AssertionError) as error:
        reason = reason_of(error).partition(". ")[0]  # torch goes on with all that the operator knows
        raise InputError(f"--device is {name}, which cannot be used here: {reason}") from error
    if name.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
    return name


def describe_device(name: str) -> str:
    """One line on a device that is there: its name and, for a GPU, the product and the memory that is free."""
    if not name.startswith("cuda"):
        return name
    free, total = (size / 2**30 for size in torch.cuda.mem_get_info(name))
    return f"{name}, {torch.cuda.get_device_name(name)}, {free:.1f} of {total:.1f} GiB free"


def compile_blocks(*networks: nn.Module, **options: Any) -> None:
    """Compile the blocks of every trunk, in place. options: of `torch.compile`.

    All blocks of a trunk are one graph, in place of one for each depth. Generators evaluate fixed shapes from here on, as
    another number of hidden tokens at each step would be another graph.
    """
    for network in networks:
        if isinstance(network, MaskedGenerator):
            network.fixed_shapes = True
        for trunk in network.modules():
            for block in trunk.blocks if isinstance(trunk, Trunk) else ():
                block.compile(**options)
