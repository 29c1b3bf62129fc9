"""Time the decoding, drawing and writing of pictures of sampling steps on one thread, without sampling.

    python benchmarks/pictures.py [--model fashion-mnist] [--images 16] [--steps 18] [--rounds 5] [--out FOLDER]

Fails if the median time of a picture is 2 seconds or more.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from tokencritic import TokenCriticPipeline, Trace
from tokencritic.pictures import run_of, step_frames, write_steps

GOAL = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="fashion-mnist", help="a model with a critic")
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--steps", type=int, default=18)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="keep the pictures in this folder")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pipe = TokenCriticPipeline.from_pretrained(arguments.model)
    labels = torch.arange(arguments.images) % pipe.generator.num_classes
    names = [pipe.class_names[label] for label in labels] if pipe.class_names else []
    trace, start = Trace(), time.perf_counter()
    pipe.sample_tokens(labels, 0, pipe.settings(steps=arguments.steps, sampler="critic"), on_step=trace)
    print(
        f"{arguments.images} images, {arguments.steps} steps, one thread: {time.perf_counter() - start:.2f} s of sampling"
    )
    run = run_of("critic", trace)
    size = step_frames(run, pipe.tokenizer, names)[0].size  # also warms up fonts and colours
    print(f"{len(run.steps)} frames of {size[0]} x {size[1]} pixels; median of {arguments.rounds}, without sampling:")
    slow = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for ending in ("gif", "png"):
            seconds = []
            for _ in range(arguments.rounds):
                start = time.perf_counter()
                write_steps(folder / f"steps.{ending}", run, pipe.tokenizer, names)
                seconds.append(time.perf_counter() - start)
            median, kilobytes = statistics.median(seconds), (folder / f"steps.{ending}").stat().st_size / 1000
            slow |= median >= GOAL
            print(f"  {ending:4}  {median:5.2f} s  (goal: less than {GOAL:g} s)  {kilobytes:6.0f} kB")
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
