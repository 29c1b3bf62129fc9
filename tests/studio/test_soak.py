"""Many requests of many kinds over loopback: the studio's memory stays flat. Bounded in count and in time."""

import base64
import json
import os
import re
import time
from pathlib import Path

import pytest
from studio.live import api, call, finished, started
from studio.toy import noise_picture, png_bytes

REQUESTS, WARM, SECONDS = 500, 100, 240


def memory(process):
    """Bytes that a process holds."""
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())[1]) * 1024


def one_of_each(address, number):
    """Some requests of a visitor who is new each time."""
    mine = call(address, "/")[1]["set-cookie"].split(";")[0]
    picture = png_bytes(noise_picture(300, 200, 3, seed=number))
    api(address, "/api/generate", {"num": 1 + number % 64, "seed": number})
    api(address, "/api/refine", {"image": base64.b64encode(picture).decode(), "seed": number})
    own = api(address, "/studio/pictures", picture, Cookie=mine)[1]["id"]
    call(address, f"/studio/pictures/{own}.png", Cookie=mine)
    values = {"picture": own, "region": [number % 16], "seed": number}
    for kind, asked in (("generate", {"num": 16}), ("edit", values)):
        run = api(address, "/studio/runs", {"kind": kind, "values": asked}, Cookie=mine)[1]["id"]
        finished(address, run, Cookie=mine)
        for name in ("image_0.png", "steps_0.png"):
            assert call(address, f"/studio/runs/{run}/0/{name}", Cookie=mine)[0] == 200
    assert call(address, f"/studio/runs/{run}/0/gif.gif", Cookie=mine)[0] == 200
    return 14


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_is_flat_after_the_first_requests(model):
    with started(os.environ.get("TOKENCRITIC_STUDIO_MODEL", model)) as (address, process):
        done, held, end = 0, [], time.monotonic() + SECONDS
        while done < REQUESTS and time.monotonic() < end:
            done += one_of_each(address, done)
            held.append((done, memory(process)))
        after = [size for count, size in held if count > WARM]
        print(json.dumps({"requests": done, "MB": [round(size / 2**20) for _, size in held]}))
        assert after, f"only {done} requests in {SECONDS} s"
        assert max(after) <= 1.1 * after[0], held
