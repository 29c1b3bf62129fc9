"""`package.module:factory` instead of a model: a user's function without arguments that returns a model.

It returns a generator that `as_generator` accepts, a pair (generator, tokenizer), or a `TokenCriticPipeline`. This runs
the user's code, so factories are only accepted on the command line.
"""

import importlib
import re
import sys
import traceback
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokencritic.errors import InputError

if TYPE_CHECKING:
    from tokencritic.contracts import ImageTokenizer, MaskedGenerator
    from tokencritic.pipeline import TokenCriticPipeline

_FORM = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_EXPECTED = "a MaskedGenerator, a callable with the sizes of one, (generator, tokenizer), or a TokenCriticPipeline"


def is_factory(place: str) -> bool:
    """Return True if a model is given as `package.module:factory`. Hub ids contain no colon."""
    return _FORM.fullmatch(place) is not None


def parts_of(place: str, called: str) -> "tuple[MaskedGenerator, ImageTokenizer | None]":
    """Return the generator of a factory, and its tokenizer or None.

    called: the factory's name in error messages.
    """
    from tokencritic.pipeline import TokenCriticPipeline

    made = _parts(_call(place, called), called)
    return (made.generator, made.tokenizer) if isinstance(made, TokenCriticPipeline) else made


def pipeline_of(place: str) -> "TokenCriticPipeline":
    """Return the pipeline of a factory, or one made of its generator and tokenizer."""
    from tokencritic.pipeline import TokenCriticPipeline

    made = _parts(_call(place, place), place)
    if isinstance(made, TokenCriticPipeline):
        return made
    generator, tokenizer = made
    if tokenizer is None:
        raise InputError(f"{place} returned only a generator; expected (generator, tokenizer) to make images")
    try:
        return TokenCriticPipeline(tokenizer, generator)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error


def _parts(made: Any, called: str) -> "TokenCriticPipeline | tuple[MaskedGenerator, ImageTokenizer | None]":
    """Adapt the result of a factory to the contracts."""
    from tokencritic.adapters import as_generator, as_tokenizer
    from tokencritic.pipeline import TokenCriticPipeline

    if isinstance(made, TokenCriticPipeline):
        return made
    pair: tuple[Any, ...] = tuple(made) if isinstance(made, tuple | list) else (made, None)
    if len(pair) != 2 or not callable(pair[0]):
        got = f"{len(pair)} objects" if len(pair) != 2 else f"a {type(pair[0]).__name__}"
        raise InputError(f"{called} returned {got}; expected {_EXPECTED}")
    generator: Any
    generator, tokenizer = pair
    try:
        return as_generator(generator), None if tokenizer is None else as_tokenizer(tokenizer)
    except InputError as error:
        raise InputError(f"{called}: {error}") from error


def _call(place: str, called: str) -> Any:
    """Import the module, also from the current folder, and call the factory."""
    name, _, path = place.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(called, f"importing {name}", error) from error
        where = "neither in the current folder nor installed"
        raise InputError(f"{called}: there is no module {error.name}, {where}") from error
    except (Exception, SystemExit) as error:
        raise _failed(called, f"importing {name}", error) from error
    try:
        factory = reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise InputError(f"{called}: the module {name} has no {path}") from error
    if not callable(factory):
        raise InputError(f"{called}: {path} is a {type(factory).__name__}; expected a function without arguments")
    try:
        return factory()
    except InputError as error:
        raise InputError(f"{called}: {error}") from error
    except (Exception, SystemExit) as error:
        raise _failed(called, f"{path}()", error) from error


def _failed(called: str, what: str, error: BaseException) -> InputError:
    """Return an InputError that describes an error of the user's code and its place in one line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    reason = " ".join(str(error).split()) or "without a message"
    return InputError(f"{called}: {what} raised {type(error).__name__}: {reason} ({last.filename}, line {last.lineno})")
