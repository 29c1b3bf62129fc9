"""Time loading and sampling on a CPU with and without two optimizations of the command line.

    python benchmarks/command_line.py [--rounds 5] [--num 16]

- Loading a model skips the random initialisation of the weights, which would import torch's compiler.
- Sampling keeps freed memory, which glibc would return to the system and request again.

Each round runs both variants in separate processes. Ratios are of the medians. The images must be equal.
"""

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

CHILD = """
import contextlib, hashlib, json, sys, time
saving, num = sys.argv[1] == "with", int(sys.argv[2])
if saving:
    from tokencritic.cli import main
    main._keep_freed_memory()
import torch
from tokencritic.models import saved
from tokencritic.pipeline import TokenCriticPipeline
if not saving:
    saved._NoInitialization = contextlib.nullcontext
start = time.perf_counter()
pipe = TokenCriticPipeline.from_pretrained("fashion-mnist")
loaded = time.perf_counter()
tokens = pipe.sample_tokens(torch.arange(num) % pipe.generator.num_classes, 0, pipe.settings())
seconds = {"loading": loaded - start, "sampling": time.perf_counter() - loaded}
print(json.dumps({**seconds, "tokens": hashlib.sha256(tokens.numpy().tobytes()).hexdigest()}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num", type=int, default=16, help="the number of images")
    given = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {"without": [], "with": []}
    for _ in range(given.rounds):
        for name, results in found.items():
            command = [sys.executable, "-c", CHILD, name, str(given.num)]
            results.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    if len({result["tokens"] for results in found.values() for result in results}) != 1:
        raise SystemExit("the two variants sampled different images; expected equal ones")
    for what in ("loading", "sampling"):
        medians = {name: statistics.median(result[what] for result in results) for name, results in found.items()}
        for name, results in found.items():
            times = ", ".join(f"{result[what]:.2f}" for result in results)
            print(f"{what} {name}: median {medians[name]:.2f} s ({times})")
        print(f"{what}: ratio {medians['with'] / medians['without']:.2f}")


if __name__ == "__main__":
    main()
