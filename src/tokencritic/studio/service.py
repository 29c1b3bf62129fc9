"""The service behind the page and the HTTP API: a bounded queue of runs, one worker, and the results."""

import io
import secrets
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Literal

from PIL import Image
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.image_forms import read_picture, to_images, to_pil
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.studio.limits import Limits
from tokencritic.studio.requests import Requests
from tokencritic.studio.work import Result, Stopped, Work, png

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")  # of uploaded pictures
EVERYONE = ""  # the client of runs that all clients may see
State = Literal["waiting", "running", "done", "failed", "cancelled", "late"]

_PREVIEW_PIXELS = 128  # the longest side of a preview
_BYTES_OF_A_RUN = 2**12  # without its images
_SHARE_OF_TIME = 4  # the pause after a preview is 4 times the time to make it, to limit the cost of previews


class Busy(Exception):
    """The error for a run that the service cannot accept now. The message gives the reason."""


class Expired(InputError):
    """The error for a run or a picture that the service no longer keeps."""


class Job:
    """A run of one client. Only the worker updates a job that runs. Any thread may read it.

    asked: the request's values, from which the page restores its controls.
    message: why the run failed or was stopped.
    done: the number of finished steps.
    total: the number of all steps.
    preview: PNG files of the unfinished images.
    version: a counter that grows when the attributes above change.
    cancelled: an event that ends the run at its next step.
    """

    def __init__(self, client: str, work: Work, now: float, asked: dict[str, Any]) -> None:
        self.id, self.client, self.work, self.submitted = secrets.token_urlsafe(16), client, work, now
        self.asked = asked
        self.state: State = "waiting"
        self.message = ""
        self.done, self.total = 0.0, 1
        self.preview: list[bytes] = []
        self.version = 0
        self.result = Result()
        self.num_bytes = _BYTES_OF_A_RUN + len(str(asked))
        self.finished, self.cancelled = threading.Event(), threading.Event()
        self._next_preview = 0.0

    def carry_out(self, pipe: TokenCriticPipeline, seconds: float, clock: Callable[[], float]) -> None:
        """Do the work. The run is finished afterwards, even if the work raises an exception.

        seconds: the maximum running time.
        clock: the current time in seconds.
        """
        end = clock() + seconds

        def watch(done: float, total: int, tokens: Tensor | None) -> None:
            if self.cancelled.is_set():
                raise Stopped("stopped")
            if clock() > end:
                raise Stopped(f"stopped after {seconds:g} s, the most a run may take; ask for less")
            self.done, self.total = done, total
            before = time.perf_counter()
            if tokens is not None and before >= self._next_preview:
                self.preview = [png(small(image)) for image in pipe.images(tokens)]
                after = time.perf_counter()
                self._next_preview = after + _SHARE_OF_TIME * (after - before)
            self.version += 1

        try:
            self.result = self.work.carry_out(pipe, watch)
            self.num_bytes += self.result.num_bytes
            if self.result.stopped:
                raise Stopped(self.result.stopped)
            self.finish("done")
        except Stopped as stop:
            self.finish("cancelled" if self.cancelled.is_set() else "failed", str(stop))
        except InputError as error:
            self.finish("failed", str(error))
        except Exception as error:  # a bug ends one run, not the studio
            traceback.print_exc()
            self.finish("failed", f"the run failed ({type(error).__name__}); the server's log says more")

    def finish(self, state: State, message: str = "") -> None:
        self.message, self.state, self.preview = message, state, []
        self.version += 1
        self.finished.set()

    def cancel(self, message: str = "stopped") -> None:
        """End the run at its next step, or at once if it is waiting."""
        self.cancelled.set()
        if self.state == "waiting":
            self.finish("cancelled", message)


def small(image: Image.Image) -> Image.Image:
    """Return a copy of an image, reduced to the size of a preview."""
    image = image.copy()
    image.thumbnail((_PREVIEW_PIXELS, _PREVIEW_PIXELS))
    return image


