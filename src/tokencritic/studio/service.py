"""What the page and the HTTP API both call: a bounded queue before one worker, and the results it has made."""

import secrets
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tokencritic.errors import InputError
from tokencritic.evaluation.tuned_settings import own_settings
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.pretrained import place_of
from tokencritic.sampling.settings import Sampler, SamplingSettings
from tokencritic.studio.requests import Limits, Requests
from tokencritic.studio.runs import Run
from tokencritic.studio.uploads import read_upload
from tokencritic.studio.work import Work, fit


class Busy(Exception):
    """There is no room for another run; the message says so, and what to do."""


@dataclass(frozen=True)
class Picture:
    """A picture that a client has brought, at the model's size. name: of its file, to be shown alone, never opened."""

    id: str
    client: str
    image: Image.Image
    name: str


class Service:
    """Runs of many clients on one pipeline, one run at a time.

    model: what the pipeline was loaded from, for command lines. clock: seconds, for tests.
    A client is any string that its page keeps; it can see and cancel its own runs alone.
    """

    def __init__(
        self,
        pipe: TokenCriticPipeline,
        model: str,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pipe, self.model, self.limits = pipe, model, limits or Limits()
        self.requests = Requests(pipe, self.limits)
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: list[Run] = []
        self._running: Run | None = None
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._pictures: OrderedDict[str, Picture] = OrderedDict()
        self._closed = False
        self._worker = threading.Thread(target=self._work, name="studio", daemon=True)
        self._worker.start()

    def own_settings(self, sampler: Sampler) -> SamplingSettings:
        """What suits a sampler of this model."""
        return own_settings(Path(place_of(self.model)), self.pipe, sampler)

    def submit(self, client: str, work: Work) -> Run:
        """Take work in, or raise `Busy` at once. Nothing waits here."""
        with self._changed:
            if self._closed:
                raise Busy("the studio is closing")
            self._give_up_late()
            unfinished = [run for run in (*self._waiting, self._running) if run is not None and run.client == client]
            if len(unfinished) >= self.limits.per_client:
                raise Busy(f"busy: {len(unfinished)} of your runs are not finished; wait for them, or cancel them")
            if len(self._waiting) >= self.limits.waiting:
                raise Busy(f"busy: {len(self._waiting)} runs are waiting already; try again in a moment")
            run = Run(client, work, self._clock())
            self._waiting.append(run)
            self._runs[run.id] = run
            self._forget_old()
            self._changed.notify()
            return run

    def ahead(self, run: Run) -> int:
        """How many runs come before this one; 0 if it is running or finished. Also gives up runs that waited too long."""
        with self._changed:
            self._give_up_late()
            if run not in self._waiting:
                return 0
            return self._waiting.index(run) + (self._running is not None)

    def find(self, client: str, run_id: str) -> Run:
        """A run of this client."""
        run = self._runs.get(run_id)
        if run is None or run.client != client:
            raise InputError("that run is not here any more; make it again")
        return run

    def latest(self, client: str, *kinds: str) -> Run | None:
        """The client's last run of these kinds."""
        with self._changed:
            return next(
                (run for run in reversed(self._runs.values()) if run.client == client and run.kind in kinds), None
            )

    def cancel(self, client: str, *kinds: str) -> int:
        """Give up the client's unfinished runs of these kinds, and nobody else's. Returns how many there were."""
        with self._changed:
            waiting = [run for run in self._waiting if run.client == client and run.kind in kinds]
            for run in waiting:
                self._waiting.remove(run)
                run.finish("cancelled", "cancelled")
            running = self._running
            if running is None or running.client != client or running.kind not in kinds:
                return len(waiting)
            running.cancel()
            return len(waiting) + 1

    def keep_upload(self, client: str, data: bytes, name: str) -> Picture:
        """A picture from a file's bytes."""
        return self.keep_picture(client, self.read_upload(data), name)

    def read_upload(self, data: bytes) -> Image.Image:
        """A file's bytes as a picture of the model's size."""
        return fit(self.pipe, read_upload(data, self.limits.upload_bytes, self.limits.upload_pixels))

    def keep_picture(self, client: str, image: Image.Image, name: str) -> Picture:
        """A picture to refine or edit. image: of any size, mode L or RGB."""
        picture = Picture(secrets.token_urlsafe(16), client, fit(self.pipe, image), name[:200])
        with self._changed:
            self._pictures[picture.id] = picture
            while len(self._pictures) > self.limits.kept_pictures:
                self._pictures.popitem(last=False)
        return picture

    def picture(self, client: str, picture_id: str) -> Picture:
        """A picture of this client."""
        picture = self._pictures.get(picture_id)
        if picture is None or picture.client != client:
            raise InputError("there is no picture yet; upload one, or take one that you made")
        return picture

    def close(self) -> None:
        """Cancel everything and end the worker."""
        with self._changed:
            self._closed = True
            for run in self._waiting:
                run.finish("cancelled", "the studio is closing")
            self._waiting.clear()
            if self._running is not None:
                self._running.cancel()
            self._changed.notify()
        self._worker.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                self._give_up_late()
                if not self._waiting:
                    continue
                run = self._running = self._waiting.pop(0)
            try:
                run.carry_out(self.pipe, self.limits.run_seconds, self._clock)
            except Exception:  # a fault of ours ends one run, not the studio
                traceback.print_exc(file=sys.stderr)
            with self._changed:
                self._running = None

    def _give_up_late(self) -> None:
        """Finish the runs that have waited too long. The caller holds the lock."""
        now, bound = self._clock(), self.limits.wait_seconds
        for run in [run for run in self._waiting if now - run.submitted > bound]:
            self._waiting.remove(run)
            run.finish("late", f"gave up after waiting {bound:g} s for other runs; try again in a moment")

    def _forget_old(self) -> None:
        """Drop the oldest finished runs beyond those that are kept. The caller holds the lock."""
        finished = [run.id for run in self._runs.values() if run.finished.is_set()]
        for run_id in finished[: max(0, len(finished) - self.limits.kept_runs)]:
            del self._runs[run_id]
