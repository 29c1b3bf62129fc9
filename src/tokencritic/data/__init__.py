"""Data: image sources, token arrays on disk, and the order in which training sees them."""

from tokencritic.data.order import ExampleOrder
from tokencritic.data.source import Source
from tokencritic.data.sources import open_source
from tokencritic.data.tokenizing import tokenize
from tokencritic.data.tokens import TokenArrays
from tokencritic.data.transforms import Preprocess, to_float

__all__ = [
    "ExampleOrder",
    "Preprocess",
    "Source",
    "TokenArrays",
    "open_source",
    "to_float",
    "tokenize",
]
