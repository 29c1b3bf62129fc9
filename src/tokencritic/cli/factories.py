"""`package.module:factory` in place of a model: a function of the user's own, without arguments, that makes one.

It returns a generator by the contract, or something that `as_generator` can make whole; or a pair (generator, tokenizer); or a
`TokenCriticPipeline`. The user's code is run: only who types the command line names a factory.
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
    """Whether a model is given as `package.module:factory`. No Hub id has a colon in it."""
    return _FORM.fullmatch(place) is not None


def parts_of(place: str, called: str) -> "tuple[MaskedGenerator, ImageTokenizer | None]":
    """The generator that a factory makes, and its tokenizer if it makes one. called: what an error calls the factory."""
    from tokencritic.pipeline import TokenCriticPipeline

    made = _parts(_call(place, called), called)
    return (made.generator, made.tokenizer) if isinstance(made, TokenCriticPipeline) else made


def pipeline_of(place: str) -> "TokenCriticPipeline":
    """The pipeline that a factory makes, or that its generator and tokenizer are."""
    from tokencritic.pipeline import TokenCriticPipeline

    made = _parts(_call(place, place), place)
    if isinstance(made, TokenCriticPipeline):
        return made
    generator, tokenizer = made
    if tokenizer is None:
        raise InputError(f"{place} returned a generator alone; return (generator, tokenizer), which images need")
    try:
        return TokenCriticPipeline(tokenizer, generator)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error


def _parts(made: Any, called: str) -> "TokenCriticPipeline | tuple[MaskedGenerator, ImageTokenizer | None]":
    """What a factory returned, made whole; or an error that says what is missing."""
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
    """Import the module, also one of the current folder, find the factory and call it."""
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
    """What the user's own code raised, and where, in one line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    reason = " ".join(str(error).split()) or "without a message"
    return InputError(f"{called}: {what} raised {type(error).__name__}: {reason} ({last.filename}, line {last.lineno})")
