"""Checks of a tokenizer's definition before the library `tokenizers` reads it.

Some definitions crash inside the library, or exhaust time or memory, many of them only at the first
text that reaches the faulty step.  They are refused when a tokenizer is loaded.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transduce.errors import RunError

MAX_GROWTH = 4096
"""Maximum factor by which all `Replace` rules together may lengthen a text."""
MAX_LENGTH_TARGET = 512
"""Maximum bytes that an entry of a `Precompiled` map may insert."""
MAX_IN_A_ROW, MAX_OPTIONAL = 3, 12
"""Maximum unbounded repetitions, and optional parts or groups, in an alternative of a regular
expression; the usual tokenizers have at most two, and four."""
MAX_EXPRESSION = 10_000
"""Maximum characters of a regular expression."""
_REFUSED = re.compile(r"\(\?(?:[#~]|[a-z-]*x)|\\[gkQ]")
"""Comments, absence, calls of groups and references: the form tells nothing of their time."""
_CODE = re.compile(r"\\(?:[pPx]\{[^}]*\}|.)", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?[^\[\]]*\]")
_FIXED = re.compile(r"\((?:\?(?:[:=!>]|<[=!]))?[^()|*+?{}]*\)|(?<!\))\{\d+\}")
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_UNBOUNDED = re.compile(r"[*+]|\{\d*,")
_OPTIONAL = re.compile(r"(?<![*+?}(])\?|\(")
_LEAF, _HAS_LEAF = 1 << 31, 1 << 8


@contextmanager
def library_errors(failed: str) -> Iterator[None]:
    """Convert all errors of the library, including panics, to a RunError with one line."""
    try:
        yield
    except RunError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())
        raise RunError(f"the tokenizers library {failed} ({reason})") from None


def check_definition(definition: Mapping[str, Any]) -> None:
    """Raises RunError for a definition that could crash or hang on some text."""
    model = definition.get("model")
    if isinstance(model, dict):
        _check_merges(model)
    check_steps(definition)


def check_steps(definition: Mapping[str, Any]) -> None:
    """Check all parts but the model.  Raises RunError."""
    for stage in ("normalizer", "pre_tokenizer", "decoder"):
        growth = 1.0
        for part in definition_parts(definition.get(stage)):
            growth *= _check_step(part, stage)
        if growth > MAX_GROWTH:
            raise RunError(
                f"{stage}: Replace rules may make a text more than {MAX_GROWTH} times longer"
            )


def _check_step(part: Mapping[str, Any], stage: str) -> float:
    """Factor by which a step may lengthen a text.  Raises RunError for an invalid step."""
    growth = 1.0
    match part:
        case {"type": "Precompiled"}:
            _check_precompiled(part.get("precompiled_charsmap"))
        case {"type": "FixedLength", "length": 0}:
            raise RunError(f"{stage}: FixedLength needs a length above 0")
        case {"type": "Strip", "stop": int(stop)} if stop:
            raise RunError(f"{stage}: Strip with stop = {stop} is not supported, only with 0")
        case {"type": "Prepend", "prepend": ""}:
            raise RunError(f"{stage}: Prepend needs a string that is not empty")
        case {"type": "Prepend", "prepend": str(content)}:
            growth = 1 + len(content)
        case {"type": "Replace", "pattern": {"String": str(found)}, "content": str(content)}:
            growth = len(content) / len(found) if found else float("inf")
        case {"pattern": {"Regex": str(expression)}}:
            if runs_away(expression):
                raise RunError(
                    f"{stage}: the regular expression {expression[:100]!r} may take exponential "
                    "time (a repeated group, or many repetitions in a row)"
                )
            if part.get("type") == "Replace":  # of nothing, too, between any two characters
                growth = 1 + len(str(part.get("content")))
    if growth == float("inf"):
        raise RunError(f"{stage}: Replace matches the empty string: {part!r:.200}")
    return max(1, growth)


def runs_away(expression: str) -> bool:
    """True if an expression may take exponential time by its form, whatever the text.

    Backtracking is exponential if a repeated group matches in several ways, as in `(a+)+` or
    `(a|aa)*`; every repeated group is refused whose length is not fixed.  Repetitions in a row
    have their number as exponent.
    """
    if len(expression) > MAX_EXPRESSION or _REFUSED.search(expression):
        return True
    before, plain = "", _CODE.sub("a", expression)
    while plain != before:
        before, plain = plain, _CLASS.sub("a", plain)
    before = ""
    while plain != before:
        before = plain
        plain = _FIXED.sub(lambda match: "" if match[0][0] == "{" else "a", plain)
    depth, alternatives = 0, [""]
    for character in plain:
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            alternatives.append("")
        else:
            alternatives[-1] += character
    return _REPEATED_GROUP.search(plain) is not None or any(
        len(_UNBOUNDED.findall(alternative)) > MAX_IN_A_ROW
        or len(_OPTIONAL.findall(alternative)) > MAX_OPTIONAL
        for alternative in alternatives
    )


def definition_parts(*stages: Any) -> Iterator[dict[str, Any]]:
    """Steps of normalizers, pre-tokenizers or decoders, with sequences flattened in order."""
    waiting = list(reversed(stages))
    while waiting:
        stage = waiting.pop()
        if isinstance(stage, dict):
            yield stage
            for steps in ("normalizers", "pretokenizers", "decoders"):
                if isinstance(stage.get(steps), list):
                    waiting += reversed(stage[steps])


def _check_merges(model: Mapping[str, Any]) -> None:
    """Raises RunError for a merge with a second part shorter than the continuation prefix."""
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if not isinstance(prefix, str) or not isinstance(merges, list):
        return
    for merge in merges if prefix else ():
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if isinstance(pair, list) and pair and len(str(pair[-1])) < len(prefix):
            raise RunError(f"the second part of merge {merge!r} is shorter than {prefix!r}")


def _check_precompiled(encoded: Any) -> None:
    """Raises RunError unless every lookup in a SentencePiece map stays inside it.

    The map is a double-array trie of 32-bit units, each with a label, a flag and the offset of its
    children; leaves are positions in a text of targets, each ended by NUL.
    """
    import numpy as np

    damaged = RunError("normalizer Precompiled: its map is damaged; copy the file again")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise damaged from None
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 + size or size < 4 or size % 4:
        raise damaged
    units = np.frombuffer(data[4 : 4 + size], "<u4").astype(np.int64)
    targets = data[4 + size :]
    try:
        targets.decode()
    except UnicodeDecodeError:
        raise damaged from None
    inner = units & _LEAF == 0
    places = np.arange(len(units)) ^ (units >> 10) << ((units & 1 << 9) >> 6)
    children = places[inner]
    if len(children) and (children | 255).max() >= len(units):
        raise damaged
    leaves = units[places[inner & (units & _HAS_LEAF != 0)]] & _LEAF - 1
    starts = np.unique(leaves)
    ends = np.append(np.flatnonzero(np.frombuffer(targets, np.uint8) == 0), len(targets))
    if len(starts) and starts[-1] > len(targets):
        raise damaged
    if any(i < len(targets) and targets[i] & 0xC0 == 0x80 for i in starts.tolist()):
        raise damaged
    if len(starts) and (ends[np.searchsorted(ends, starts)] - starts).max() > MAX_LENGTH_TARGET:
        raise RunError(
            f"normalizer Precompiled: one entry of its map inserts more than {MAX_LENGTH_TARGET} "
            "bytes"
        )
