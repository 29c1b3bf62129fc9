"""Whole parts from plain callables and objects: the only place that asks a stranger's object what it has."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tokencritic.contracts import ImageClassifier, ImageTokenizer, MaskedGenerator, Part, Proposal, Scorer, TokenCritic
from tokencritic.errors import InputError


def as_generator(
    generator: MaskedGenerator | Callable[..., Tensor],
    *,
    num_tokens: int | None = None,
    codebook_size: int | None = None,
    mask_id: int | None = None,
    first_code: int = 0,
    num_classes: int | None = None,
) -> MaskedGenerator:
    """A generator by the contract from any callable `(masked_tokens, labels) -> logits`.

    Sizes that are not given are read from attributes of the same name. mask_id, first_code: the callable's own token ids of
    the mask and of its first code. Our tokens are always codes from 0 to codebook_size - 1, with `codebook_size` for hidden;
    they are translated for the callable. Its logits are (b, n, codebook_size), or cover its vocabulary, from which the codes
    are taken.
    """
    if isinstance(generator, MaskedGenerator):
        return generator
    sizes = {"num_tokens": num_tokens, "codebook_size": codebook_size, "mask_id": mask_id, "num_classes": num_classes}
    for name, given in sizes.items():
        own = getattr(generator, name, None)
        if given is not None and own not in (None, given):
            raise InputError(f"{name} is {given} but the generator's is {own}")
        sizes[name] = given if own is None else own
        if sizes[name] is None and name != "num_classes":
            raise InputError(f"the generator has no attribute {name}; pass {name}= to as_generator")
    return _ForeignGenerator(generator, sizes, first_code)


def as_critic(critic: TokenCritic | Callable[..., Tensor]) -> TokenCritic:
    """A critic by the contract from any callable `(tokens, labels) -> logits (b, n)`."""
    return critic if isinstance(critic, TokenCritic) else _ForeignCritic(critic)


def as_tokenizer(tokenizer: Any) -> ImageTokenizer:
    """A tokenizer by the contract from any object with the attributes of the contract."""
    return tokenizer if isinstance(tokenizer, ImageTokenizer) else _ForeignTokenizer(tokenizer)


def as_classifier(classifier: ImageClassifier | Callable[[Tensor], Tensor]) -> ImageClassifier:
    """A classifier by the contract from any callable from images to logits."""
    return classifier if isinstance(classifier, ImageClassifier) else _ForeignClassifier(classifier)


def as_scorer(scorer: Scorer | Callable[[Proposal], Tensor]) -> Scorer:
    """A scorer by the contract from any function of a proposal; it adds no noise and may revoke."""
    return scorer if isinstance(scorer, Scorer) else _FunctionScorer(scorer)


class _Foreign(Part):
    """What all adapted parts share: the object inside, its modules, and its device and fingerprint if it has them."""

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
        return self.inner.fingerprint() if hasattr(self.inner, "fingerprint") else super().fingerprint()

    def identity(self) -> str:
        return self.fingerprint() if hasattr(self.inner, "fingerprint") else type(self.inner).__name__


class _ForeignGenerator(_Foreign, MaskedGenerator):
    def __init__(self, generator: Callable[..., Tensor], sizes: dict[str, Any], first_code: int) -> None:
        super().__init__(generator)
        self.num_tokens, self.num_classes = sizes["num_tokens"], sizes["num_classes"] or 0
        self.codebook_size = self.mask_id = sizes["codebook_size"]
        self._own_mask, self._first = sizes["mask_id"], first_code
        if self._first <= self._own_mask < self._first + self.codebook_size:
            codes = (
                f"{self._first} to {self._first + self.codebook_size - 1}; pass first_code= and codebook_size= that fit"
            )
            raise InputError(f"mask_id is {self._own_mask}, one of the codes {codes}")

    def __call__(self, masked_tokens: Tensor, labels: Tensor | None, /) -> Tensor:
        own_tokens = torch.where(masked_tokens == self.mask_id, self._own_mask, masked_tokens + self._first)
        logits = self.inner(own_tokens, labels)
        size, last = self.codebook_size, self._first + self.codebook_size
        if logits.shape[:-1] != masked_tokens.shape or not (logits.shape[-1] == size or logits.shape[-1] >= last):
            right = (*masked_tokens.shape, size)
            raise InputError(f"the generator returned logits of shape {tuple(logits.shape)}; expected {right}")
        return logits if logits.shape[-1] == size else logits[..., self._first : last]


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


class _ForeignClassifier(_Foreign, ImageClassifier):
    def __call__(self, images: Tensor, /) -> Tensor:
        return self.inner(images)


class _FunctionScorer(_Foreign, Scorer):
    def score(self, proposal: Proposal) -> Tensor:
        return self.inner(proposal)
