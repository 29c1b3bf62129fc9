"""Adapters from plain callables and objects to the contracts. No other module probes objects for attributes."""

from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from tokencritic.contracts import ImageClassifier, ImageTokenizer, MaskedGenerator, Part, TokenCritic
from tokencritic.errors import InputError, check_at_most
from tokencritic.fingerprints import network_fingerprint
from tokencritic.scoring import Proposal, Scorer

# The integer attributes of a generator, by their minimum.
_LEAST = {1: ("num_tokens", "codebook_size"), 0: ("num_classes", "first_code"), None: ("mask_id", "null_label")}


def as_generator(
    generator: MaskedGenerator | Callable[..., Tensor],
    *,
    num_tokens: int | None = None,
    codebook_size: int | None = None,
    mask_id: int | None = None,
    first_code: int | None = None,
    num_classes: int | None = None,
    null_class: bool | None = None,
    null_label: int | None = None,
) -> MaskedGenerator:
    """Adapt a callable `(masked_tokens, labels) -> logits` to `MaskedGenerator`.

    Arguments that are None are read from attributes of the same name.

    num_tokens: N, tokens per image.
    codebook_size: K, the number of codes.
    mask_id: the callable's id of a hidden token.
    first_code: the callable's id of the first code, 0 by default.
    num_classes: 0 by default, for an unconditional callable, whose labels are None.
    null_class: True if the callable accepts the label `num_classes` as no class.
    null_label: the callable's own label of no class, if it is not `num_classes`.

    The adapted generator has codes 0 to K - 1 and `mask_id` K; tokens are translated for the callable. The callable
    returns logits (b, n, K), or logits (b, n, vocabulary) with one column per token id, from which the codes are
    selected. InputError is raised if the last code has no column.
    """
    if isinstance(generator, MaskedGenerator):
        return _whole(generator)
    if not callable(generator):
        got = f"the generator is a {type(generator).__name__}"
        raise InputError(f"{got}; expected a MaskedGenerator, or a callable (masked_tokens, labels) -> logits")
    given = {"num_tokens": num_tokens, "codebook_size": codebook_size, "mask_id": mask_id, "first_code": first_code}
    given |= {"num_classes": num_classes, "null_class": null_class, "null_label": null_label}
    sizes: dict[str, Any] = {}
    for name, value in given.items():
        own = getattr(generator, name, None)
        if value is not None and own not in (None, value):
            raise InputError(f"{name} is {value}; the generator's attribute {name} is {own}")
        sizes[name] = value if own is None else own
        if sizes[name] is None and name in ("num_tokens", "codebook_size", "mask_id"):
            raise InputError(f"the generator has no attribute {name}; pass {name}= to as_generator")
    return _ForeignGenerator(generator, sizes)


def _whole(generator: MaskedGenerator) -> MaskedGenerator:
    """Return the generator. Raises InputError unless it defines all attributes of the contract without a default."""
    name = type(generator).__name__
    for attribute in ("num_tokens", "codebook_size", "mask_id"):
        if not hasattr(generator, attribute):
            raise InputError(f"the generator, a {name}, has no {attribute}; set it as MaskedGenerator documents")
    own, sizes = f"the generator, a {name},", (generator.num_tokens, generator.codebook_size)
    _check_integers(own, 1, num_tokens=sizes[0], codebook_size=sizes[1])
    _check_integers(own, 0, num_classes=generator.num_classes)
    _check_integers(own, None, mask_id=generator.mask_id)
    if 0 <= generator.mask_id < generator.codebook_size:
        codes = f"0 to {generator.codebook_size - 1}"
        raise InputError(f"mask_id is {generator.mask_id}, one of the codes {codes} of the generator, a {name}")
    if type(generator).__call__ is MaskedGenerator.__call__:
        how = "define it; a torch module lists nn.Module before MaskedGenerator among its base classes"
        raise InputError(f"the generator, a {name}, has no __call__; {how}")
    return generator


def as_critic(critic: TokenCritic | Callable[..., Tensor]) -> TokenCritic:
    """Adapt a callable `(tokens, labels) -> logits (b, n)` to `TokenCritic`."""
    return critic if isinstance(critic, TokenCritic) else _ForeignCritic(critic)


def as_tokenizer(tokenizer: Any) -> ImageTokenizer:
    """Adapt an object with the attributes and methods of `ImageTokenizer`."""
    return tokenizer if isinstance(tokenizer, ImageTokenizer) else _ForeignTokenizer(tokenizer)


def as_classifier(classifier: ImageClassifier | Callable[[Tensor], Tensor]) -> ImageClassifier:
    """Adapt a callable from images to logits to `ImageClassifier`."""
    return classifier if isinstance(classifier, ImageClassifier) else _ForeignClassifier(classifier)


def as_scorer(scorer: Scorer | Callable[[Proposal], Tensor]) -> Scorer:
    """Adapt a function of a proposal to `Scorer`. The scorer adds no noise and may re-mask visible tokens."""
    return scorer if isinstance(scorer, Scorer) else _FunctionScorer(scorer)


def _check_integers(owner: str, least: int | None, **values: Any) -> None:
    """Raise InputError unless the attributes of a user's object are integers of at least `least`, and within bounds."""
    for name, value in values.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or (least is not None and value < least):
            right = "an integer" if least is None else f"an integer of at least {least}"
            raise InputError(f"{owner} has {name} {value!r:.60}; expected {right}")
        check_at_most(**{name: int(value)})


