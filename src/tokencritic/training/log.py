"""What a run leaves to read: JSON lines always, TensorBoard's files where wanted."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tokencritic.errors import InputError
from tokencritic.files import write_atomically
from tokencritic.pictures.grids import save


class RunLog:
    """run/log.jsonl, run/pictures/ and, with a writer, run/tensorboard/.

    step: where the run goes on; what a cut-off run noted after its last checkpoint is removed, because it happens again.
    writer: TensorBoard's, see `find_tensorboard`.
    """

    def __init__(self, run: Path, step: int, writer: type[Any] | None = None) -> None:
        self.file, self.pictures_folder = run / "log.jsonl", run / "pictures"
        if self.file.exists():
            lines = [line for line in self.file.read_text(encoding="utf-8").splitlines(True) if _before(line, step)]
            write_atomically(self.file, lambda path: path.write_text("".join(lines), encoding="utf-8"))
        self._writer = None if writer is None else writer(str(run / "tensorboard"), purge_step=step)

    def numbers(self, kind: str, step: int, numbers: dict[str, float]) -> None:
        """kind: `training`, after this step's update, or `validation`, after so many steps."""
        known = {name: finite(value) for name, value in numbers.items()}
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **known}) + "\n")
        if self._writer is not None:
            for name, value in numbers.items():
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def pictures(self, step: int, pictures: dict[str, Image.Image]) -> None:
        """The newest of each name is also kept as a PNG."""
        for name, picture in pictures.items():
            self.pictures_folder.mkdir(exist_ok=True)
            save(picture, self.pictures_folder / f"{name}.png")
            if self._writer is not None:
                self._writer.add_image(name, np.asarray(picture.convert("RGB")), step, dataformats="HWC")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def find_tensorboard() -> type[Any]:
    """The class that writes TensorBoard's files."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise InputError("tensorboard is true but it is not installed; pip install tensorboard") from error
    return SummaryWriter


def _before(line: str, step: int) -> bool:
    """Whether a line was written before the checkpoint of this step; a half-written last line was not."""
    try:
        found = json.loads(line)
        return found["step"] < step + (found["kind"] == "validation")
    except (ValueError, KeyError, TypeError):
        return False


def finite(value: float) -> float | None:
    """JSON has no nan: None instead."""
    return value if math.isfinite(value) else None
