"""Atomic writes, and reading of files that may be broken."""

import json
import math
import os
import pickle
import re
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tokencritic.bounds import DEPTH, DIGITS, FILE_BYTES, YAML_BYTES
from tokencritic.errors import InputError

# Exceptions that reading a broken file may raise.
BROKEN = (
    *(OSError, EOFError, MemoryError, ArithmeticError, AttributeError, LookupError, RuntimeError, SyntaxError),
    # The header of an .npy file is a Python expression.
    *(
        tokenize.TokenError,
        TypeError,
        ValueError,
        pickle.UnpicklingError,
        zipfile.BadZipFile,
        zlib.error,
        SafetensorError,
    ),
)
_LONG_NUMBER = re.compile(rf"[-+]?[0-9_:]{{{DIGITS + 1},}}")


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Write to a temporary file in the same folder, then rename it. On failure the temporary file is removed.

    write: called with the path of the temporary file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        write(temporary)
        temporary.chmod(mode)  # the mode of a new file; safetensors would leave it readable by its owner only
        temporary.replace(path)
    except OSError as error:
        error.filename = str(path)  # the error of a full disk names no file, and users do not know the temporary file
        raise
    finally:
        with suppress(OSError):  # a failure here must not hide the first one
            temporary.unlink()


@contextmanager
def reading(file: str | Path, what: str) -> Iterator[None]:
    """Return a context that converts errors while reading a file to InputError.

    what: the expected content, such as "JSON".
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if not isinstance(error, BROKEN) and type(error).__name__ != "DecompressionBombError":  # an error of Pillow
            raise
        if isinstance(error, OSError) and error.strerror is not None:  # a fault of the disk, not of the content
            raise InputError(f"{file} cannot be read: {error.strerror}") from error
        raise InputError(f"{file} is not {what}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its class if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def read_whole(file: str | Path, most: int = FILE_BYTES) -> bytes:
    """Return the content of a small file. Raises InputError for one of more than `most` bytes."""
    with reading(file, "readable"), Path(file).open("rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise InputError(f"{file} has more than {most} bytes; expected a smaller file")
    return content


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object."""
    values = parse_json(file, read_whole(file))
    if not isinstance(values, dict):
        raise InputError(f"{file} holds a {type(values).__name__}; expected an object")
    return values


def parse_json(place: object, content: str | bytes) -> Any:
    """Parse JSON with bounds on its nesting and its numbers.

    place: the file in error messages.
    """
    with reading(str(place), "JSON"):
        text = content if isinstance(content, str) else content.decode("utf-8")
        if len(text) > FILE_BYTES:
            raise ValueError(f"it has more than {FILE_BYTES} characters")
        values = json.loads(text, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_parse_float)
    _check_depth(place, values)
    return values


def read_yaml(file: str | Path) -> dict[str, Any]:
    """Read a YAML mapping. Aliases, which can grow without bound, and repeated keys raise InputError."""
    import yaml

    content, levels = read_whole(file, YAML_BYTES), 0
    try:
        with reading(file, "a YAML text file"):
            text = content.decode("utf-8")
            for event in yaml.parse(text, yaml.SafeLoader):
                if isinstance(event, yaml.AliasEvent):
                    raise InputError(f"{file} has the alias *{event.anchor}; expected a config without aliases")
                if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _LONG_NUMBER.fullmatch(event.value):
                    raise InputError(f"{file} has a number of more than {DIGITS} digits: {event.value[:DIGITS]}...")
                levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
                if levels > DEPTH:
                    raise InputError(f"{file} is nested deeper than {DEPTH} levels; expected a config")
            loader = yaml.SafeLoader(text)
            if (node := loader.get_single_node()) is not None and (key := _repeated_key(node)) is not None:
                raise InputError(f"{file} has {key} twice in one mapping; expected each name once")
            values = loader.construct_document(node) if node is not None else None
    except yaml.YAMLError as error:
        raise InputError(f"{file} is not a YAML config: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise InputError(f"{file} holds a {type(values).__name__}; expected a mapping")
    return values


def _repeated_key(node: Any) -> str | None:
    """Return a key that a mapping of a YAML document holds twice, or None. PyYAML would keep the last value."""
    seen: set[str] = set()
    for child in node.value if isinstance(node.value, list) else ():
        if isinstance(child, tuple):
            key, child = child
            if isinstance(key.value, str) and key.value in seen:
                return key.value
            seen |= {key.value} if isinstance(key.value, str) else set()
        if (found := _repeated_key(child)) is not None:
            return found
    return None


def check_fields(place: object, values: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    """Raise InputError unless each field exists and has its type. A bool is not an int."""
    for name, kind in kinds.items():
        if (
            name not in values
            or not isinstance(value := values[name], kind)
            or (kind is int and isinstance(value, bool))
        ):
            got = f"{name} is {values[name]!r:.60}" if name in values else f"{name} is missing"
            raise InputError(f"{place}: {got}; expected {kind.__name__}")


def _parse_int(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits; expected at most {DIGITS}")
    return int(digits)


def _parse_float(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError(f"it has the number {digits:.{DIGITS}}; expected a finite number")
    return value


def _check_depth(place: object, values: Any) -> None:
    level = [values]
    for _ in range(DEPTH):
        nested = [one for one in level if isinstance(one, dict | list)]
        level = [below for one in nested for below in (one.values() if isinstance(one, dict) else one)]
    if level:
        raise InputError(f"{place} is nested deeper than {DEPTH} levels; expected fewer")


def write_json(file: str | Path, value: Any) -> None:
    """Write a JSON file atomically and create missing folders. NaN, which means unknown, becomes null."""
    text = json.dumps(known(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(file, text)


def write_text(file: str | Path, text: str) -> None:
    """Write a text file atomically and create missing folders."""
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(file), lambda path: path.write_text(text, encoding="utf-8", newline=""))


def known(value: Any) -> Any:
    """Replace NaN, which means unknown, by None in nested dictionaries, lists and tuples."""
    if isinstance(value, Mapping):
        return {name: known(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
