"""Device selection, and compilation of networks."""

from typing import Any

import torch
from torch import nn

from tokencritic.contracts import MaskedGenerator, Trunk
from tokencritic.errors import InputError
from tokencritic.files import reason_of
from tokencritic.launch import read_launch

AUTO = "auto"


def choose_device(name: str = AUTO, training: bool = False) -> str:
    """Return the name of an available device: the given one, or for "auto" cuda, else mps, else cpu.

    training: exclude mps. Training counts masks in float64, which mps does not support.

    Raises InputError for a device that cannot be used. On a GPU, this function enables TF32 for float32 matrix
    products. Afterwards "cuda" is the GPU of this process.
    """
    if name == AUTO:
        mps = torch.backends.mps.is_available() and not training
        name = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    if training and name.startswith("mps"):
        raise InputError(f"--device is {name}, which has no float64, and training needs it; choose auto, cpu or cuda")
    # Each process of torchrun tries its own GPU. Otherwise all of them allocate memory on the first GPU.
    tried = f"cuda:{read_launch().local_rank}" if name == "cuda" else name
    try:
        if torch.empty(0, device=tried).is_meta:
            raise InputError("--device is meta, whose tensors hold no values; choose auto, cpu, cuda or mps")
        if name == "cuda":
            torch.cuda.set_device(tried)  # from now on "cuda" is this GPU
    except (RuntimeError, AssertionError) as error:
        reason = reason_of(error).partition(". ")[0]  # torch appends a long list of backends
        raise InputError(f"--device is {name}, which cannot be used here: {reason}") from error
    if name.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
    return name


def describe_device(name: str) -> str:
    """Return one line on an available device: its name and, for a GPU, its model and free memory."""
    if not name.startswith("cuda"):
        return name
    free, total = (size / 2**30 for size in torch.cuda.mem_get_info(name))
    return f"{name}, {torch.cuda.get_device_name(name)}, {free:.1f} of {total:.1f} GiB free"


def compile_blocks(*networks: nn.Module, **options: Any) -> None:
    """Compile the blocks of every trunk in place.

    All blocks of a trunk share one graph, instead of one graph per depth. Generators evaluate fixed shapes from then
    on, because every other number of hidden tokens needs another graph.

    options: arguments of `torch.compile`.
    """
    for network in networks:
        if isinstance(network, MaskedGenerator):
            network.fixed_shapes = True
        for trunk in network.modules():
            for block in trunk.blocks if isinstance(trunk, Trunk) else ():
                block.compile(**options)
