"""Translation of a text, joined from the hypotheses of its segments."""

from __future__ import annotations

from collections.abc import Sequence

from transduce.decoding.hypotheses import Hypothesis
from transduce.tasks.translation.preparation import Prepared
from transduce.tasks.translation.splitting import joined
from transduce.tasks.translation.translations import Candidate, Translation, mbr_rerank
from transduce.text import Tokenizer
from transduce.text.listed import ListedTokenizer


class Outputs:
    """Writes the outputs of a translator as texts."""

    def __init__(self, source: Tokenizer, target: Tokenizer, target_language: str) -> None:
        self._source = source
        self._target = target
        self._target_language = target_language

    def line(self, ids: Sequence[int], source: str) -> str:
        """Text of ids, always on one line.

        If both sides use the same kind of units, unknown units of the output are copied from the
        source, in order.
        """
        own = self._source
        if isinstance(own, ListedTokenizer) and isinstance(self._target, type(own)):
            text = self._target.decode(ids, own.unknown_units(source))
        else:
            text = self._target.decode(ids)
        return " ".join(text.splitlines())

    def translation(self, prepared: Prepared, parts: list[list[Hypothesis]]) -> Translation:
        """The translation of a text from the hypotheses of its pieces, which are mostly one."""
        candidates = [
            self._candidate(prepared, [part[rank] for part in parts])
            for rank in range(min(map(len, parts), default=0))
        ]
        if not candidates:
            return Translation("")
        if prepared.options.minimum_risk != "none":
            candidates = mbr_rerank(candidates, prepared.options, self._target_language)
        best = candidates[0]
        return Translation(best.text, best.tokens, best.score, best.log_prob, tuple(candidates))

    def _candidate(self, prepared: Prepared, chosen: Sequence[Hypothesis]) -> Candidate:
        """The output that one hypothesis of each piece makes."""
        texts: list[str] = []
        tokens: list[str] = []
        for number, source in enumerate(prepared.lines.texts):
            pairs = zip(prepared.segments, chosen, strict=True)
            ids = joined((h.tokens for segment, h in pairs if segment.line == number), self._target)
            texts.append(self.line(ids, source))
            tokens += self._target.tokens(ids)
        return Candidate(
            prepared.lines.with_breaks(texts),
            tuple(tokens),
            sum(h.score for h in chosen) / len(chosen),
            sum(h.log_prob for h in chosen),
            tuple(tuple(h.tokens) for h in chosen),
        )
