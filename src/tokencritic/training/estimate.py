"""What a training run will cost, before it is started: FLOPs, memory of each rank, hours on GPUs that are not here."""

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

# Dense products, 10^12 FLOP/s as the makers state them: (bfloat16, TF32).
GPUS = {"A100": (312, 156), "H100 SXM": (989, 495), "L40S": (362, 183), "RTX 4090": (165, 83)}
UTILISATION = 0.4  # the share of that peak which training is assumed to reach
# Layers of a trunk whose memory is measured. Both are odd, as a U-ViT has them; in bfloat16 its first skip connection
# keeps more than the others.
_MEASURED = 3, 5
_STATE_COPIES = 5  # float32 numbers for each trained one: weight, gradient, two moments, average


@dataclass(frozen=True)
class Estimate:
    """parameters, frozen: trained numbers, and those of networks that are only evaluated. flops: of one example's step.

    activations: bytes that one example keeps for the backward pass. casts: bytes of weights in bfloat16, kept beside them.
    block: bytes of the weights of the largest block, which FSDP gathers. precision: of the run.
    """

    parameters: int
    frozen: int
    flops: int
    activations: int
    casts: int
    block: int
    precision: str

    def memory(self, examples: int, ranks: int = 1, distribution: str = "ddp") -> int:
        """Bytes of one rank with so many examples at a time. Temporary buffers and torch's own are not in it."""
        state = 4 * _STATE_COPIES * self.parameters
        if ranks > 1:  # DDP has the gradients a second time, in buckets; FSDP two blocks gathered at a time
            state = state // ranks + 2 * self.block if distribution == "fsdp" else state + 4 * self.parameters
        return state + 4 * self.frozen + self.casts + examples * self.activations

    def hours(self, examples: float, gpu: str) -> float:
        """GPU-hours for so many examples, at `UTILISATION` of the GPU's peak."""
        half, single = GPUS[gpu]
        peak = half if self.precision == "bfloat16" else single
        return examples * self.flops / (UTILISATION * peak * 1e12) / 3600


def estimate(task: Task, settings: TrainingSettings) -> Estimate:
    """Measure one and two examples of the task on the CPU. The task's networks are on the meta device afterwards."""
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
    """What autograd keeps of the forward pass, in bytes; the weights themselves do not count.

    With `recompute_activations` the inputs of the blocks are kept, and what one block keeps is made anew at a time.
    Each layer keeps the same, so that two small numbers of layers tell what all layers keep.
    """
    trunk = next((module for module in task.model.modules() if isinstance(module, Trunk)), None)
    if trunk is None:
        return _saved(task, settings, examples, [])[0]
    # A frozen generator keeps nothing, whatever its depth.
    trunks = [module for part in task.parts for module in part.modules() if isinstance(module, Trunk)]

    def measured(layers: int) -> list[int]:
        """Return `_saved` of trunks with so many layers."""
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
    """Return bytes that are kept: all of them; outside of the blocks, with the blocks' inputs; and inside of them."""
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
    del loss  # until here it kept the storages apart
    return sizes


class _FusedAttention(TorchFunctionMode):
    """Attention without dropout, for which the CPU has a fused kernel; those of a GPU also have dropout.

    Other kernels keep the weights of all pairs of tokens: of 1,024 tokens several times as much as all the rest.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            options["dropout_p"] = 0.0
        return func(*args, **options)


def _autocast(half: bool) -> Any:
    return torch.autocast("cpu", torch.bfloat16) if half else nullcontext()


def step_flops(task: Task, settings: TrainingSettings) -> int:
    """Count the FLOPs of one example's step, forward and backward, with recomputed activations if the settings ask for them.

    The task's networks are on the meta device afterwards, where nothing is computed.
    """
    _as_on_a_gpu(task)
    for trunk in (module for module in task.model.modules() if isinstance(module, Trunk)):
        trunk.recompute_activations = settings.recompute_activations
    task.to(torch.device("meta"))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        task.loss(task.model, torch.arange(1), 0).values.sum().backward()
    return counter.get_total_flops()


def _as_on_a_gpu(task: Task) -> None:
    """Evaluate all positions, which also makes the cost the same for every mask."""
    for part in task.parts:
        if isinstance(part, MaskedGenerator):
            part.fixed_shapes = True
    task.model.train()


def report(found: Estimate, settings: TrainingSettings, ranks: int, steps: float | None) -> list[str]:
    """The estimate in lines. steps: of the run; None where it is a budget of time."""
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