class _Foreign(Part):
    """The base of adapted parts: the wrapped object, its modules, and its device and fingerprint if it has them."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self._device = getattr(inner, "device", None)

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        return (self.inner,) if isinstance(self.inner, nn.Module) else ()

    @property
    def device(self) -> torch.device:
        return super().device if self.networks or self._device is None else torch.device(self._device)

    def fingerprint(self) -> str:
        if hasattr(self.inner, "fingerprint"):
            return self.inner.fingerprint()
        if not self.networks:
            what = f"the {type(self.inner).__name__} has no fingerprint, so its results cannot be cached"
            raise InputError(f"{what}; make it a torch module, or define fingerprint() -> str")
        return super().fingerprint()

    def identity(self) -> str:
        if hasattr(self.inner, "fingerprint"):
            return self.inner.fingerprint()
        return network_fingerprint(self.networks, source=False) if self.networks else type(self.inner).__name__


class _ForeignGenerator(_Foreign, MaskedGenerator):
    def __init__(self, generator: Callable[..., Tensor], sizes: dict[str, Any]) -> None:
        super().__init__(generator)
        known = {name: value for name, value in sizes.items() if value is not None}
        for least, names in _LEAST.items():
            _check_integers("the generator", least, **{name: known[name] for name in names if name in known})
        self.num_tokens, self.num_classes = sizes["num_tokens"], sizes["num_classes"] or 0
        self.codebook_size = self.mask_id = sizes["codebook_size"]
        self._own_mask, self._first, self._own_null = sizes["mask_id"], sizes["first_code"] or 0, sizes["null_label"]
        self.null_class = bool(sizes["null_class"] or (sizes["null_class"] is None and self._own_null is not None))
        if self._first <= self._own_mask < self._first + self.codebook_size:
            codes = f"{self._first} to {self._first + self.codebook_size - 1}; check first_code= and codebook_size="
            raise InputError(f"mask_id is {self._own_mask}, one of the codes {codes}")
        if self._own_null is not None and not self.null_class:
            raise InputError(f"null_label is {self._own_null} but null_class is false; give one of them")
        if self.null_class and not self.num_classes:
            raise InputError("null_class is true but num_classes is 0; expected at least 1")
        if self._own_null is not None and 0 <= self._own_null < self.num_classes:
            classes = f"0 to {self.num_classes - 1}"
            raise InputError(f"null_label is {self._own_null}; expected a label outside the classes {classes}")

    def __call__(self, masked_tokens: Tensor, labels: Tensor | None, /) -> Tensor:
        own_tokens = torch.where(masked_tokens == self.mask_id, self._own_mask, masked_tokens + self._first)
        if self._own_null is not None and labels is not None:
            labels = torch.where(labels == self.num_classes, self._own_null, labels)
        logits = self.inner(own_tokens, labels)
        if not isinstance(logits, Tensor):
            raise InputError(f"the generator returned a {type(logits).__name__}; expected a tensor of logits")
        columns, size, last = logits.shape[-1], self.codebook_size, self._first + self.codebook_size
        if logits.shape[:-1] != masked_tokens.shape or not (columns == size or columns >= last):
            right = f"{(*masked_tokens.shape, size)}, or {last} or more columns for a whole vocabulary"
            raise InputError(f"the generator returned logits of shape {tuple(logits.shape)}; expected {right}")
        return logits if columns == size else logits[..., self._first : last]


class _ForeignCritic(_Foreign, TokenCritic):
    def __init__(self, critic: Callable[..., Tensor]) -> None:
        super().__init__(critic)
        for name in ("num_tokens", "codebook_size", "num_classes", "reads_mask", "ratio_conditioned"):
            setattr(self, name, getattr(critic, name, getattr(TokenCritic, name)))

    def __call__(self, tokens: Tensor, labels: Tensor | None, mask: Tensor | None = None, /) -> Tensor:
        return self.inner(tokens, labels) if mask is None else self.inner(tokens, labels, mask)


class _ForeignTokenizer(_Foreign, ImageTokenizer):
    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        for name in ("encode", "decode", "num_tokens", "codebook_size", "image_size", "channels"):
            if not hasattr(tokenizer, name):
                raise InputError(f"the tokenizer, a {type(tokenizer).__name__}, has no {name}")
            setattr(self, name, getattr(tokenizer, name))
        self.grid, self.margin = getattr(tokenizer, "grid", None), getattr(tokenizer, "margin", 0)
        self.splits = getattr(tokenizer, "splits", 1)
        own = f"the tokenizer, a {type(tokenizer).__name__},"
        names = ("num_tokens", "codebook_size", "image_size", "channels", "splits")
        _check_integers(own, 1, **{name: vars(self)[name] for name in names})
        _check_integers(own, 0, margin=self.margin)
        if self.grid is not None:
            if not isinstance(self.grid, tuple | list) or len(self.grid) != 2:
                raise InputError(f"{own} has grid {self.grid!r:.60}; expected (height, width), or None")
            _check_integers(own, 1, height=self.grid[0], width=self.grid[1])


class _ForeignClassifier(_Foreign, ImageClassifier):
    def __call__(self, images: Tensor, /) -> Tensor:
        return self.inner(images)


class _FunctionScorer(_Foreign, Scorer):
    def score(self, proposal: Proposal) -> Tensor:
        return self.inner(proposal)
