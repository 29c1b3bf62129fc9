"""`token-critic COMMAND ...`: find the command and run it. Modules are imported once the command is known."""

import ctypes
import importlib
import os
import re
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from types import ModuleType

from tokencritic import __version__
from tokencritic.cli.terminal import Escaped
from tokencritic.errors import InputError, one_line
from tokencritic.launch import read_launch

# command -> summary. Each command is a module of this package with the same name and `main(arguments) -> None`.
COMMANDS: dict[str, str] = {
    "demo": "show what the critic does, on a bundled model",
    "sample": "sample images from a model",
    "refine": "improve existing images with a model's critic",
    "edit": "resample part of an image and freeze the rest",
    "studio": "open a page in the browser: generate, compare, refine, edit",
    "evaluate": "evaluate a model, or a folder or file of images",
    "sweep": "evaluate a model at many settings and plot the trade-off",
    "tune": "tune the settings of a sampler for a model",
    "compare": "evaluate MaskGIT, Token-Critic, refinement and rejection side by side",
    "diagnose": "analyse why and where a model's critic helps",
    "train": "train a model with a preset",
    "export": "export a trained model to a model folder",
    "pack": "include tokens and reference images in a model folder",
    "tokenize": "encode images to token arrays",
    "import": "import published checkpoints to a model folder",
    "doctor": "print versions, devices and caches, and try what a GPU run needs",
}

_CLOSED_PIPE = 141  # as a shell reports SIGPIPE
_GRACE = 10.0  # seconds for the first rank to fail on the same input
_LONG_WORD = 200  # characters kept of a very long number or path in an error message
_NO_MEMORY = re.compile("can't allocate memory|out of memory")  # torch's messages on a CPU and on a GPU
_MODULES = {"import": "import_model"}  # commands whose names are Python keywords

# Parameters of mallopt in <malloc.h>: the size of blocks with their own pages, the free memory kept, and the padding.
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2
_LINES = "\n".join(f"  {command:<{max(map(len, COMMANDS))}}  {text}" for command, text in COMMANDS.items())
_HELP = f"""usage: token-critic COMMAND [--help] ...

Masked image generation with a critic that decides which tokens to resample.

{_LINES}

`token-critic COMMAND --help` explains a command; `token-critic --version` prints the version."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, 2 for invalid input, 130 for Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_HELP)
        return 0
    if arguments[0] == "--version":
        print(f"token-critic {__version__}")
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        print(f"token-critic: unknown command {command!r}; `token-critic --help` lists them", file=sys.stderr)
        return 2
    with redirect_stdout(Escaped(sys.stdout)), redirect_stderr(Escaped(sys.stderr, "\r")):
        return _run_command(command, rest)


def _run_command(command: str, arguments: list[str]) -> int:
    try:
        load_command(command).main(arguments)
    except InputError as error:
        _complain(command, str(error))
        return 2
    except KeyboardInterrupt:  # training catches it and saves
        print(f"token-critic {command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `run` exits without a message
        raise
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or _NO_MEMORY.search(str(error))):
            raise
        from tokencritic.files import reason_of

        _complain(command, f"not enough memory; choose smaller sizes: {reason_of(error)}")
        return 2
    except OSError as error:  # a file where a folder should be, a full disk, no permission
        _complain(command, f"{error.filename or 'a file'}: {error.strerror or error}")
        return 2
    return 0


def _complain(command: str, text: str) -> None:
    """Print an error in one line.

    Under torchrun, all ranks but the first wait before they print. If the first rank fails too, torchrun ends the
    others, and the error appears once. An error of a single rank, such as a missing GPU, is still printed.
    """
    try:
        rank = read_launch().rank
    except InputError:
        rank = 0
    if rank:
        time.sleep(_GRACE)
    short = re.sub(rf"(\S{{{_LONG_WORD}}})\S{{{_LONG_WORD},}}", r"\1...", text)
    print(f"token-critic {command}: {one_line(short)}", file=sys.stderr)


def load_command(command: str) -> ModuleType:
    """Return the module of a command."""
    return importlib.import_module(f"tokencritic.cli.{_MODULES.get(command, command)}")


def run() -> None:
    """Run the console script."""
    _keep_freed_memory()
    try:
        try:
            code = main()
        finally:  # also after --help, which exits
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes again at exit
        code = _CLOSED_PIPE
    sys.exit(code)


def _keep_freed_memory() -> None:
    """Make glibc's malloc keep freed memory.

    By default it returns large blocks to the system and requests them again. Clearing their pages slows down small
    models on a CPU (`benchmarks/command_line.py`). Without `mallopt`, nothing is done.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_MMAP_THRESHOLD, 2**30)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 2**26)


if __name__ == "__main__":
    run()
