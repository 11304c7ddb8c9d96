"""Outputs to doubt, counted for a warning at the end of a command."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transduce.tasks.translation.text_translator import Translation


logger = logging.getLogger("transduce")


class Doubts:
    """Outputs that are blank for a text, or ended at their greatest length."""

    def __init__(self) -> None:
        self._texts = self._blank = self._cut_off = 0

    def seen(self, texts: Iterable[str], outputs: Iterable[Translation]) -> Iterator[Translation]:
        """The outputs of some texts, counted."""
        for text, output in zip(texts, outputs, strict=True):
            if text.strip():
                self._texts += 1
                self._blank += not output.text.strip()
                self._cut_off += not output.finished
            yield output

    def report(self, run: object) -> None:
        """Warn of outputs that were seen, by one line a kind."""
        if self._blank:
            counted = f"{self._blank:,} of {self._texts:,} outputs are blank"
            remedy = "; the model has hardly learnt, train it longer" if self._mostly() else ""
            logger.warning("%s: %s%s", run, counted, remedy)
        if self._cut_off:
            logger.warning(
                "%s: %s of %s outputs ended at their greatest length (--max-length-ratio, "
                '--max-length-extra); --jsonl marks them by "finished": false',
                run,
                f"{self._cut_off:,}",
                f"{self._texts:,}",
            )

    def _mostly(self) -> bool:
        return 2 * self._blank > self._texts


@contextlib.contextmanager
def doubting(run: object) -> Iterator[Doubts]:
    """Count outputs of a run, and warn of them at the end."""
    doubts = Doubts()
    yield doubts
    doubts.report(run)
