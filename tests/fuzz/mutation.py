"""Spoilt files for the readers, and the rule that each of them keeps.

A case writes valid files to a folder, names those to spoil, and reads them. `check` spoils one file at a time: flipped,
missing and repeated bytes, values of other types, huge numbers, deep nesting, or bytes at random. The reader may succeed
or raise InputError with one line of bounded length, within 2 seconds of CPU time and 1 GiB of memory.

`make fuzz` runs each case for FUZZ_SECONDS, from another seed each time; without it, a few examples are run.
"""

import contextlib
import copy
import io
import json
import os
import random
import resource
import signal
import time
import traceback
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from tokencritic import InputError

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
EXAMPLES, SHORT = 25, 0.3
CPU_SECONDS, MEMORY, LINE = 2.0, 2**30, 2000

WORDS = ["", "x", "\x1b[31m", "a\nb", "\0", "é", "nan", "-1", "critic", "../..", "model", "9" * 30]
NUMBERS = [0, -1, 1, 2, 3, 2**31, 2**63, 2**64, 10**12, 10**18, -(2**63), 1.5, -0.5, 1e-300, 1e308, float("inf")]
VALUES = [None, True, False, *NUMBERS, float("nan"), *WORDS, [], {}, [[]], [None], {"a": 1}, {"": []}, [1] * 100]
RAW = [
    b"",
    b"\0",
    b"null",
    b"[" * 10**4,
    b'{"a":' * 10**4,
    b"1" * 5000,
    b"-" * 50,
    b"\xff\xfe",
    b"\x80\x04",
    b"PK\x03\x04",
]
YAML = [
    *(b"a: &x [1]\nb: *x\n", b"a: &a [x]\nb: &b [*a, *a]\n", b"- " * 5000, b"a: !!python/object:os.system {}\n"),
    *(
        b"!!binary x",
        b"2001-99-99",
        b"a: 2001-13-41\n",
        b"<<: 1\n",
        b"? [a]\n: b\n",
        b"1: 2\n",
        b"null: 3\n",
        b"%YAML 9\n",
    ),
    *(b"a: !!int x\n", b"a: !!float []\n", b"a: !!set {}\n", b"x: 1_0:99999\n", b"---\n---\n", b"{a: {a: " * 30, b"\t"),
    *(
        b"model: 7\n",
        b"training: []\n",
        b"training: {betas: 3}\n",
        b"config: x.yaml\n",
        b"seed: 1e999\n",
        b"'",
        b"x: .inf\n",
    ),
]


class TooLong(BaseException):
    """An example took more than its time."""


@dataclass(frozen=True)
class Case:
    """make: writes the valid files. spoilt: how each is spoilt. read: reads the folder."""

    make: Callable[[Path], Any]
    spoilt: dict[str, Callable[[random.Random, bytes], bytes]]
    read: Callable[[Path], Any]
    valid: bool = True  # whether the files are read without an error


def check(name: str, case: Case, folder: Path) -> None:
    """Read spoilt files: a few, or as many as the time allows. Fails with all findings, one for each line of code."""
    case.make(folder)
    whole = {file: (folder / file).read_bytes() for file in case.spoilt}
    with contextlib.suppress(*(() if case.valid else (InputError,))):
        case.read(folder)

    def example(rng: random.Random) -> None:
        file = rng.choice(list(case.spoilt))
        (folder / file).write_bytes(case.spoilt[file](rng, whole[file]))
        try:
            obey(lambda: case.read(folder))
        finally:
            (folder / file).write_bytes(whole[file])

    run(name, example)


