"""Reading flax checkpoints (`flax.serialization.to_bytes`) without JAX. The format is msgpack; nothing is unpickled.

An array is a msgpack extension of type 1 (type 3 for a scalar) that holds, again as msgpack, its shape, the name of its
dtype and its bytes in C order. One of over 1 GiB is a map with the key `__msgpack_chunked_array__`, whose `shape` and `chunks`
are maps from "0", "1", ... to the sizes and to the flat parts.
"""

import math
from pathlib import Path
from typing import Any

import msgpack
import torch
from torch import Tensor

from tokencritic.errors import InputError

_ARRAY, _SCALAR = 1, 3
_CHUNKED = "__msgpack_chunked_array__"
_DTYPES = {
    name: getattr(torch, name)
    for name in (
        *("float16", "float32", "float64", "bfloat16", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
}


def read_arrays(file: str | Path, top: str = "params") -> dict[str, Tensor]:
    """The arrays under the key `top` of a checkpoint, by their dotted names such as `encoder.Conv_0.kernel`."""
    path = Path(file)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    try:
        tree = msgpack.unpackb(data, ext_hook=_read_extension)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        reason = str(error).strip() or type(error).__name__
        raise InputError(f"{path} is not a whole flax checkpoint (msgpack): {reason}") from error
    if not isinstance(tree, dict) or not isinstance(tree.get(top), dict):
        came = f"the keys {', '.join(map(str, list(tree)[:5]))}" if isinstance(tree, dict) else type(tree).__name__
        raise InputError(f"{path} holds {came} at its top; expected a flax checkpoint with {top!r}")
    try:
        return _flatten(tree[top], "")
    except ValueError as error:
        raise InputError(f"{path} is not a flax checkpoint: {error}") from error


def _read_extension(code: int, data: bytes) -> Tensor:
    if code not in (_ARRAY, _SCALAR):
        raise ValueError(f"extension type {code}, which is no array")
    parts = msgpack.unpackb(data)
    if not isinstance(parts, list) or len(parts) != 3:
        raise ValueError("an array without shape, dtype and bytes")
    shape, name, content = parts
    if isinstance(name, bytes):
        name = name.decode()
    if name not in _DTYPES:
        raise ValueError(f"an array of dtype {name!r}")
    dtype = _DTYPES[name]
    if not _is_shape(shape) or not isinstance(content, bytes):
        raise ValueError(f"an array whose shape is {shape!r}")
    if len(content) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array of shape {tuple(shape)} and dtype {name} with {len(content)} bytes")
    if not content:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype).view(shape)


def _flatten(tree: dict[Any, Any], prefix: str) -> dict[str, Tensor]:
    arrays: dict[str, Tensor] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and _CHUNKED in value:
            arrays[name] = _join_chunks(name, value)
        elif isinstance(value, dict):
            arrays |= _flatten(value, f"{name}.")
        elif isinstance(value, Tensor):
            arrays[name] = value
        else:
            raise ValueError(f"{name} is a {type(value).__name__}, not an array")
    return arrays


def _join_chunks(name: str, value: dict[Any, Any]) -> Tensor:
    shape, chunks = (_in_order(value.get(key)) for key in ("shape", "chunks"))
    if not _is_shape(shape) or not chunks or not all(isinstance(x, Tensor) and x.ndim == 1 for x in chunks):
        raise ValueError(f"the chunks of {name} are broken")
    if len({chunk.dtype for chunk in chunks}) != 1 or sum(map(len, chunks)) != math.prod(shape):
        raise ValueError(f"the chunks of {name} do not make an array of shape {tuple(shape)}")
    return torch.cat(chunks).view(shape)


def _in_order(numbered: Any) -> list[Any]:
    """{"0": a, "1": b} -> [a, b]."""
    if not isinstance(numbered, dict) or set(numbered) != {str(index) for index in range(len(numbered))}:
        return []
    return [numbered[str(index)] for index in range(len(numbered))]


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and all(isinstance(size, int) and size >= 0 for size in shape)
