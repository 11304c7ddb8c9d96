"""A run's vocabulary shortlist: learnt from its training pairs, kept in its directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from transduce.decoding.shortlist import N_SPECIAL, Shortlist, TokenRows
from transduce.errors import RunError
from transduce.text import EOS, Tokenizer
from transduce.training.weight_files import stored_weights

if TYPE_CHECKING:
    from transduce.data.encoded import EncodedPairs, MixedPairs

SHORTLIST = "shortlist.safetensors"
FORMS: Mapping[str, Literal["h", "i"]] = {"int16": "h", "int32": "i"}
"""Types of its numbers, and their letters in a buffer."""


class ShortlistCoverage(NamedTuple):
    """Coverage of a shortlist on held-out pairs."""

    covered: float
    """Share of the target tokens that their sentences' lists hold."""
    size: float
    """Mean number of tokens that a sentence may use."""


def learn_shortlist(
    pairs: EncodedPairs | MixedPairs,
    source: Tokenizer,
    target: Tokenizer,
    likely: int,
    frequent: int,
) -> Shortlist:
    """The `likely` likeliest target tokens of each source token, by EM over the training pairs,
    and the `frequent` most frequent."""
    import numpy as np

    from transduce.data.encoded import as_mixed
    from transduce.data.lexicon import learn_lexicon

    mixed = as_mixed(pairs)
    counts = np.zeros(target.size, np.int64)
    for part in mixed.parts:
        counts += np.bincount(part.target_tokens, minlength=target.size)
    counts[: EOS + 1] = 0
    order = np.argsort(-counts, kind="stable")[:frequent]
    table = learn_lexicon(mixed, target.size).likely(source.size, likely)
    return Shortlist(
        table.astype(np.int64),
        np.sort(order[counts[order] > 0]),
        joint=source is target,
        size=target.size,
    )


def coverage(
    shortlist: Shortlist, source: Tokenizer, target: Tokenizer, pairs: Iterable[tuple[str, str]]
) -> ShortlistCoverage:
    """Share of target tokens contained in the lists of their sources, end of sentence excluded.

    shortlist: to measure.  source: tokenizer of the sources.  pairs: (source, target) texts.
    """
    covered = tokens = size = n = 0
    for source_ids, target_ids in pairs:
        allowed = set(shortlist.of(source.encode(source_ids)))
        ids = target.encode(target_ids)
        covered += sum(token in allowed for token in ids)
        tokens += len(ids)
        size += len(allowed)
        n += 1
    return ShortlistCoverage(covered / max(tokens, 1), size / max(n, 1))


def save_shortlist(shortlist: Shortlist, run: Path) -> Path:
    """Keep it in the run directory; returns the file.  Raises RunError when it cannot be."""
    import torch

    from transduce.training.weights import write_tensors

    parts = {"likely": shortlist.rows(), "frequent": shortlist.frequent.tolist()}
    dtype = torch.int16 if max(shortlist.size, 2) <= 1 << 15 else torch.int32
    tensors = {name: torch.tensor(part, dtype=dtype) for name, part in parts.items()}
    write_tensors(run / SHORTLIST, tensors)
    return run / SHORTLIST


def load_shortlist(run: Path, source: Tokenizer, target: Tokenizer) -> Shortlist | None:
    """Shortlist of a run directory, or None. Raises RunError if it is for other vocabularies.

    source, target: tokenizers of the run.
    """
    path = run / SHORTLIST
    if not path.is_file():
        return None
    stored = stored_weights(path)
    shapes = {name: len(tensor.shape) for name, tensor in stored.items()}
    if shapes == {"likely": 2, "frequent": 1} and {t.dtype for t in stored.values()} <= {*FORMS}:
        rows, width = stored["likely"].shape
        numbers = {name: part.bytes.cast(FORMS[part.dtype]) for name, part in stored.items()}
        likely, frequent = numbers["likely"], numbers["frequent"]
        fits = all(max(part, default=0) < target.size for part in numbers.values())
        if fits and rows == source.size and width and min(frequent, default=N_SPECIAL) > EOS:
            for tensor in stored.values():
                tensor.release()
            return Shortlist(TokenRows(likely, width), frequent, source is target, target.size)
    raise RunError(
        f"{path} is for other vocabularies; create it again with transduce shortlist {run}"
    )
