"""A run's vocabulary shortlist: learnt from its training pairs, kept in its directory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transduce.data.encoded import EncodedPairs, MixedPairs, as_mixed
from transduce.data.lexicon import learn_lexicon
from transduce.decoding.shortlist import Shortlist
from transduce.errors import RunError
from transduce.text import EOS, Tokenizer
from transduce.training.weight_files import opened_weights as opened_file

SHORTLIST = "shortlist.safetensors"


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
        allowed = set(shortlist.of(source.encode(source_ids)).tolist())
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

    parts = {"likely": shortlist.likely, "frequent": shortlist.frequent}
    tensors = {name: torch.from_numpy(part.astype(np.int32)) for name, part in parts.items()}
    write_tensors(run / SHORTLIST, tensors)
    return run / SHORTLIST


def load_shortlist(run: Path, source: Tokenizer, target: Tokenizer) -> Shortlist | None:
    """Shortlist of a run directory, or None. Raises RunError if it is for other vocabularies.

    source, target: tokenizers of the run.
    """
    path = run / SHORTLIST
    if not path.is_file():
        return None
    with opened_file(path, "np") as (file, _):
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    wrong = set(tensors) != {"likely", "frequent"} or any(
        part.dtype != np.int32 or part.ndim != dims or bool((part >= target.size).any())
        for part, dims in ((tensors["likely"], 2), (tensors["frequent"], 1))
    )
    if wrong or len(tensors["likely"]) != source.size or bool((tensors["frequent"] <= EOS).any()):
        raise RunError(
            f"{path} is for other vocabularies; create it again with transduce shortlist {run}"
        )
    return Shortlist(tensors["likely"], tensors["frequent"], source is target, target.size)
