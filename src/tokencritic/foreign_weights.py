"""Readers of published weights in all common file formats. No code of a file is ever executed.

`read_tensors` and `read_flax` return tensors by their dotted names, such as `encoder.Conv_0.kernel`.
"""

import io
import mmap
import pickle
import pickletools
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from tokencritic.bounds import DEPTH, TREE_NODES
from tokencritic.errors import InputError, check_expansion
from tokencritic.files import BROKEN, reading, reason_of

_LEGACY_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the first bytes of torch files before the zip format
_OLD_HEAD, _OLD_PICKLES = 3, 5  # pickles of such a file: magic number, version, machine; tensors and their keys
_WEIGHTS = ("state_dict", "model_state_dict", "model")  # keys of the weights in training checkpoints
_ARRAY, _SCALAR = 1, 3  # flax's msgpack extension types


def read_pickled_arrays(content: bytes) -> Any:
    """Read a pickle of dicts, lists, numbers, bytes and arrays of numbers, also one written by Python 2."""
    return _unpickled(io.BytesIO(content))


def read_safetensors(file: Path) -> dict[str, Tensor]:
    """Read a safetensors file."""
    with reading(file, "a whole safetensors file"):
        file.open("rb").close()  # safetensors reports a file without read permission as missing
        return safetensors.torch.load_file(file)


def read_tensors(file: str | Path, owner: str) -> dict[str, Tensor]:
    """Read the tensors of a .safetensors file, a torch file, a TorchScript archive or a pickle of NumPy arrays.

    owner: the expected model, for error messages.

    Only the model's tensors of a training checkpoint are returned. Name prefixes of data-parallel and compiled models
    are removed.
    """
    path = Path(file)
    try:
        if path.suffix == ".safetensors":
            return _without_wrappers(read_safetensors(path))
        with warnings.catch_warnings(action="ignore"):  # torch warns about a pickle before it rejects it
            tree = _read_tree(path)
        if not isinstance(tree, Mapping):
            raise ValueError(f"expected a state dict of tensors, got a {type(tree).__name__}")
        weights = (tree[key] for key in _WEIGHTS if isinstance(tree.get(key), Mapping))
        return _without_wrappers(_flatten(next(weights, tree), ""))
    except InputError:
        raise
    except BROKEN as error:
        if isinstance(error, pickle.UnpicklingError) and "weights_only" in str(error):
            asked = re.search(r"GLOBAL (\S+)", str(error))
            if asked is None:
                raise InputError(f"{path} holds no weights of {owner}: it is incomplete or damaged") from error
            raise InputError(
                f"{path} holds more than tensors, such as {asked[1]}; expected tensors only. If you trust the file, "
                f"convert it: state = torch.load('{path.name}', weights_only=False)['state_dict']; safetensors.torch."
                f"save_file({{k: v.clone().contiguous() for k, v in state.items()}}, '{path.stem}.safetensors'). "
                "'state_dict' may be another key, such as 'model'"
            ) from error
        raise InputError(f"{path} holds no weights of {owner}: {reason_of(error)}") from error


def _without_wrappers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Remove the name prefixes `module.` and `_orig_mod.` of data-parallel and compiled models."""
    return {re.sub(r"^(?:module\.|_orig_mod\.)+", "", name): value for name, value in tensors.items()}


def _read_tree(path: Path) -> Any:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            check_expansion(path, path.stat().st_size, sum(info.file_size for info in archive.infolist()))
            constants = next((name for name in archive.namelist() if name.endswith("/constants.pkl")), None)
            if constants is not None:  # a state dict has none
                with archive.open(constants.replace("constants.pkl", "data.pkl")) as stream:
                    return _unpickled(stream, archive)
    else:
        # A pickle may request any number of bytes. Reading them from a file allocates the memory first; a map does not.
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[: len(_LEGACY_TORCH)] != _LEGACY_TORCH:
                return _unpickled(content)
            _check_sizes(content)
    with path.open("rb") as stream:  # torch would leave a broken file open
        try:
            return torch.load(stream, map_location="cpu", weights_only=True)
        except (AssertionError, struct.error) as error:
            raise ValueError(f"it is damaged: {reason_of(error)}") from error


def _check_sizes(content: Any) -> None:
    """Raise ValueError for an old torch file that contains a number above its size in bytes.

    Torch allocates memory for this number of values before it reads them.
    """
    for pickled in range(_OLD_PICKLES):
        for operation, argument, _ in pickletools.genops(content):
            if pickled < _OLD_HEAD or not isinstance(argument, int):
                continue
            if argument > len(content) and "PUT" not in operation.name and "GET" not in operation.name:
                raise ValueError(f"it has the number {argument}; expected at most {len(content)}, its bytes")


def _unpickled(stream: Any, archive: zipfile.ZipFile | None = None) -> Any:
    """Load a pickle. Raises UnpicklingError for a memo index above the number of operations so far.

    Python allocates a table of the size of the largest index.
    """
    for count, (operation, argument, _) in enumerate(pickletools.genops(stream)):
        if "PUT" in operation.name and isinstance(argument, int) and argument > count:
            raise pickle.UnpicklingError(f"it has the memo {argument} at operation {count}")
    stream.seek(0)
    return _Unpickler(stream, archive).load()


class _Module(dict[str, Any]):
    """A module of a TorchScript archive: a dict of its tensors and submodules."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.update({name: value for name, value in state.items() if isinstance(value, Tensor | _Module)})


