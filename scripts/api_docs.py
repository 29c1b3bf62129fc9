"""Write the API pages, generated from the docstrings of the public names, to out/api: `make docs`."""

from pathlib import Path

import pdoc

import tokencritic

# pdoc reads the module's dictionary, and the names are imported when they are first used.
vars(tokencritic).update({name: getattr(tokencritic, name) for name in tokencritic.__all__})  # pyright: ignore
pdoc.pdoc("tokencritic", output_directory=Path("out/api"))
print("wrote out/api/tokencritic.html")
