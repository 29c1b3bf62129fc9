"""One run: where it stands, what it shows meanwhile, and what came of it."""

import io
import secrets
import threading
import time
from collections.abc import Callable
from typing import Literal

from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.pictures import grid
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.studio.work import Result, Work

State = Literal["waiting", "running", "done", "failed", "cancelled", "late"]

_MOST_SHOWN = 16
_SHARE_OF_TIME = 4  # looking at images that form costs at most a fourth of the time since the last look


class Cancelled(Exception):
    """Raised inside a run whose client no longer wants it."""


class Run:
    """Belongs to one client. The worker alone moves it on; everyone may read it.

    message: why it failed. done, total: steps. preview: a PNG of the images as they form, or None.
    """

    def __init__(self, client: str, work: Work, now: float) -> None:
        self.id, self.client, self.work, self.submitted = secrets.token_urlsafe(16), client, work, now
        self.state: State = "waiting"
        self.message = ""
        self.done, self.total = 0, 1
        self.preview: bytes | None = None
        self.result: Result | None = None
        self.finished = threading.Event()
        self._cancelled = threading.Event()
        self._looked = self._look_seconds = 0.0

    @property
    def kind(self) -> str:
        return self.work.kind

    def cancel(self) -> None:
        """Ends at its next step, if it has begun."""
        self._cancelled.set()

    def carry_out(self, pipe: TokenCriticPipeline, seconds: float, clock: Callable[[], float]) -> None:
        """Do the work; whatever happens, the run is finished afterwards. seconds: how long it may take."""
        self.state, end = "running", clock() + seconds

        def watch(done: int, total: int, tokens: Tensor | None) -> None:
            if self._cancelled.is_set():
                raise Cancelled
            if clock() > end:
                raise InputError(f"stopped after {seconds:g} s, the most a run may take; ask for less")
            self.done, self.total = done, total
            if tokens is not None:
                self._show(pipe, tokens)

        try:
            self.result = self.work.carry_out(pipe, watch)
            self.finish("done")
        except Cancelled:
            self.finish("cancelled", "cancelled")
        except InputError as error:
            self.finish("failed", str(error))
        except Exception as error:
            self.finish("failed", f"the run failed ({type(error).__name__}); the server's log says more")
            raise

    def finish(self, state: State, message: str = "") -> None:
        self.message, self.state = message, state
        self.preview = None
        self.finished.set()

    def _show(self, pipe: TokenCriticPipeline, tokens: Tensor) -> None:
        """Draw the images as they are now, but not so often that it slows the run."""
        start = time.perf_counter()
        if start - self._looked < _SHARE_OF_TIME * self._look_seconds:
            return
        sheet = io.BytesIO()
        grid(pipe.images(tokens[:_MOST_SHOWN]), scale=1).save(sheet, "PNG")
        self.preview = sheet.getvalue()
        self._looked = time.perf_counter()
        self._look_seconds = self._looked - start
