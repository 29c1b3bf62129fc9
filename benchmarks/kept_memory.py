"""Sampling in a process of its own, as the command line does it: with freed memory kept, and given back as glibc does it.

    python benchmarks/kept_memory.py [--rounds 5] [--num 16]

Each round runs both, one after the other; "ratio" is of the medians. The images are the same.
"""

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

CHILD = """
import hashlib, json, resource, sys, time
from tokencritic.cli import main
if sys.argv[1] == "kept":
    main._keep_freed_memory()
import torch
from tokencritic.pipeline import TokenCriticPipeline
pipe = TokenCriticPipeline.from_pretrained("fashion-mnist")
labels = torch.arange(int(sys.argv[2])) % pipe.generator.num_classes
faults, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
tokens = pipe.sample_tokens(labels, 0, pipe.settings())
seconds = time.perf_counter() - start
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
print(json.dumps({"seconds": seconds, "faults": faults, "tokens": hashlib.sha256(tokens.numpy().tobytes()).hexdigest()}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num", type=int, default=16, help="images")
    given = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {"given back": [], "kept": []}
    for _ in range(given.rounds):
        for name, results in found.items():
            command = [sys.executable, "-c", CHILD, name, str(given.num)]
            results.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    if len({result["tokens"] for results in found.values() for result in results}) != 1:
        raise SystemExit("the two made different images")
    medians = {name: statistics.median(result["seconds"] for result in results) for name, results in found.items()}
    for name, results in found.items():
        times = ", ".join(f"{result['seconds']:.2f}" for result in results)
        faults = statistics.median(result["faults"] for result in results)
        print(f"{name}: median {medians[name]:.2f} s ({times}), {faults:.0f} page faults")
    print(f"ratio {medians['kept'] / medians['given back']:.2f}")


if __name__ == "__main__":
    main()
