"""The estimated cost of a training run: FLOPs, memory of each rank and GPU-hours. The estimate needs no GPU."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from tokencritic.contracts import MaskedGenerator, Trunk
from tokencritic.training.settings import TrainingSettings
from tokencritic.training.task import Task

# Peaks of dense matrix products that the vendors state, in 10^12 FLOP/s: (bfloat16, TF32).
GPUS = {"A100": (312, 156), "H100 SXM": (989, 495), "L40S": (362, 183), "RTX 4090": (165, 83)}
UTILISATION = 0.4  # the share of the peak that training is assumed to reach
# The numbers of layers at which the memory of a trunk is measured. Both are odd, like those of a U-ViT. Both include
# its first skip connection, which keeps more than the others in bfloat16.
_MEASURED = 3, 5
_STATE_COPIES = 5  # float32 values per trained parameter: weight, gradient, two moments, average


@dataclass(frozen=True)
class Estimate:
    """The cost of a training run.

    parameters: the number of trained parameters.
    frozen: the number of parameters that are only evaluated.
    flops: FLOPs of a training step per example.
    activations: bytes per example that autograd keeps for the backward pass.
    casts: bytes of the bfloat16 copies of weights.
    block: bytes of the weights of the largest block, which FSDP gathers.
    precision: the precision of the run.
    """

    parameters: int
    frozen: int
    flops: int
    activations: int
    casts: int
    block: int
    precision: str

    def memory(self, examples: int, ranks: int = 1, distribution: str = "ddp") -> int:
        """Return the bytes of one rank, without temporary buffers and torch's own memory.

        examples: the number of examples that the rank processes in parallel.
        ranks: the number of ranks.
        distribution: "ddp" or "fsdp".
        """
        state = 4 * _STATE_COPIES * self.parameters
        if ranks > 1:  # DDP copies the gradients to buckets; FSDP gathers two blocks at a time
            state = state // ranks + 2 * self.block if distribution == "fsdp" else state + 4 * self.parameters
        return state + 4 * self.frozen + self.casts + examples * self.activations

    def hours(self, examples: float, gpu: str) -> float:
        """Return the GPU-hours of a number of examples, at `UTILISATION` of the GPU's peak.

        examples: the number of examples of the whole run.
        gpu: a key of `GPUS`.
        """
        half, single = GPUS[gpu]
        peak = half if self.precision == "bfloat16" else single
        return examples * self.flops / (UTILISATION * peak * 1e12) / 3600


def estimate(task: Task, settings: TrainingSettings) -> Estimate:
    """Return the cost of a task, measured on the CPU with one and with two examples.

    This function moves the task's networks to the meta device.
    """
    _as_on_a_gpu(task)
    one, two = (_saved_bytes(task, settings, examples) for examples in (1, 2))
    trained = {id(parameter) for parameter in task.model.parameters() if parameter.requires_grad}
    total = {id(parameter): parameter.numel() for part in task.parts for parameter in part.parameters()}
    parameters = sum(count for name, count in total.items() if name in trained)
    trunks = [module for module in task.model.modules() if isinstance(module, Trunk)]
    blocks = [sum(p.numel() for p in block.parameters()) for trunk in trunks for block in trunk.blocks]
    casts = max(0, 2 * one - two) if settings.precision == "bfloat16" else 0
    flops = step_flops(task, settings)
    found = parameters, sum(total.values()) - parameters, flops, two - one, casts, 4 * max(blocks, default=0)
    return Estimate(*found, settings.precision)


def _saved_bytes(task: Task, settings: TrainingSettings, examples: int) -> int:
    """Return the bytes that autograd keeps for the backward pass, without the weights.

    With `recompute_activations`, autograd keeps the inputs of all blocks, and the activations of one block at a time.
    Each layer adds the same amount, so the result is extrapolated from two small numbers of layers.
    """
    trunk = next((module for module in task.model.modules() if isinstance(module, Trunk)), None)
    if trunk is None:
        return _saved(task, settings, examples, [])[0]
    # A frozen generator saves nothing for the backward pass, so it is shortened too.
    trunks = [module for part in task.parts for module in part.modules() if isinstance(module, Trunk)]

    def measured(layers: int) -> list[int]:
        """Return `_saved` of trunks with at most this many layers."""
        whole, trunk.recompute_activations = [one.blocks for one in trunks], False
        for one in trunks:
            one.blocks = nn.ModuleList(one.blocks[index] for index in one.kept_blocks(min(layers, len(one.blocks))))
        try:
            return _saved(task, settings, examples, list(trunk.blocks))
        finally:
            for one, blocks in zip(trunks, whole, strict=True):
                one.blocks = blocks

    layers, few, more = len(trunk.blocks), *_MEASURED
    if layers <= more:
        found = measured(layers)
    else:
        pairs = zip(measured(few), measured(more), strict=True)
        found = [first + (second - first) * (layers - few) // (more - few) for first, second in pairs]
    everything, outside, inside = found
    return outside + inside // layers if settings.recompute_activations else everything


def _saved(task: Task, settings: TrainingSettings, examples: int, blocks: list[nn.Module]) -> list[int]:
    """Return the bytes kept in total, outside the blocks including their inputs, and inside the blocks."""
    weights = {tensor.untyped_storage().data_ptr() for part in task.parts for tensor in part.parameters()}
    kept: dict[int, Any] = {}
    entered: dict[int, Any] = {}
    inside: dict[int, Any] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            (inside if depth else kept)[storage.data_ptr()] = storage
        return tensor

    depth: list[nn.Module] = []

    def enter(block: nn.Module, given: tuple[Any, ...]) -> None:
        depth.append(block)
        entered[given[0].untyped_storage().data_ptr()] = given[0].untyped_storage()

    hooks = [block.register_forward_pre_hook(enter) for block in blocks]
    hooks += [block.register_forward_hook(lambda *_: depth.clear()) for block in blocks]
    half = settings.precision == "bfloat16"
    with saved_tensors_hooks(pack, lambda tensor: tensor), _autocast(half), _FusedAttention():
        loss = task.loss(task.model, torch.arange(examples), 0)
    for hook in hooks:
        hook.remove()
    sizes = [sum(storage.nbytes() for storage in some.values()) for some in (kept | inside, kept | entered, inside)]
    del loss  # the loss keeps the storages in memory while they are measured
    return sizes


class _FusedAttention(TorchFunctionMode):
    """A mode in which attention has no dropout, so that the CPU uses a fused kernel as a GPU does.

    Fused kernels of a GPU support dropout, those of the CPU do not. Other kernels keep the weights of all pairs of
    tokens. For 1,024 tokens these are several times as large as everything else.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            options["dropout_p"] = 0.0
        return func(*args, **options)


