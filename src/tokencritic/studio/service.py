"""What the page and the HTTP API both call: a bounded queue of jobs before one worker, and the results it has made."""

import io
import secrets
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
        end = clock() + seconds

        def watch(done: float, total: int, tokens: Tensor | None) -> None:
            if self.cancelled.is_set():
                raise InputError("cancelled")
            if clock() > end:
                raise InputError(f"stopped after {seconds:g} s, the most a run may take; ask for less")
            self.done, self.total = done, total
            before = time.perf_counter()
            if tokens is not None and before >= self._next_preview:
                self.preview = png(image_grid(pipe.images(tokens[:_MOST_SHOWN]), scale=1))
                after = time.perf_counter()
                self._next_preview = after + _SHARE_OF_TIME * (after - before)

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

    def cancel(self, message: str = "cancelled") -> None:
        """End the job at its next step, or at once if it waits."""
        self.cancelled.set()
        if self.state == "waiting":
            self.finish("cancelled", message)


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
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}  # by their id, in the order of their turns
        self._pictures: dict[tuple[str, str], Image.Image] = {}  # by their client and id
        self._closed = False
        self._worker = ThreadPoolExecutor(1, "studio")

    def submit(self, client: str, work: Work) -> Job:
        """Take work in, or raise `Busy` at once. Nothing waits here."""
        with self._lock:
            if self._closed:
                raise Busy("the studio is closing")
            unfinished = self._unfinished()
            own = sum(job.client == client for job in unfinished)
            if own >= self.limits.per_client:
                raise Busy(f"busy: {own} of your runs are not finished; wait for them, or cancel them")
            waiting = sum(job.state == "waiting" for job in unfinished)
            if waiting >= self.limits.waiting:
                raise Busy(f"busy: {waiting} runs are waiting already; try again in a moment")
            job = Job(client, work, self._clock())
            self._jobs[job.id] = job
            finished = [old.id for old in self._jobs.values() if old.finished.is_set()]
            for job_id in finished[: max(0, len(finished) - self.limits.kept_runs)]:
                del self._jobs[job_id]
            self._worker.submit(self._take_turn, job)
            return job

    def ahead(self, job: Job) -> int:
        """How many jobs come before this one; 0 if it is running or finished. Also gives up jobs that waited too long."""
        with self._lock:
            unfinished = self._unfinished()
            return unfinished.index(job) if job in unfinished else 0

    def find(self, client: str, job_id: str) -> Job:
        """A job of this client."""
        job = self._jobs.get(job_id)
        if job is None or job.client != client:
            raise InputError("that run is not here any more; make it again")
        return job

    def latest(self, client: str, kind: str) -> Job | None:
        """The client's last job of a kind, unless it came to nothing."""
        with self._lock:
            jobs = [job for job in self._jobs.values() if (job.client, job.work.kind) == (client, kind)]
        return jobs[-1] if jobs and jobs[-1].state in ("waiting", "running", "done") else None

    def cancel(self, client: str, kind: str) -> int:
        """Give up the client's unfinished jobs of a kind, and nobody else's. Returns how many there were."""
        with self._lock:
            jobs = [job for job in self._unfinished() if (job.client, job.work.kind) == (client, kind)]
            for job in jobs:
                job.cancel()
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
        with self._lock:
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
        with self._lock:
            self._closed = True
            for job in self._unfinished():
                job.cancel("the studio is closing")
        self._worker.shutdown()

    def _take_turn(self, job: Job) -> None:
        with self._lock:
            if job not in self._unfinished():
                return
            job.state = "running"
        job.carry_out(self.pipe, self.limits.run_seconds, self._clock)

    def _unfinished(self) -> list[Job]:
        """The jobs that run or wait, by turn; those that have waited too long are given up. The caller holds the lock."""
        now, bound = self._clock(), self.limits.wait_seconds
        for job in self._jobs.values():
            if job.state == "waiting" and now - job.submitted > bound:
                job.finish("late", f"gave up after waiting {bound:g} s for other runs; try again in a moment")
        return [job for job in self._jobs.values() if not job.finished.is_set()]
