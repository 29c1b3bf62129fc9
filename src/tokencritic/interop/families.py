"""The table of importers, one row for every family of published generators. Another family is one file and one line here."""

from tokencritic.interop.family import Family
from tokencritic.interop.halton import FAMILY as HALTON
from tokencritic.interop.maskbit import FAMILY as MASKBIT
from tokencritic.interop.titok import FAMILY as TITOK

_ALL: tuple[Family, ...] = (HALTON, MASKBIT, TITOK)
FAMILIES = {family.name: family for family in _ALL}
