"""What the page and the HTTP API both call: a bounded queue of jobs before one worker, and the results it has made."""

import io
import secrets
import threading
import time
import traceback
from collections.abc import Callable
from typing import Literal

from PIL import Image
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.image_forms import read_picture, to_images, to_pil
from tokencritic.pictures.grids import image_grid
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.studio.requests import Limits, Requests
from tokencritic.studio.work import Result, Work, png

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")  # of pictures that clients may send
State = Literal["waiting", "running", "done", "failed", "cancelled", "late"]

_MOST_SHOWN = 16
_SHARE_OF_TIME = 4  # decoding images that form costs at most a fourth of the time since the last preview


class Busy(Exception):
    """There is no room for another job; the message says so, and what to do."""


class Job:
    """One piece of work of one client. The worker alone moves it on; everyone may read it.

    message: why it failed. done, total: steps. preview: a PNG of the images as they form, or None. cancelled: ends the job at
    its next step.
    """

    def __init__(self, client: str, work: Work, now: float) -> None:
        self.id, self.client, self.work, self.submitted = secrets.token_urlsafe(16), client, work, now
        self.state: State = "waiting"
        self.message = ""
        self.done, self.total = 0.0, 1
        self.preview: bytes | None = None
        self.result = Result()
        self.finished, self.cancelled = threading.Event(), threading.Event()
        self._next_preview = 0.0

    def carry_out(self, pipe: TokenCriticPipeline, seconds: float, clock: Callable[[], float]) -> None:
        """Do the work; whatever happens, the job is finished afterwards. seconds: how long it may take."""
        self.state, end = "running", clock() + seconds

        def watch(done: float, total: int, tokens: Tensor | None) -> None:
            if self.cancelled.is_set():
                raise InputError("cancelled")
            if clock() > end:
                raise InputError(f"stopped after {seconds:g} s, the most a run may take; ask for less")
            self.done, self.total = done, total
            if tokens is not None:
                self._show(pipe, tokens)

        try:
            self.result = self.work.carry_out(pipe, watch)
            self.finish("done")
        except InputError as error:
            self.finish("cancelled" if self.cancelled.is_set() else "failed", str(error))
        except Exception as error:  # a fault of ours ends one job, not the studio
            traceback.print_exc()
            self.finish("failed", f"the run failed ({type(error).__name__}); the server's log says more")

    def finish(self, state: State, message: str = "") -> None:
        self.message, self.state, self.preview = message, state, None
        self.finished.set()

    def _show(self, pipe: TokenCriticPipeline, tokens: Tensor) -> None:
        """Draw the images as they are now, but not so often that it slows the job."""
        start = time.perf_counter()
        if start >= self._next_preview:
            self.preview = png(image_grid(pipe.images(tokens[:_MOST_SHOWN]), scale=1))
            end = time.perf_counter()
            self._next_preview = end + _SHARE_OF_TIME * (end - start)