def _autocast(half: bool) -> Any:
    return torch.autocast("cpu", torch.bfloat16) if half else nullcontext()


def step_flops(task: Task, settings: TrainingSettings) -> int:
    """Count the FLOPs of a training step on one example: forward, backward, and any recomputation.

    This function moves the task's networks to the meta device, where nothing is computed.
    """
    _as_on_a_gpu(task)
    for trunk in (module for module in task.model.modules() if isinstance(module, Trunk)):
        trunk.recompute_activations = settings.recompute_activations
    task.to(torch.device("meta"))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        task.loss(task.model, torch.arange(1), 0).values.sum().backward()
    return counter.get_total_flops()


def _as_on_a_gpu(task: Task) -> None:
    """Set training mode, and let generators evaluate all positions, so that every mask has the same cost."""
    for part in task.parts:
        if isinstance(part, MaskedGenerator):
            part.fixed_shapes = True
    task.model.train()


def report(found: Estimate, settings: TrainingSettings, ranks: int, steps: float | None) -> list[str]:
    """Return the estimate as lines of text.

    steps: the number of steps; None for a run with a time budget.
    """
    share = max(1, settings.batch_size // (ranks * settings.accumulation))
    lines = [
        f"parameters: {found.parameters / 1e6:.1f} million trained, {found.frozen / 1e6:.1f} million frozen",
        f"FLOPs: {found.flops / 1e9:.1f} GFLOP an example, {found.flops * settings.batch_size / 1e12:.2f} TFLOP a step of "
        f"{settings.batch_size}",
        f"activations: {found.activations / 2**20:.1f} MiB an example, {share} at a time on each rank",
    ]
    for how in ("ddp", "fsdp") if ranks > 1 else ("ddp",):
        chosen = " (chosen)" if ranks > 1 and how == settings.distribution else ""
        size = found.memory(share, ranks, how) / 2**30
        lines.append(f"memory of each of {ranks} ranks, {how}{chosen}: {size:.2f} GiB and torch's own buffers")
    if steps is None:
        return [*lines, "hours: the run has a budget of time"]
    peak = "bfloat16" if found.precision == "bfloat16" else "TF32"
    for gpu in GPUS:
        hours = found.hours(steps * settings.batch_size, gpu)
        whole = f"{hours:.1f} GPU-hours, {hours / ranks:.1f} hours on {ranks}"
        lines.append(f"{gpu}, estimated at {UTILISATION:.0%} of its {peak} peak: {whole}")
    return lines
