"""Atomic writes."""

import pytest

from tokencritic.files import write_atomically


def test_the_first_error_is_the_one_that_is_reported(tmp_path, monkeypatch):
    """On a disk that turned read-only, the temporary file cannot be removed either."""
    monkeypatch.setattr("pathlib.Path.unlink", lambda *_, **__: (_ for _ in ()).throw(OSError("cannot remove")))

    def write(_):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left on device") as error:
        write_atomically(tmp_path / "result.json", write)
    assert error.value.filename == str(tmp_path / "result.json")
