"""`token-critic COMMAND ...`: finds the command and calls it. Nothing heavy is imported before the command is known."""

import ctypes
import importlib
import sys
from types import ModuleType

from tokencritic import __version__
from tokencritic.errors import InputError

# command -> what it does. Each is a module beside this one with `main(arguments) -> None`, of the same name.
COMMANDS: dict[str, str] = {
    "demo": "see what the critic does, on a bundled model",
    "sample": "make images with a model",
    "refine": "improve existing images with a model's critic",
    "edit": "resample part of an image and freeze the rest",
    "studio": "open a page in the browser: generate, compare, refine, edit",
    "evaluate": "measure a model's images, or a folder or file of images",
    "sweep": "measure a model at many settings and draw the trade-off",
    "tune": "find the best settings of a sampler for a model",
    "compare": "measure MaskGIT, Token-Critic, refinement and rejection side by side",
    "diagnose": "see why and where a model's critic helps",
    "train": "train a model by a preset",
    "export": "put a trained model into a model folder",
    "pack": "include tokens and reference images in a model folder",
    "tokenize": "turn images into token arrays",
    "import": "make a model folder from published checkpoints",
    "doctor": "print versions, devices and caches, and try what a GPU run needs",
}

_MODULES = {"import": "import_model"}  # of commands whose name no module can have

# Of <malloc.h>: the size from which a block has pages of its own, how much free memory is kept, how much is asked for ahead.
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2
_LINES = "\n".join(f"  {command:<{max(map(len, COMMANDS))}}  {text}" for command, text in COMMANDS.items())
_HELP = f"""usage: token-critic COMMAND [--help] ...

Masked image generation with a critic that decides which tokens to resample.

{_LINES}

`token-critic COMMAND --help` explains a command; `token-critic --version` prints the version."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, 2 for bad input, 130 for Ctrl-C."""
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
    try:
        load_command(command).main(rest)
    except InputError as error:
        print(f"token-critic {command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # long work catches it itself, and saves
        print(f"token-critic {command}: interrupted", file=sys.stderr)
        return 130
    except OSError as error:  # a file where a folder should be, a full disk, no permission
        print(f"token-critic {command}: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 2
    return 0


def load_command(command: str) -> ModuleType:
    """The module of a command."""
    return importlib.import_module(f"tokencritic.cli.{_MODULES.get(command, command)}")


def run() -> None:
    """The console script."""
    _keep_freed_memory()
    sys.exit(main())


def _keep_freed_memory() -> None:
    """Have glibc's malloc keep what is freed.

    Else it gives large blocks back to the system at once and asks for them again, and a fifth of a small model's sampling on a
    CPU is the clearing of such pages (`benchmarks/command_line.py`). Where there is no `mallopt`, nothing is done.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_MMAP_THRESHOLD, 2**30)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 2**26)


if __name__ == "__main__":
    run()
