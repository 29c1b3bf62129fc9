"""Load test of the studio: 50 clients request images at the same time.

    python benchmarks/studio_load.py [--model fashion-mnist] [--clients 50] [--images 16] [--rounds 3] [--seconds 300]

Starts a studio on a free local port. Fails if

- a client gets anything but images or "busy", or no client gets images;
- memory grows by more than 1 GB after the first round;
- the page takes 3 seconds or more afterwards;
- the images of a single client take 3 seconds or more.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from functools import partial
from pathlib import Path

MOST_CLIENTS, MOST_GROWTH, MOST_SECONDS = 200, 2**30, 3.0
CODE = "import sys; from tokencritic.cli.studio import main; main(sys.argv[1:])"


def press(address: str, body: dict[str, int], seconds: float) -> tuple[int, float, str]:
    """Send one request and return (status, seconds, error message). The status is 0 without an answer."""
    start = time.perf_counter()
    request = urllib.request.Request(f"{address}api/generate", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            told = json.loads(answer.read())
            status, said = answer.status, "" if len(told["images"]) == body["num"] else "too few images"
    except urllib.error.HTTPError as error:
        status, said = error.code, json.loads(error.read()).get("error", "")
    except OSError as error:
        status, said = 0, str(error)
    return status, time.perf_counter() - start, said


def memory(process: int) -> int:
    """Return the resident memory of a process in bytes, or 0 if it is unknown."""
    status = Path(f"/proc/{process}/status")
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return 0 if found is None else int(found[1]) * 1024


def load(address: str, process: int, arguments: argparse.Namespace) -> bool:
    """Run all rounds, and return whether all goals are met."""
    end, well, held = time.monotonic() + arguments.seconds, True, []
    press(address, {"num": arguments.images}, arguments.seconds)  # the first run warms up
    status, alone, said = press(address, {"num": arguments.images}, arguments.seconds)
    print(f"one client, {arguments.images} images: {alone:.2f} s (goal: less than {MOST_SECONDS:g} s) {said}")
    well &= status == 200 and alone < MOST_SECONDS
    for number in range(arguments.rounds):
        left = end - time.monotonic()
        if left <= 0:
            print(f"stopped after {arguments.seconds:g} s")
            return False
        bodies = [{"num": arguments.images, "seed": 1000 * number + client} for client in range(arguments.clients)]
        with concurrent.futures.ThreadPoolExecutor(arguments.clients) as many:
            answers = list(many.map(partial(press, address, seconds=left), bodies))
        wrong = [(status, said) for status, _, said in answers if status != 200 and "busy" not in said]
        counts = Counter(
            "images" if status == 200 else "busy" if "busy" in said else "wrong" for status, _, said in answers
        )
        refused = [seconds for status, seconds, _ in answers if status == 503]
        held.append(memory(process))
        start = time.perf_counter()
        urllib.request.urlopen(address, timeout=60).read()
        page = time.perf_counter() - start
        print(
            f"round {number + 1}: {dict(counts)}, slowest {max(answer[1] for answer in answers):.1f} s, "
            f"slowest busy {max(refused, default=0):.2f} s, page after {page:.2f} s, memory {held[-1] / 2**20:.0f} MB"
        )
        well &= not wrong and page < MOST_SECONDS and counts["images"] > 0
        for status, said in wrong[:3]:
            print(f"  wrong: {status} {said}")
    return well and max(held) - held[0] <= MOST_GROWTH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="fashion-mnist")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=300, help="maximum duration")
    arguments = parser.parse_args()
    if not 1 <= arguments.clients <= MOST_CLIENTS:
        parser.error(f"--clients is {arguments.clients}; expected 1 to {MOST_CLIENTS}")
    if importlib.util.find_spec("uvicorn") is None:
        print("skipped: uvicorn is not installed (pip install 'token-critic[studio]')")
        return
    command = [sys.executable, "-c", CODE, arguments.model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            well = found is not None and load(found[0], process.pid, arguments)
        finally:
            process.terminate()
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
