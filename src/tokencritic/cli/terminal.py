"""Standard output and standard error that no name of a file or a class can use to control the terminal."""

from typing import TextIO

from tokencritic.errors import one_line


class Escaped:
    """A stream that writes to another and shows terminal codes, and letters that the other does not have, escaped.

    kept: control characters that pass besides line breaks and tabs.
    """

    def __init__(self, stream: TextIO, kept: str = "") -> None:
        self._stream, self._kept = stream, f"\n\t{kept}"

    @property
    def encoding(self) -> str:
        return self._stream.encoding or "utf-8"

    def write(self, text: str) -> int:
        shown = text if text.isprintable() else "".join(one if one in self._kept else one_line(one) for one in text)
        self._stream.write(shown.encode(self.encoding, "backslashreplace").decode(self.encoding))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()
