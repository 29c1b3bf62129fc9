"""A stand-in for a GPU: a device whose tensors live on the CPU, and which notices what would fail or wait on a real one.

Inside of `with StandInGpu() as gpu`, tensors made on or moved to `gpu.device` are of class `OnGpu`. They hold their values in
a CPU tensor, so that results are those of the CPU. An operation on tensors of both devices raises, as it does on a GPU.
`gpu.waits` lists what made the host wait for the device, with the line that did it.
"""

import traceback
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

SOURCES = Path(__file__).parents[1] / "src" / "tokencritic"
aten = torch.ops.aten
# The size or the value of what these return must be known to the host.
_WAITS = {
    aten._local_scalar_dense.default: "item",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "masked_select",
    aten.equal.default: "equal",
    aten._unique2.default: "unique",
    aten.unique_dim.default: "unique",
    aten.unique_consecutive.default: "unique",
    aten.repeat_interleave.Tensor: "repeat_interleave",
    aten.bincount.default: "bincount",
}
_INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
_COPIES = {aten._to_copy.default, aten.copy_.default, aten.lift_fresh.default}


class OnGpu(torch.Tensor):
    """A tensor of the stand-in: by its `device` torch's meta device, which every torch knows; the values are in `inner`."""

    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        form = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, device="meta", **form)

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        return f"OnGpu({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} on a tensor of the stand-in, outside of its `with`")


class StandInGpu(TorchDispatchMode):
    """Inside of it there is a second device. waits: what made the host wait, in order, as "item, sampling/loop.py:71"."""

    device = torch.device("meta")

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __enter__(self):
        future = torch.__future__
        self._numbers, self._swapped = _Numbers(), future.get_swap_module_params_on_conversion()
        future.set_swap_module_params_on_conversion(True)  # so that modules can be moved to tensors of another class
        self._numbers.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._numbers.__exit__(*error)
        torch.__future__.set_swap_module_params_on_conversion(self._swapped)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        placed = kwargs.get("device")
        here = any(isinstance(tensor, OnGpu) for tensor in tensors)
        there = here if placed is None else placed.type == "meta"
        if placed is not None:
            kwargs["device"] = torch.device("cpu")
        self._look(func, args, kwargs, tensors, here, there)
        if func is aten._local_scalar_dense.default or (func is aten.equal.default):
            there = False
        strangers = [tensor for tensor in tensors if tensor.ndim and not isinstance(tensor, OnGpu)]  # scalars may meet
        if here and there and strangers and func not in _COPIES:
            raise RuntimeError(f"{func}: tensors on two devices, at {_line()}")
        result = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        known = {id(tensor.inner): tensor for tensor in tensors if isinstance(tensor, OnGpu)}
        if func is aten.copy_.default:
            return args[0]
        return tree_map(lambda leaf: known.get(id(leaf), OnGpu(leaf)) if there and _is_plain(leaf) else leaf, result)

    def _look(self, func: Any, args: Any, kwargs: Any, tensors: list, here: bool, there: bool) -> None:
        what = _WAITS.get(func) if here else None
        if func in _INDEXING and here:
            indices = [index for index in args[1] if index is not None]
            what = "boolean indexing" if any(index.dtype in (torch.bool, torch.uint8) for index in indices) else None
        if func is aten._to_copy.default and here != there:
            what = "copy to the host" if here else None if kwargs.get("non_blocking") else "copy to the device"
        if func is aten.copy_.default and isinstance(args[0], OnGpu) != isinstance(args[1], OnGpu):
            to_host, asynchronous = isinstance(args[1], OnGpu), len(args) > 2 and args[2]
            what = "copy to the host" if to_host else None if asynchronous else "copy to the device"
        if what is not None:
            self.waits.append(f"{what}, {_line()}")

    @property
    def kinds(self) -> list[str]:
        """What made the host wait, without the lines."""
        return [wait.partition(",")[0] for wait in self.waits]


class _Numbers(TorchFunctionMode):
    """Tensors made of Python numbers and back: by way of the CPU, so that `StandInGpu` sees the copy."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.new_tensor:
            kwargs = {"device": args[0].device, "dtype": args[0].dtype, **kwargs}
            func, args = torch.tensor, args[1:]
        if func is torch.Tensor.tolist:
            return func(args[0].cpu())
        device = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and device is not None and torch.device(device).type == "meta":
            return func(*args, **kwargs | {"device": None}).to("meta")
        return func(*args, **kwargs)


def _inner(leaf: Any) -> Any:
    return leaf.inner if isinstance(leaf, OnGpu) else leaf


def _is_plain(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and not isinstance(leaf, OnGpu)


def _line() -> str:
    """The innermost line of the package on the stack."""
    frames = [frame for frame in traceback.extract_stack() if frame.filename.startswith(str(SOURCES))]
    return f"{Path(frames[-1].filename).relative_to(SOURCES)}:{frames[-1].lineno}" if frames else "outside"
