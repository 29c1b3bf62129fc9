"""Weights that other projects publish, in every form in which they publish them. Nothing in a file is ever run.

`read_tensors` and `read_flax` return tensors by their dotted names, such as `encoder.Conv_0.kernel`.
"""

import io
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import msgpack
import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.files import BROKEN, reading, reason_of

_LEGACY_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # how torch files before the zip format start
_WEIGHTS = ("state_dict", "model_state_dict", "model")  # where training checkpoints keep the weights
_ARRAY, _SCALAR = 1, 3  # msgpack's extension types of flax


def read_pickled_arrays(content: bytes) -> Any:
    """A pickle of dicts, lists, numbers, bytes and arrays of numbers, also one that Python 2 wrote."""
    return _Unpickler(io.BytesIO(content)).load()


def read_tensors(file: str | Path, owner: str) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, a torch file, a TorchScript archive or a pickle of NumPy arrays.

    owner: what the weights should be of, for the error. Of a training checkpoint only the model's own tensors are returned.
    Prefixes that data-parallel and compiled models leave in names are removed.
    """
    path = Path(file)
    try:
        if path.suffix == ".safetensors":
            return _without_wrappers(safetensors.torch.load_file(path))
        tree = _read_tree(path)
        if not isinstance(tree, Mapping):
            raise ValueError(f"expected a state dict of tensors, got a {type(tree).__name__}")
        weights = (tree[key] for key in _WEIGHTS if isinstance(tree.get(key), Mapping))
        return _without_wrappers(_flatten(next(weights, tree), ""))
    except BROKEN as error:
        if isinstance(error, pickle.UnpicklingError) and "weights_only" in str(error):
            raise InputError(
                f"{path} holds more than tensors, so it is not opened here. If you trust it, make a file of the tensors "
                f"alone: state = torch.load('{path.name}', weights_only=False)['state_dict']; safetensors.torch."
                f"save_file({{k: v.clone().contiguous() for k, v in state.items()}}, '{path.stem}.safetensors'). "
                "'state_dict' may be another key, such as 'model'"
            ) from error
        raise InputError(f"{path} holds no weights of {owner}: {reason_of(error)}") from error


def _without_wrappers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by their names without `module.` and `_orig_mod.`, which data-parallel and compiled models put in front."""
    return {re.sub(r"^(?:module\.|_orig_mod\.)+", "", name): value for name, value in tensors.items()}


def _read_tree(path: Path) -> Any:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            constants = next((name for name in archive.namelist() if name.endswith("/constants.pkl")), None)
            if constants is not None:  # a state dict has none
                return _Unpickler(archive.open(constants.replace("constants.pkl", "data.pkl")), archive).load()
    else:
        content = path.read_bytes()
        if not content.startswith(_LEGACY_TORCH):
            return read_pickled_arrays(content)
    return torch.load(path, map_location="cpu", weights_only=True)


class _Module(dict[str, Any]):
    """A module of a TorchScript archive: its tensors and modules by name."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.update({name: value for name, value in state.items() if isinstance(value, Tensor | _Module)})


class _Unpickler(pickle.Unpickler):
    """Unpickles the names of a table and the modules of a TorchScript archive; any other name is an `UnpicklingError`."""

    def __init__(self, stream: IO[bytes], archive: zipfile.ZipFile | None = None) -> None:
        super().__init__(stream, encoding="bytes")
        self.archive, self.root = archive, stream.name.rsplit("/", maxsplit=1)[0] if archive else ""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name.startswith("__torch__"):
            return _Module
        if module_name == "torch.jit._pickle":  # typed lists of numbers, such as strides
            return lambda values, *_: values
        if (module_name, global_name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}, which is never loaded")
        return _ALLOWED[module_name, global_name]

    def persistent_load(self, pid: Any) -> Tensor:
        if self.archive is None:
            raise pickle.UnpicklingError("it asks for a tensor of an archive, and is none")
        _, kind, key, *_ = pid
        return torch.from_numpy(np.frombuffer(self.archive.read(f"{self.root}/data/{key}"), kind).copy())


def _number_type(code: str | bytes, *_flags: object) -> np.dtype:
    """`numpy.dtype` for numbers alone. The flags of old files (align, copy) are numbers that newer numpy warns about."""
    dtype = np.dtype(code.decode() if isinstance(code, bytes) else code)
    if dtype.kind not in "biuf":
        raise pickle.UnpicklingError(f"it holds an array of {code!r}")
    return dtype


def _empty_array(_kind: type, shape: tuple[int, ...], code: str | bytes) -> np.ndarray:
    return np.ndarray(shape, _number_type(code))


def _latin1_bytes(text: str, encoding: str | bytes) -> bytes:
    """How Python 3 writes bytes into an old pickle protocol."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _number_type,
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("_codecs", "encode"): _latin1_bytes,
    ("torch._utils", "_rebuild_tensor_v2"): lambda storage, first, size, stride, *_: storage.as_strided(
        size, stride, first
    ),
    ("collections", "OrderedDict"): dict,
    ("torch", "FloatStorage"): np.float32,
    ("torch", "HalfStorage"): np.float16,
    ("torch", "DoubleStorage"): np.float64,
    ("torch", "LongStorage"): np.int64,
}


def read_flax(file: str | Path) -> dict[str, Tensor]:
    """The arrays under `params` of a flax checkpoint (`flax.serialization.to_bytes`), which is msgpack, without JAX.

    An array is a msgpack extension of type 1 (type 3 for a scalar) that holds, again as msgpack, its shape, the name of its
    dtype and its bytes in C order. Arrays of over 1 GiB, which flax cuts into chunks, are refused.
    """
    with reading(file, "a whole flax checkpoint (msgpack)"):
        tree = msgpack.unpackb(Path(file).read_bytes(), ext_hook=_read_extension)
        if not isinstance(tree, dict) or not isinstance(tree.get("params"), dict):
            found = f"the keys {', '.join(map(str, list(tree)[:5]))}" if isinstance(tree, dict) else type(tree).__name__
            raise ValueError(f"it holds {found} at its top; expected 'params'")
        return _flatten(tree["params"], "")


def _read_extension(code: int, data: bytes) -> Tensor:
    if code not in (_ARRAY, _SCALAR):
        raise ValueError(f"extension type {code}, which is no array")
    shape, name, content = msgpack.unpackb(data)
    dtype = vars(torch).get(name.decode() if isinstance(name, bytes) else name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"an array of dtype {name!r}")
    values = torch.frombuffer(bytearray(content), dtype=dtype) if content else torch.empty(0, dtype=dtype)
    return values.view(shape)


def _flatten(tree: Mapping[Any, Any], prefix: str) -> dict[str, Tensor]:
    """Nested maps of arrays -> tensors by dotted name."""
    tensors: dict[str, Tensor] = {}
    for key, value in tree.items():
        name = f"{prefix}{key.decode() if isinstance(key, bytes) else key}"
        if isinstance(value, Mapping):
            tensors |= _flatten(value, f"{name}.")
        elif isinstance(value, Tensor | np.ndarray):
            tensors[name] = torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value
        else:
            raise ValueError(f"{name} is a {type(value).__name__}, not an array")
    return tensors