def run(name: str, example: Callable[[random.Random], object]) -> None:
    """Run examples for FUZZ_SECONDS or, without it, a few. Fails with all findings, one for each line of code."""
    first, end = time.time_ns() if SECONDS else 0, time.monotonic() + (SECONDS or SHORT)
    findings: dict[str, str] = {}
    for number in range(first, first + (10**9 if SECONDS else EXAMPLES)):
        if time.monotonic() > end:
            break
        seed = f"{name} {number}"
        try:
            example(random.Random(seed))
        except (Exception, TooLong) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} in {last.filename}, line {last.lineno}"
            findings.setdefault(where, f"{seed!r}: {str(error)[:300]}")
    assert not findings, "\n".join(f"{where}: random.Random of {what}" for where, what in findings.items())


def obey(read: Callable[[], Any]) -> None:
    """Run a reader within bounds; it may raise InputError."""
    error = None
    with bounded():
        try:
            read()
        except InputError as raised:
            error = raised
    if error is not None:
        line = str(error)
        assert line
        assert "\n" not in line.replace("a\nb", ""), "several lines"  # of a name in the file, which commands escape
        assert len(line) <= LINE, f"{len(line)} characters: {line:.200}"
        assert not any(word in line for word in ("alloc", "MemoryError")), f"the memory ran out: {line}"


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """A context with a limit of CPU time and of memory."""

    def stop(*_: object) -> None:
        raise TooLong(f"more than {CPU_SECONDS} s of CPU time")

    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else None
    before, most = signal.signal(signal.SIGPROF, stop), resource.getrlimit(resource.RLIMIT_AS)
    if pages is not None:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, most[1]))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, most)


def spoil_bytes(rng: random.Random, content: bytes) -> bytes:
    """Bytes with a few mistakes, or other bytes altogether."""
    kind = rng.randrange(10)
    if kind == 0:
        return rng.choice(RAW)
    if kind == 1:
        return rng.randbytes(rng.randrange(300))
    if kind == 2:
        return content[: rng.randrange(len(content) + 1)]
    if kind == 3:
        return content + rng.choice([b"\0", b"}", content, rng.randbytes(9)])
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        place = rng.choice([rng.randrange(len(changed) + 1), rng.randrange(min(256, len(changed) + 1))])
        new = rng.choice([rng.randbytes(rng.randrange(5)), bytes([rng.choice([0, 1, 127, 128, 255])]), b"9", b"-"])
        gone = rng.choice([len(new), len(new), rng.randrange(9)])
        changed[place : place + gone] = new
    return bytes(changed)


