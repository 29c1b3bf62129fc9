"""Limits of the requests to a studio. Importable without torch."""

from dataclasses import dataclass

from tokencritic.errors import InputError


@dataclass(frozen=True)
class Limits:
    """The maximum that one visitor, and all visitors together, can request.

    A comparison samples with two settings. `images`, `steps` and `nfe` then apply to each of them.

    images: the images of one run.
    steps: the steps of one run.
    candidates: the candidates per image.
    nfe: the network evaluations of one run, over all its images.
    upload_bytes: the file size of an uploaded picture.
    upload_pixels: the pixels of an uploaded picture.
    waiting: the waiting runs of all visitors.
    per_client: the unfinished runs of one visitor; by default one for each tab.
    wait_seconds: the waiting time of a run. A run that waits longer ends as `late`.
    run_seconds: the running time of a run.
    kept_runs: the finished runs of one visitor that stay in memory.
    kept_pictures: the pictures of one visitor that stay in memory.
    kept_bytes: the memory of the runs of all visitors.
    all_pictures: the pictures of all visitors that stay in memory.
    trace_bytes: the memory of the recorded steps of one run.
    """

    images: int = 64
    steps: int = 128
    candidates: int = 16
    nfe: int = 50_000
    upload_bytes: int = 16 * 2**20
    upload_pixels: int = 2**25
    waiting: int = 8
    per_client: int = 4
    wait_seconds: float = 60.0
    run_seconds: float = 600.0
    kept_runs: int = 24
    kept_pictures: int = 24
    kept_bytes: int = 2**28
    all_pictures: int = 1024
    trace_bytes: int = 2**26

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise InputError(f"{name} is {value}; it must be above 0")
