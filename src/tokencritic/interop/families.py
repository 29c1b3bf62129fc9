"""The table of importers, one row for every family of published generators. Another family is one file and one line here."""

from tokencritic.interop.family import Family
from tokencritic.interop.halton import FAMILY as HALTON

_ALL: tuple[Family, ...] = (HALTON,)
FAMILIES = {family.name: family for family in _ALL}
