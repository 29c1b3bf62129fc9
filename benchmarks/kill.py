"""Kill a training run at random moments, and compare its weights with those of an undisturbed run.

    python benchmarks/kill.py [--kills 20] [--seed 0]

`token-critic train` trains a small generator on the tokens of the bundled model. The same command resumes the run after
each SIGKILL. Two thirds of the kills come up to 0.3 s after a random step, and hit updates, validations and
checkpoints. The others come while the process starts and loads. The exit code is 1 if a tensor of the last checkpoint,
a byte of the averaged model or a training line of the log differs.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import safetensors.torch
import torch

STEPS_PER_KILL, LAST_STEPS = 12, 100  # no kill targets the last steps, because the run could end first
COMMAND = (
    *(sys.executable, "-m", "tokencritic.cli.main", "train", "generator", "fashion-mnist", "--data", "fashion-mnist"),
    *("--model.width", "32", "--model.layers", "1", "--model.heads", "2", "--model.mlp_width", "64"),
    *("--model.dropout", "0.1", "--training.batch_size", "8", "--training.log_every", "1", "--device", "cpu"),
    *("--training.checkpoint_seconds", "0.1", "--training.validate_seconds", "2"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="the number of SIGKILLs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    given = parser.parse_args()
    steps, start = given.kills * STEPS_PER_KILL + LAST_STEPS, time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        whole, cut = Path(place) / "whole", Path(place) / "cut"
        undisturbed = _start(whole, steps)
        _wait_for(undisturbed, whole, 0)
        startup, rng = time.monotonic() - start, random.Random(given.seed)
        _wait(undisturbed, whole)
        moments = sorted(rng.randrange(steps - LAST_STEPS) for _ in range(given.kills))
        for step in moments:
            process = _start(cut, steps)
            if rng.random() < 1 / 3:
                time.sleep(rng.uniform(0, startup))
            else:
                _wait_for(process, cut, step)
                time.sleep(rng.uniform(0, 0.3))
            os.kill(process.pid, signal.SIGKILL)
            if process.wait() != -signal.SIGKILL:
                raise SystemExit(f"the training ended before it was killed, at step {_last_step(cut)} of {steps}")
        _wait(_start(cut, steps), cut)
        resumes = _output(cut).count("resuming at step")
        differing = _differing(whole, cut, steps)
    seconds = time.monotonic() - start
    print(f"{given.kills} kills, {resumes} resumes from a checkpoint, {steps} steps, {seconds:.0f} s")
    print("; ".join(differing) or "the weights, the optimizer's state and the log are identical")
    sys.exit(bool(differing))


def _start(run: Path, steps: int) -> "subprocess.Popen[bytes]":
    with run.with_suffix(".out").open("ab") as output:
        return subprocess.Popen([*COMMAND, "--run", str(run), "--steps", str(steps)], stdout=output, stderr=output)


def _wait(process: "subprocess.Popen[bytes]", run: Path) -> None:
    if process.wait() != 0:
        raise SystemExit(f"the training failed: {_output(run)[-2000:]}")


def _output(run: Path) -> str:
    return run.with_suffix(".out").read_text()


def _log(run: Path) -> list[dict[str, object]]:
    """Return the complete lines of a log, without the times."""
    file = run / "log.jsonl"
    lines = file.read_bytes().split(b"\n")[:-1] if file.is_file() else []
    return [{name: value for name, value in json.loads(line).items() if name != "seconds"} for line in lines]


def _last_step(run: Path) -> int:
    return max((int(str(line["step"])) for line in _log(run)), default=-1)


def _wait_for(process: "subprocess.Popen[bytes]", run: Path, step: int) -> None:
    """Wait until this process has logged the step or a later one, or has ended."""
    before = (run / "log.jsonl").stat().st_mtime_ns if (run / "log.jsonl").is_file() else 0
    while process.poll() is None:
        file = run / "log.jsonl"
        if file.is_file() and file.stat().st_mtime_ns != before and _last_step(run) >= step:
            return
        time.sleep(0.002)


def _differing(one: Path, other: Path, steps: int) -> list[str]:
    """Return descriptions of the differences between two runs."""
    places = [run / "checkpoints" / f"{steps:09}" / "state.safetensors" for run in (one, other)]
    first, second = (safetensors.torch.load_file(place) for place in places)
    names = sorted(name for name in first.keys() | second.keys() if not _same(first.get(name), second.get(name)))
    found = [f"{len(names)} of {len(first)} tensors differ, such as {names[0]}"] if names else []
    model = "generator/model.safetensors"
    found += ["the averaged models differ"] if (one / model).read_bytes() != (other / model).read_bytes() else []
    logs = [[line for line in _log(run) if line["kind"] == "training"] for run in (one, other)]
    return found + (["the logs differ"] if logs[0] != logs[1] else [])


def _same(one: object, other: object) -> bool:
    return isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and torch.equal(one, other)


if __name__ == "__main__":
    main()