class Service:
    """A queue of the runs of many clients on one pipeline. One run executes at a time.

    A client is any string that its page keeps. A client sees its own runs and those of `EVERYONE`. It can cancel only
    its own runs.

    model: the name or folder of the model, for command lines.
    clock: returns the current time in seconds; tests replace it.
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
        self._jobs: dict[str, Job] = {}  # by id, in the order of execution
        self._pictures: dict[tuple[str, str], Image.Image] = {}  # by client and id
        self._closed = False
        self._worker = ThreadPoolExecutor(1, "studio")

    @cached_property
    def identities(self) -> dict[str, str]:
        """The hashes of the model's parts, by name. Measured results contain the hashes of their model."""
        return {name: part.identity() for name, part in self.pipe.parts.items()}

    def submit(self, client: str, work: Work, asked: dict[str, Any] | None = None) -> Job:
        """Queue work and return its job, or raise Busy. Returns at once in both cases."""
        with self._lock:
            if self._closed:
                raise Busy("the studio is closing")
            unfinished = self._unfinished()
            own = sum(job.client == client for job in unfinished)
            if own >= self.limits.per_client:
                raise Busy(f"busy: {own} of your runs are not finished; wait for them, or stop them")
            waiting = sum(job.state == "waiting" for job in unfinished)
            if waiting >= self.limits.waiting:
                raise Busy(f"busy: {waiting} runs are waiting already; try again in a moment")
            for job in unfinished:
                if job.client == EVERYONE:  # the page's first images give way to any request
                    job.cancel()
            job = Job(client, work, self._clock(), asked or {})
            self._jobs[job.id] = job
            self._make_room(client)
            self._worker.submit(self._take_turn, job)
            return job

    def ahead(self, job: Job) -> int:
        """Return the number of runs before this one; 0 if it is running or finished. Ends runs that waited too long."""
        with self._lock:
            unfinished = self._unfinished()
            return unfinished.index(job) if job in unfinished else 0

    def find(self, client: str, job_id: str) -> Job:
        """Return a run that the client may see. Raises Expired if it is not kept."""
        job = self._jobs.get(job_id)
        if job is None or job.client not in (client, EVERYONE):
            raise Expired(f"this run has expired: the studio keeps your last {self.limits.kept_runs} runs")
        return job

    def jobs(self, client: str) -> list[Job]:
        """Return the kept runs that the client may see, oldest first."""
        with self._lock:
            return [job for job in self._jobs.values() if job.client in (client, EVERYONE)]

    def cancel(self, client: str, job_id: str) -> None:
        """Cancel a run if it belongs to the client."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is not None and job.client == client:
                job.cancel()

    def forget(self, job: Job) -> None:
        """Drop a finished run whose result is returned to its client."""
        with self._lock:
            self._jobs.pop(job.id, None)

    def read_upload(self, data: bytes) -> Image.Image:
        """Return an uploaded picture as the model sees it: the central square, in the model's size and channels.

        data: the bytes of the picture's file.
        """
        if not 0 < len(data) <= self.limits.upload_bytes:
            raise InputError(f"the picture has {len(data)} bytes; expected 1 to {self.limits.upload_bytes}")
        picture = read_picture(io.BytesIO(data), "the picture", self.limits.upload_pixels, FORMATS)
        pixels = to_images(picture, self.pipe.tokenizer.image_size, self.pipe.tokenizer.channels)
        return to_pil(pixels[0].permute(1, 2, 0).numpy())

    def keep_picture(self, client: str, image: Image.Image) -> str:
        """Keep a picture of the model's size for later requests, and return its id. May drop the oldest pictures."""
        picture_id = secrets.token_urlsafe(16)
        with self._lock:
            self._pictures[client, picture_id] = image
            own = [key for key in self._pictures if key[0] == client]
            for key in own[: max(0, len(own) - self.limits.kept_pictures)]:
                del self._pictures[key]
            while len(self._pictures) > self.limits.all_pictures:
                del self._pictures[next(iter(self._pictures))]
        return picture_id

    def picture(self, client: str, picture_id: Any) -> Image.Image:
        """Return a picture of this client. Raises Expired if it is not kept."""
        picture = self._pictures.get((client, str(picture_id)))
        if picture is None:
            raise Expired("this picture has expired; choose it once more")
        return picture

    def close(self) -> None:
        """Cancel all runs and stop the worker."""
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
        with self._lock:
            self._make_room(job.client)

    def _make_room(self, client: str) -> None:
        """Drop the oldest finished runs: first those of the client over its limit, then any over the memory limit.

        Runs of `EVERYONE` stay. The caller holds the lock.
        """
        finished = [job for job in self._jobs.values() if job.finished.is_set() and job.client != EVERYONE]
        own = [job for job in finished if job.client == client]
        gone = own[: max(0, len(own) - self.limits.kept_runs)]
        held = sum(job.num_bytes for job in self._jobs.values()) - sum(job.num_bytes for job in gone)
        for job in finished:
            if held > self.limits.kept_bytes and job not in gone:
                held -= job.num_bytes
                gone.append(job)
        for job in gone:
            del self._jobs[job.id]

    def _unfinished(self) -> list[Job]:
        """Return the running and waiting runs in order. Ends runs that waited too long. The caller holds the lock."""
        now, bound = self._clock(), self.limits.wait_seconds
        for job in self._jobs.values():
            if job.state == "waiting" and now - job.submitted > bound:
                job.finish("late", f"gave up after waiting {bound:g} s for other runs; try again in a moment")
        return [job for job in self._jobs.values() if not job.finished.is_set()]
