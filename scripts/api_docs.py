"""Generate API pages from the docstrings of the public names to out/api. `make docs` runs this script."""

from pathlib import Path

import pdoc

import tokencritic

# The package imports its public names on first use, but pdoc only reads the module's dictionary.
vars(tokencritic).update({name: getattr(tokencritic, name) for name in tokencritic.__all__})  # pyright: ignore
pdoc.pdoc("tokencritic", output_directory=Path("out/api"))
print("wrote out/api/tokencritic.html")