def spoil_value(rng: random.Random, value: Any) -> Any:
    """A JSON value with one to three parts replaced, removed, renamed, exchanged or wrapped."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = list(_places(value))
        if not places:
            return rng.choice(VALUES)
        owner, key = rng.choice(places)
        kind = rng.randrange(10)
        if kind < 5:
            owner[key] = copy.deepcopy(rng.choice(VALUES))
        elif kind == 5 and isinstance(owner[key], int | float):
            with contextlib.suppress(OverflowError):
                owner[key] = rng.choice(
                    [owner[key] + 1, owner[key] - 1, owner[key] * 2, -owner[key], owner[key] * 1000]
                )
        elif kind == 6:
            del owner[key]
        elif kind == 7:
            owner[key] = [owner[key]] if rng.random() < 0.5 else {"a": owner[key]}
        elif kind == 8 and isinstance(owner, dict):
            owner[rng.choice(WORDS)] = owner[key]
        else:
            other, place = rng.choice(places)
            if other is not owner and isinstance(other, dict | list):
                owner[key] = copy.deepcopy(other[place] if _has(other, place) else None)
    return value


def _has(owner: Any, key: Any) -> bool:
    return key in owner if isinstance(owner, dict) else key < len(owner)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def spoil_json(rng: random.Random, content: bytes) -> bytes:
    """A JSON file with spoilt values, or spoilt bytes."""
    if rng.random() < 0.3:
        return spoil_bytes(rng, content)
    text = json.dumps(spoil_value(rng, json.loads(content)), ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.1:  # a value that JSON can hold, and Python's own numbers cannot
        text = text.replace(rng.choice("0123456789"), rng.choice(["1" * 5000, "1e999", "[" * 200 + "]" * 200]), 1)
    return text.encode("utf-8", "surrogateescape")


def spoil_yaml(rng: random.Random, content: bytes) -> bytes:
    """A YAML file with spoilt values, strange lines, or spoilt bytes."""
    import yaml

    kind = rng.randrange(4)
    if kind == 0:
        return spoil_bytes(rng, content)
    if kind == 1:
        lines = content.splitlines(keepends=True)
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(YAML) + b"\n")
        return b"".join(lines)
    if kind == 2:
        return rng.choice(YAML)
    return yaml.safe_dump(spoil_value(rng, yaml.safe_load(content))).encode("utf-8", "surrogateescape")


def spoil_tensors(rng: random.Random, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors with other names, shapes and types; some are missing."""
    found = dict(tensors)
    for _ in range(rng.choice([1, 1, 2, 4])):
        name = rng.choice(list(found))
        tensor, kind = found[name], rng.randrange(8)
        tensor = tensor.real if tensor.is_complex() else tensor
        if kind == 0:
            del found[name]
        elif kind == 1:
            found[rng.choice([name + ".x", "x", name.replace("0", "7"), name.replace(".", "..")])] = found.pop(name)
        elif kind == 2:
            found[name] = tensor.to(rng.choice([torch.int64, torch.bool, torch.float16, torch.uint8, torch.complex64]))
        elif kind == 3:
            found[name] = torch.zeros(rng.choice([(), (0,), (1,), (3, 0), (1,) * 6, (*tensor.shape, 1)]))
        elif kind == 4:
            found[name] = torch.zeros([max(0, side + rng.choice([-1, 0, 0, 1])) for side in tensor.shape])
        elif kind == 5:
            found[name] = tensor.flatten()
        elif kind == 6:
            found[name.replace("0", str(rng.choice([1, 9, 10**6])))] = tensor
        elif tensor.is_floating_point():
            found[name] = torch.full_like(tensor, rng.choice([float("nan"), float("inf"), 1e38]))
        if not found:
            return {"x": torch.zeros(1)}
    return found


def spoil_safetensors(rng: random.Random, content: bytes) -> bytes:
    """A safetensors file with spoilt tensors, a spoilt header, or spoilt bytes."""
    kind = rng.randrange(3)
    if kind == 0:
        return spoil_bytes(rng, content)
    if kind == 1:
        tensors = spoil_tensors(rng, safetensors.torch.load(content))
        return safetensors.torch.save({name: tensor.clone().contiguous() for name, tensor in tensors.items()})
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(spoil_value(rng, json.loads(content[8 : 8 + size]))).encode()
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def spoil_torch(rng: random.Random, content: bytes) -> bytes:
    """A torch file with spoilt tensors, a spoilt member of its archive, or spoilt bytes."""
    if rng.random() < 0.4:
        tree = torch.load(io.BytesIO(content), weights_only=True)
        wrapped = rng.choice([spoil_tensors(rng, tree), {"state_dict": rng.choice(VALUES)}, rng.choice(VALUES), [tree]])
        stream = io.BytesIO()
        torch.save(wrapped, stream)
        return stream.getvalue()
    return spoil_zip(rng, content)


def spoil_zip(rng: random.Random, content: bytes) -> bytes:
    """An archive with a spoilt, missing or repeated member, or spoilt bytes."""
    if rng.random() < 0.3 or not zipfile.is_zipfile(io.BytesIO(content)):
        return spoil_bytes(rng, content)
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as new:
        chosen, kind = rng.choice(old.namelist()), rng.randrange(5)
        for name in old.namelist():
            part = old.read(name)
            if name == chosen and kind == 0:
                continue
            if name == chosen and kind in (1, 2):
                part = spoil_bytes(rng, part)
            if name == chosen and kind == 3:
                name = rng.choice(["x", name + "x", "../" + name])
            new.writestr(name, part)
    return stream.getvalue()


