"""Archives of XML: the texts of some members as one text, whose edits go into a new archive."""

from __future__ import annotations

import io
import itertools
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from transduce.errors import DataError
from transduce.localise.document import DecodedText, Edit, Reading, Span, spliced
from transduce.localise.xml import Element, check_xml, tree

MOST_BYTES = 200_000_000
"""Maximum size of all members."""
EXPANSION = 100
"""Maximum size as a multiple of the archive's, if it is more than a twentieth of the other."""
FEW_ELEMENTS, ELEMENTS_PER_BYTE = 50_000, 4
"""Elements that any archive may have, and for each byte of one: some eight times those of real
documents."""


@dataclass(frozen=True)
class Archive(DecodedText):
    """Members of an archive as one text.

    content: the archive.  members: places of their texts by name.
    """

    content: bytes = b""
    members: Mapping[str, Span] = field(default_factory=dict)

    def written(self, edits: Sequence[Edit]) -> bytes:
        """The archive with edits in its members; others keep their contents and order."""
        if not edits:
            return self.content
        target = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self.content)) as old, zipfile.ZipFile(target, "w") as new:
            for info in old.infolist():
                content = old.read(info)
                if span := self.members.get(info.filename):
                    content = spliced(self.text, span, edits).encode()
                new.writestr(info, content)
        return target.getvalue()


def read_archive(
    content: bytes, reading: Reading, pattern: str
) -> tuple[Archive, Mapping[str, Element]]:
    """An archive, and the root elements of the members whose names match a pattern.

    Raises DataError for a damaged archive, one that is too large or has too many elements, and
    members that are not XML.
    """
    texts: dict[str, str] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(info.file_size for info in archive.infolist())
            if size > min(MOST_BYTES, max(EXPANSION * len(content), MOST_BYTES // 20)):
                raise DataError(f"the archive is too large: {size} bytes")
            for info in archive.infolist():
                reading.check()
                part = archive.read(info)
                if re.fullmatch(pattern, info.filename):
                    texts[info.filename] = part.decode()
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise DataError(f"the file is a damaged archive, or not in UTF-8: {error}") from None
    n_elements = sum(text.count("<") - text.count("</") for text in texts.values())
    if n_elements > max(FEW_ELEMENTS, ELEMENTS_PER_BYTE * len(content)):
        raise DataError(f"the archive has too many elements for its size: {n_elements}")
    for name, text in texts.items():
        check_xml(text, name)
    ends = [0, *itertools.accumulate(map(len, texts.values()))]
    members = dict(zip(texts, itertools.starmap(Span, itertools.pairwise(ends)), strict=True))
    whole = "".join(texts.values())
    roots = dict(zip(texts, tree(whole, reading, len(texts)), strict=True))
    return Archive(whole, "utf-8", content=content, members=members), roots
