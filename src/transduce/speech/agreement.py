"""Words of an open piece while one speaks: those on which two texts in a row agree are certain.

LocalAgreement-2 (Liu et al. 2020; Macháček et al. 2023).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from transduce.errors import SettingError
from transduce.metrics.error_rates import edit_distance
from transduce.speech.segments import Segment, word_places

MOST_WORDS = 500


class OpenSpeech(NamedTuple):
    """State between two parts of speech that goes on.

    done: seconds from the beginning of the sound whose words are final.  goes_on: True for an open
    piece from there.  certain, before: its certain words, and all words of its last text.
    language: code of the last piece, if detected.
    """

    done: float = 0.0
    goes_on: bool = False
    certain: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    language: str = ""

    @classmethod
    def parse(cls, fields: Any) -> "OpenSpeech":
        """The state of its fields (`_asdict`) in JSON.  Raises SettingError for other fields."""
        try:
            state = cls(**{name: _of_json(field) for name, field in fields.items()})
            is_valid = [type(field) for field in state] == [float, bool, tuple, tuple, str]
        except (AttributeError, TypeError):
            is_valid = False
        if not is_valid or not 0 <= state.done < float("inf"):
            raise SettingError("state is not one of an answer")
        return state

    @property
    def text(self) -> str:
        """The certain words."""
        return "".join(self.certain).strip()

    @property
    def draft(self) -> str:
        """The words after them, with the blank before."""
        return "".join(self.before[len(self.certain) :]).rstrip()


def _of_json(field: Any) -> Any:
    """A field of `OpenSpeech`."""
    if not isinstance(field, list):
        return float(field) if type(field) is int else field
    is_short = len(field) <= MOST_WORDS and all(isinstance(word, str) for word in field)
    return tuple(field) if is_short else None


class AgreedWords:
    """Words of a piece that are certain; none is taken back.

    certain, before: words of `OpenSpeech`.
    """

    def __init__(self, certain: Sequence[str] = (), before: Sequence[str] = ()) -> None:
        self._certain = list(certain)
        self._before = list(before)

    @property
    def state(self) -> OpenSpeech:
        """The words, in a state at the beginning of a sound."""
        return OpenSpeech(certain=tuple(self._certain), before=tuple(self._before))

    @property
    def text(self) -> str:
        """The certain words."""
        return self.state.text

    def add(self, text: str) -> bool:
        """Compare a text of all that was said so far with the one before.  True for new words."""
        words, before = parts_of(text), self._before
        self._before = words
        n = 0
        while n < min(len(words), len(before)) and plain(words[n]) == plain(before[n]):
            n += 1
        new = words[len(self._certain) : n]
        self._certain += new
        return bool(new)

    def completed(
        self, segments: Sequence[Segment], open_piece: Segment, is_cut: bool = False
    ) -> Iterator[Segment]:
        """The segments of the whole piece, whose text begins with the certain words.

        open_piece: the last partial segment, for a piece without any text.  is_cut: words may be of
        the next piece, for which they stay certain.
        """
        texts = [segment for segment in segments if segment.text]
        words = [parts_of(segment.text) for segment in texts]
        every = [plain(word) for part in words for word in part]
        known, n = [plain(word) for word in self._certain], len(self._certain)
        if is_cut and texts:
            letters, counts = "".join(every), range(n, -1, -1)
            n = min(counts, key=lambda count: edit_distance("".join(known[:count]), letters))
        certain, self._certain = self._certain[:n], self._certain[n:]
        self._before = self._before[n:] if is_cut and texts else []
        if not certain:
            yield from segments
            return
        counts = range(min(len(every), 2 * len(known) + 5) + 1)
        letters = "".join(known[:n])
        replaced = min(counts, key=lambda count: edit_distance(letters, "".join(every[:count])))
        begin = "".join(certain)
        if not texts:
            yield replace(open_piece, text=begin.strip(), partial=False)
        for segment in segments:
            if not segment.text:
                yield segment
                continue
            parts = words.pop(0)
            rest = "".join(parts[replaced:])
            replaced = max(0, replaced - len(parts))
            text, begin = (begin + rest).strip(), ""
            if text:
                yield segment if text == segment.text else replace(segment, text=text, words=())


def parts_of(text: str) -> list[str]:
    """Words of a text, each with the blank before it."""
    ends = [end for _, end in word_places(text)]
    return [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def plain(word: str) -> str:
    """Letters and digits of a word, in lower case."""
    return "".join(filter(str.isalnum, word.lower()))
