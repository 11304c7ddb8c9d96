"""Files that are complete or absent."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from transduce.support.locks import whole_file


def test_an_error_of_writing_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(OSError) as error, whole_file(path):
        raise OSError(errno.EFBIG, "File too large")
    assert error.value.filename == str(path) and not any(tmp_path.iterdir())
