"""Hashes of networks, which keep results of different networks apart."""

import hashlib
import inspect
from pathlib import Path
from typing import Any

from torch import nn

_PLAIN = (bool, int, float, str, tuple, type(None))
_MODE = "training"  # left out, because evaluation changes it


def with_weights(digest: Any, module: nn.Module) -> str:
    """Add every weight of a module to a hash object and return its digest."""
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def network_fingerprint(networks: tuple[nn.Module, ...], source: bool) -> str:
    """Return the SHA-256 of arbitrary networks: their weights and plain attributes.

    source: also hash the source files of their classes, so that the hash changes with the code.
    """
    digest = hashlib.sha256()
    for network in networks:
        for name, part in network.named_modules():
            values = sorted((key, value) for key, value in vars(part).items() if key != _MODE)
            plain = [(key, value) for key, value in values if isinstance(value, _PLAIN)]
            digest.update(repr((name, type(part).__qualname__, plain)).encode())
        for file in sorted({_source_of(type(part)) for part in network.modules()} if source else ()):
            digest.update(Path(file).read_bytes() if file else b"")
        with_weights(digest, network)
    return digest.hexdigest()


def _source_of(kind: type) -> str:
    """Return the file that defines a class, or "" for a class of an interactive session."""
    try:
        file = inspect.getsourcefile(kind)
    except TypeError:
        return ""
    return file if file is not None and Path(file).is_file() else ""
