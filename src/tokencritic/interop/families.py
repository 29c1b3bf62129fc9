"""The table of importers, one row for every family of published generators. Another family is one file and one line here."""

from tokencritic.interop import titok
from tokencritic.interop.family import Family

_ALL: tuple[Family, ...] = (titok.FAMILY,)
FAMILIES = {family.name: family for family in _ALL}
