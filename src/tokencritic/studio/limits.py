"""How much may be asked of a studio. Importable without torch."""

from dataclasses import dataclass

from tokencritic.errors import InputError


@dataclass(frozen=True)
class Limits:
    """How much one visitor, and all of them together, may ask for.

    images, steps, candidates: of one run. nfe: network evaluations of one run, over all its images.
    upload_bytes, upload_pixels: of one picture. waiting: runs that wait for their turn. per_client: unfinished runs of one
    visitor, one for each tab. wait_seconds: how long a run waits before it is given up. run_seconds: how long it may take.
    kept_runs, kept_pictures: how many of one visitor stay in memory. kept_bytes: of the runs of all visitors.
    all_pictures: of all visitors. trace_bytes: of the recorded steps of one run.
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
