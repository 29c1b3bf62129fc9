"""Writing files so that a reader never meets half of one."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Call `write` with a temporary name in the same folder, then rename; on failure nothing is left behind."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        write(temporary)
        temporary.chmod(mode)  # as any new file has it; safetensors writes for its owner's eyes only
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
