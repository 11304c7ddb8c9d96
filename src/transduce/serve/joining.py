"""Joining of the outputs of sentences that are decoded in turn, part by part."""

from __future__ import annotations

from transduce.localise.sentences import Sentences


class StreamJoiner:
    """`Sentences.joined` for outputs in parts."""

    def __init__(self, sentences: Sentences) -> None:
        self._sentences = sentences
        self._begun = -1
        self._last = ""  # character of the output of that sentence

    def add(self, index: int, part: str | None) -> str:
        """Text to write for a part of the output of sentence `index`; None ends that output."""
        if part == "":
            return ""
        text = part or ""
        if index > self._begun:
            text = self._between(index, text[:1]) + text
            self._begun, self._last = index, ""
        if part:
            self._last = part[-1]
        return text

    def rest(self) -> str:
        """Text after the last output."""
        return self._sentences.between[-1]

    def _between(self, index: int, first: str) -> str:
        """Text between the output before and an output that begins with the character `first`."""
        between = self._sentences.between[index]
        if index == 0:
            return between
        pair = Sentences(self._sentences.texts[index - 1 : index + 1], ("", between, ""))
        joined = pair.joined([self._last, first])
        return joined[len(self._last) : len(joined) - len(first)]