class _Unpickler(pickle.Unpickler):
    """An unpickler of the names in `_ALLOWED` and the modules of a TorchScript archive.

    Any other name raises `UnpicklingError`.
    """

    def __init__(self, stream: Any, archive: zipfile.ZipFile | None = None) -> None:
        super().__init__(stream, encoding="bytes")
        self.archive, self.root = archive, stream.name.rsplit("/", maxsplit=1)[0] if archive else ""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name.startswith("__torch__"):
            return _Module
        if module_name == "torch.jit._pickle":  # typed lists of numbers, such as strides
            return lambda values, *_: values
        if (module_name, global_name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it refers to {module_name}.{global_name}, which is not allowed")
        return _ALLOWED[module_name, global_name]

    def persistent_load(self, pid: Any) -> Tensor:
        if self.archive is None:
            raise pickle.UnpicklingError("it refers to a tensor of an archive, but is not an archive")
        _, kind, key, *_ = pid
        return torch.from_numpy(np.frombuffer(self.archive.read(f"{self.root}/data/{key}"), kind).copy())


def _number_type(code: str | bytes, *_flags: object) -> np.dtype:
    """Return a numeric `numpy.dtype`. Flags of old files (align, copy) are ignored, as new numpy warns about them."""
    dtype = np.dtype(code.decode() if isinstance(code, bytes) else code)
    if dtype.kind not in "biuf":
        raise pickle.UnpicklingError(f"it holds an array of dtype {code!r}; expected numbers")
    return dtype


def _empty_array(_kind: object, _shape: object, code: str | bytes) -> np.ndarray:
    """Return the array that a pickle fills later. NumPy writes the shape (0,); any other would waste memory."""
    return np.ndarray((0,), _number_type(code))


def _not_called(*_: object) -> Any:
    raise pickle.UnpicklingError("it makes an array without content")


def _latin1_bytes(text: str, encoding: str | bytes) -> bytes:
    """Decode bytes that Python 3 wrote with an old pickle protocol."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"it uses the encoding {encoding!r}; expected latin1")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _not_called,
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
    """Read the arrays under `params` of a flax checkpoint (`flax.serialization.to_bytes`) without JAX.

    The format is msgpack. An array is an extension of type 1 (3 for a scalar), which holds shape, dtype name and bytes
    in C order, again as msgpack. Arrays over 1 GiB, which flax splits into chunks, raise InputError.
    """
    with reading(file, "a whole flax checkpoint (msgpack)"):
        tree = msgpack.unpackb(Path(file).read_bytes(), ext_hook=_read_extension)
        if not isinstance(tree, dict) or not isinstance(tree.get("params"), dict):
            found = f"the keys {', '.join(map(str, list(tree)[:5]))}" if isinstance(tree, dict) else type(tree).__name__
            raise ValueError(f"it holds {found} at the top level; expected 'params'")
        return _flatten(tree["params"], "")


def _read_extension(code: int, data: bytes) -> Tensor:
    if code not in (_ARRAY, _SCALAR):
        raise ValueError(f"it holds extension type {code}; expected an array")
    shape, name, content = msgpack.unpackb(data)
    dtype = vars(torch).get(name.decode() if isinstance(name, bytes) else name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"it holds an array of dtype {name!r}; expected a dtype of torch")
    values = torch.frombuffer(bytearray(content), dtype=dtype) if content else torch.empty(0, dtype=dtype)
    return values.view(shape)


def _flatten(tree: Mapping[Any, Any], prefix: str) -> dict[str, Tensor]:
    """Return the tensors of nested mappings by dotted name."""
    tensors: dict[str, Tensor] = {}
    waiting, seen = [(prefix, tree, 0)], 0
    while waiting:
        prefix, branch, depth = waiting.pop()
        for key, value in branch.items():
            seen += 1
            if seen > TREE_NODES or depth > DEPTH:  # a mapping may hold itself, or another one many times
                raise ValueError(f"it has more than {TREE_NODES} entries or {DEPTH} levels")
            name = f"{prefix}{key.decode() if isinstance(key, bytes) else key}"
            if isinstance(value, Mapping):
                waiting.append((f"{name}.", value, depth + 1))
            elif isinstance(value, Tensor | np.ndarray):
                tensors[name] = torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value
            else:
                raise ValueError(f"{name} is a {type(value).__name__}; expected an array")
    return tensors