def spoil_npz(rng: random.Random, content: bytes) -> bytes:
    """An .npz with an array of another shape or type, or of strange values, or a spoilt archive."""
    import numpy as np

    if rng.random() < 0.4:
        return spoil_zip(rng, content)
    with np.load(io.BytesIO(content)) as arrays:
        found = dict(arrays)
    name = rng.choice(list(found))
    found[rng.choice([name, name, name, "x"])] = spoil_array(rng, found.pop(name))
    stream = io.BytesIO()
    np.savez_compressed(stream, **found)
    return stream.getvalue()


def spoil_npy(rng: random.Random, content: bytes) -> bytes:
    """An .npy file, as `spoil_npz`."""
    import numpy as np

    if rng.random() < 0.5:
        return spoil_bytes(rng, content)
    stream = io.BytesIO()
    np.save(stream, spoil_array(rng, np.load(io.BytesIO(content))))
    return stream.getvalue()


def spoil_array(rng: random.Random, array: Any) -> Any:
    """An array of another shape, type or content."""
    import numpy as np

    kind = rng.randrange(6)
    if kind == 0:
        with contextlib.suppress(ValueError):
            return array.astype(rng.choice(["f4", "f8", "i8", "u1", "u8", "?", "c8", "U3", "S2", "M8[s]", ">i4"]))
    if kind == 1:
        return rng.choice(
            [array[:0], array[..., None], array.reshape(-1), array[:1], array.T, np.float32(3), array[None]]
        )
    if kind == 2 and array.size and array.dtype.kind in "iuf":
        changed = array.copy()
        low = changed.dtype.type(0) if changed.dtype.kind == "f" else np.iinfo(changed.dtype).min
        high = changed.dtype.type(np.inf) if changed.dtype.kind == "f" else np.iinfo(changed.dtype).max
        changed.flat[rng.randrange(changed.size)] = rng.choice([low, high])
        return changed
    if kind == 3:
        return np.asfortranarray(array)
    if kind == 4:
        return np.array(rng.choice(["x", 1, 2**62, 1.5, b"x", [[1, 2], [3, 4]]]))
    return np.zeros(rng.choice([(), (0,), (0, 0), (3,), (1, 2, 3, 4), (2, 2)]), rng.choice(["u1", "i8", "f4", "f8"]))


def spoil_png(rng: random.Random, content: bytes) -> bytes:
    """A PNG with a spoilt, missing, repeated or moved chunk whose checksum is right, or spoilt bytes."""
    if rng.random() < 0.3 or content[:4] != b"\x89PNG":
        return spoil_bytes(rng, content)
    chunks, place = [], 8
    while place < len(content):
        size = int.from_bytes(content[place : place + 4], "big")
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += 12 + size
    index, kind = rng.randrange(len(chunks)), rng.randrange(5)
    if kind == 0:
        del chunks[index]
    elif kind == 1:
        chunks.insert(rng.randrange(len(chunks) + 1), chunks[index])
    elif kind == 2:
        kinds = [b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"PLTE", b"tRNS", b"acTL"]
        texts = [b"", b"token-critic\0[" * 500, rng.randbytes(40)]
        chunks.insert(rng.randrange(len(chunks) + 1), (rng.choice(kinds), rng.choice(texts)))
    else:
        chunks[index] = chunks[index][0], spoil_bytes(rng, chunks[index][1])
    parts = [content[:8]]
    for name, data in chunks:
        parts.append(len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big"))
    return b"".join(parts)


def spoil_text(rng: random.Random, text: str) -> str:
    """A text with a few characters changed."""
    letters = list(text)
    for _ in range(rng.choice([1, 1, 2, 4])):
        place = rng.randrange(len(letters) + 1)
        letters[place : place + rng.randrange(3)] = rng.choice(
            [[], ["."], [":"], ["_"], ["\n"], ["é"], ["x"], ["\x1b"], ["\0"]]
        )
    return "".join(letters)
