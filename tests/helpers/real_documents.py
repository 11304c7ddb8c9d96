"""Real documents of many formats, outside the repository; without them their tests are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCUMENTS = next(
    (
        parent / "shared" / "documents"
        for parent in Path(__file__).parents
        if (parent / "shared" / "documents").is_dir()
    ),
    Path("shared", "documents"),
)
needs_documents = pytest.mark.skipif(not DOCUMENTS.is_dir(), reason="needs shared/documents")


def real_documents(*suffixes: str) -> list[Path]:
    """The documents with one of these suffixes."""
    return sorted(path for path in DOCUMENTS.glob("*") if path.suffix in suffixes)
