"""Hashes of networks: what is made with one must not be mixed with what is made with another."""

import hashlib
import inspect
from pathlib import Path
from typing import Any

from torch import nn

_PLAIN = (bool, int, float, str, tuple, type(None))
_MODE = "training"  # which changes with every evaluation


def with_weights(digest: Any, module: nn.Module) -> str:
    """The hash of what a hash has seen and every weight of a module."""
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def network_fingerprint(networks: tuple[nn.Module, ...], source: bool) -> str:
    """A sha256 of networks whose code is not ours: their weights and plain attributes.

    source: also the files that define their classes, so that a change of the code is noticed.
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
    """The file that defines a class; "" for one typed into a session."""
    try:
        file = inspect.getsourcefile(kind)
    except TypeError:
        return ""
    return file if file is not None and Path(file).is_file() else ""