class Service:
    """Jobs of many clients on one pipeline, one job at a time.

    model: what the pipeline was loaded from, for command lines. clock: seconds, for tests.
    A client is any string that its page keeps; it can see and cancel its own jobs alone.
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
        self._waiting: list[Job] = []
        self._running: Job | None = None
        self._jobs: dict[str, Job] = {}
        self._pictures: dict[tuple[str, str], Image.Image] = {}  # by their client and id
        self._closed = False
        self._worker = threading.Thread(target=self._work, name="studio", daemon=True)
        self._worker.start()

    def submit(self, client: str, work: Work) -> Job:
        """Take work in, or raise `Busy` at once. Nothing waits here."""
        with self._changed:
            if self._closed:
                raise Busy("the studio is closing")
            waiting, unfinished = self._in_time(), self._unfinished(client)
            if len(unfinished) >= self.limits.per_client:
                raise Busy(f"busy: {len(unfinished)} of your runs are not finished; wait for them, or cancel them")
            if len(waiting) >= self.limits.waiting:
                raise Busy(f"busy: {len(waiting)} runs are waiting already; try again in a moment")
            job = Job(client, work, self._clock())
            waiting.append(job)
            self._jobs[job.id] = job
            finished = [old.id for old in self._jobs.values() if old.finished.is_set()]
            for job_id in finished[: max(0, len(finished) - self.limits.kept_runs)]:
                del self._jobs[job_id]
            self._changed.notify()
            return job

    def ahead(self, job: Job) -> int:
        """How many jobs come before this one; 0 if it is running or finished. Also gives up jobs that waited too long."""
        with self._changed:
            waiting = self._in_time()
            return waiting.index(job) + (self._running is not None) if job in waiting else 0

    def find(self, client: str, job_id: str) -> Job:
        """A job of this client."""
        job = self._jobs.get(job_id)
        if job is None or job.client != client:
            raise InputError("that run is not here any more; make it again")
        return job

    def latest(self, client: str, kind: str) -> Job | None:
        """The client's last job of a kind, unless it came to nothing."""
        with self._changed:
            jobs = [job for job in self._jobs.values() if (job.client, job.work.kind) == (client, kind)]
        return jobs[-1] if jobs and jobs[-1].state in ("waiting", "running", "done") else None

    def cancel(self, client: str, kind: str) -> int:
        """Give up the client's unfinished jobs of a kind, and nobody else's. Returns how many there were."""
        with self._changed:
            jobs = [job for job in self._unfinished(client) if job.work.kind == kind]
            for job in jobs:
                if job is self._running:
                    job.cancelled.set()
                else:
                    self._waiting.remove(job)
                    job.finish("cancelled", "cancelled")
            return len(jobs)

    def read_upload(self, data: bytes) -> Image.Image:
        """A file's bytes as a picture as the model sees it: the middle square, at its size and in its colours."""
        if not 0 < len(data) <= self.limits.upload_bytes:
            raise InputError(f"the picture has {len(data)} bytes; expected 1 to {self.limits.upload_bytes}")
        picture = read_picture(io.BytesIO(data), "the picture", self.limits.upload_pixels, FORMATS)
        pixels = to_images(picture, self.pipe.tokenizer.image_size, self.pipe.tokenizer.channels)
        return to_pil(pixels[0].permute(1, 2, 0).numpy())

    def keep_picture(self, client: str, image: Image.Image) -> str:
        """Keep a picture of the model's size, to refine or edit; returns its id."""
        picture_id = secrets.token_urlsafe(16)
        with self._changed:
            self._pictures[client, picture_id] = image
            while len(self._pictures) > self.limits.kept_pictures:
                del self._pictures[next(iter(self._pictures))]
        return picture_id

    def picture(self, client: str, picture_id: str) -> Image.Image:
        """A picture of this client."""
        picture = self._pictures.get((client, picture_id))
        if picture is None:
            raise InputError("there is no picture yet; upload one, or take one that you made")
        return picture

    def close(self) -> None:
        """Cancel everything and end the worker."""
        with self._changed:
            self._closed = True
            while self._waiting:
                self._waiting.pop().finish("cancelled", "the studio is closing")
            if self._running is not None:
                self._running.cancelled.set()
            self._changed.notify()
        self._worker.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._running = None
                self._changed.wait_for(lambda: self._in_time() or self._closed)
                if self._closed:
                    return
                job = self._running = self._waiting.pop(0)
            job.carry_out(self.pipe, self.limits.run_seconds, self._clock)

    def _unfinished(self, client: str) -> list[Job]:
        """The client's jobs that wait or run. The caller holds the lock."""
        return [job for job in (*self._waiting, self._running) if job is not None and job.client == client]

    def _in_time(self) -> list[Job]:
        """Finish the jobs that have waited too long; returns those that still wait. The caller holds the lock."""
        now, bound = self._clock(), self.limits.wait_seconds
        for job in [job for job in self._waiting if now - job.submitted > bound]:
            self._waiting.remove(job)
            job.finish("late", f"gave up after waiting {bound:g} s for other runs; try again in a moment")
        return self._waiting
