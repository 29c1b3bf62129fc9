"""Checkpoints of a run: whole or not there, and the one before kept in case the newest is damaged."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from tokencritic.files import write_atomically

_KEPT = 2


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Write `checkpoint-STEP.pt` and remove all but the newest two."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / f"checkpoint-{step:09}.pt", lambda path: torch.save(state, path))
    for old in _newest_first(folder)[_KEPT:]:
        old.unlink()


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that can be read, or None if there is none at all. A damaged one is reported and passed over."""
    files = _newest_first(folder)
    for file in files:
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except (RuntimeError, OSError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
            # Out of the way: by its number it would be kept in place of good ones.
            file.replace(file.with_suffix(".damaged"))
            print(f"{file} is damaged ({type(error).__name__}); looking for the one before", flush=True)
    return None


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoint-*.pt"), reverse=True)
