"""Guided alignment: a loss that trains a head of cross-attention on given links.

With head weights A and alignment links α, normalised for each target token, - Σ_t Σ_s α_ts log A_ts
is weighted and added to the translation loss (Chen et al. 2016; Garg et al. 2019).  Tokens without
links do not contribute.  The head still takes part in translation.  Links come from a file, or are
learnt by EM.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transduce.data.batches import PairBatch
from transduce.data.encoded import BatchLinks, EncodedPairs, LinkRows, MixedPairs, as_mixed
from transduce.data.lexicon import Lexicon, chunks_of, learn_lexicon
from transduce.data.pairs import read_pairs, without_marks
from transduce.data.sources import stamp
from transduce.data.text_files import read_lines
from transduce.errors import DataError, RunError
from transduce.metrics.alignment import symmetrised
from transduce.nn.attention import RecordedAttention, weights_with_gradient
from transduce.support.work import chunks
from transduce.tasks.recipe import checksum_of, read_split
from transduce.tasks.translation.recipe import DataConfig, TranslationRecipe
from transduce.tasks.translation.scoring import cross_attentions
from transduce.text import Tokenizer
from transduce.text.alignment import WordUnit, check_inside, parse_links, units_of_tokens
from transduce.training.config import GuidedAlignmentConfig
from transduce.training.log import ProgressCounter
from transduce.training.loss import LossSums
from transduce.training.weights import read_tensors, write_tensors

VERSION = 1
"""Version of the link format; a change recreates links on disk."""
READ_TOGETHER = 1000
SMALLEST = 1e-9
"""Floor of the attention weights; softmax values rounded to zero have no gradient."""

Aligned = tuple[str, str, str, str]
"""Source, target, their links as text, and the place of these for messages."""


class AlignmentGuide:
    """Adds the loss of guided alignment to the loss of a batch."""

    def __init__(self, model: nn.Module, config: GuidedAlignmentConfig, links: LinkRows) -> None:
        attention = cross_attentions(model)[config.layer]
        assert isinstance(attention, RecordedAttention)
        self.attention = attention
        self.config = config
        self.links = links

    def loss(self, batch: PairBatch, loss: Callable[[], LossSums]) -> LossSums:
        """Loss of the batch plus its alignment loss.

        If the model takes several passes of the batch side by side, as in R-Drop, the mean is used.
        """
        with weights_with_gradient(self.attention) as recorded:
            sums = loss()
        (weights,) = recorded  # (b, h, t, s), or of several passes (p·b, h, t, s)
        links = self.links.batch(batch.rows)
        taught = weights[:, self.config.head]
        passes = taught.reshape(-1, len(batch.rows), *taught.shape[1:])
        losses = torch.stack([alignment_loss(part, links) for part in passes])
        return sums._replace(total=sums.total + self.config.weight * losses.mean())


def alignment_loss(weights: Tensor, links: BatchLinks) -> Tensor:
    """Alignment loss summed over the batch, from the weights (b, t, s) of the head."""
    indices = [torch.from_numpy(part).to(weights.device) for part in links[:3]]
    shares = torch.from_numpy(links.shares).to(weights.device)
    linked = weights[indices[0], indices[1], indices[2]].float()
    return -(shares * linked.clamp_min(SMALLEST).log()).sum()


def training_links(
    recipe: TranslationRecipe,
    source: Tokenizer,
    target: Tokenizer,
    train: EncodedPairs | MixedPairs,
    cache: Path,
) -> LinkRows:
    """The links of the training pairs, kept on disk beside the encoded pairs.

    recipe: with `training.alignment`.  source, target: tokenizers.  train: encoded pairs.  cache:
    directory of the links.

    Raises DataError for a file of links that does not fit the pairs.
    """
    config = recipe.training.alignment
    assert config is not None
    mixed = as_mixed(train)
    facts: list[Any] = [VERSION, *(part.directory.name for part in mixed.parts)]
    if config.links is not None:
        file = Path(recipe.data.root) / config.links
        facts.append(stamp(config.unit, [file]))
    key = checksum_of(*facts)
    path = cache / f"links-{key}.safetensors"
    if (links := _read(path, len(mixed))) is not None:
        return links
    if config.links is None:
        links = _learnt(mixed, source.size, target.size)
    else:
        corpus, _ = recipe.data.corpora()[0]
        links = _from_file(corpus, file, config.unit, source, target, mixed.parts[0])
    cache.mkdir(parents=True, exist_ok=True)
    write_tensors(path, {n: torch.from_numpy(part) for n, part in links._asdict().items()})
    return links


def _read(path: Path, most: int) -> LinkRows | None:
    """Links made before, unless they are damaged or of other pairs after all."""
    if not path.is_file():
        return None
    try:
        tensors = {name: tensor.numpy() for name, tensor in read_tensors(path).items()}
        links = LinkRows(**tensors)
    except (RunError, TypeError):
        return None
    return links if len(links.offsets) - 1 <= most else None


def _learnt(pairs: MixedPairs, source_size: int, target_size: int) -> LinkRows:
    """Links by EM in both directions, joined by grow-diag."""
    with ProgressCounter("aligning training pairs") as count:
        forward = learn_lexicon(pairs, target_size)
        backward = learn_lexicon(pairs, source_size, backward=True)
        return LinkRows.of(count.each(joined_links(pairs, forward, backward)))


def joined_links(
    pairs: MixedPairs, forward: Lexicon, backward: Lexicon
) -> Iterator[set[tuple[int, int]]]:
    """The (source, target) links of each pair by two lexicons, joined by grow-diag.

    pairs: encoded pairs.  forward, backward: lexicons of the two directions.
    """
    for rows in chunks_of(pairs):
        there, n_targets = forward.choices(pairs, rows)
        back, n_sources = backward.choices(pairs, rows)
        froms = np.split(there, np.cumsum(n_targets)[:-1])
        intos = np.split(back, np.cumsum(n_sources)[:-1])
        for source_of, target_of in zip(froms, intos, strict=True):
            links = {(s, t) for t, s in enumerate(source_of.tolist()) if s >= 0}
            other = {(s, t) for s, t in enumerate(target_of.tolist()) if t >= 0}
            yield symmetrised(links, other, "grow-diag")


def _from_file(
    data: DataConfig,
    file: Path,
    unit: WordUnit,
    source: Tokenizer,
    target: Tokenizer,
    encoded: EncodedPairs,
) -> LinkRows:
    """The links of those pairs of the file that were kept when the pairs were encoded."""

    def read(pairs: Any, root: Path) -> Iterator[Aligned]:
        rows = itertools.zip_longest(read_pairs(pairs, root), read_lines(file))
        for number, (pair, line) in enumerate(rows, 1):
            if pair is None or line is None:
                raise DataError(f"{file} must have one line for each pair of data.train")
            yield *pair, line, f"{file}: line {number}"

    items = read_split(data, "train", read, lambda item: without_marks(item[0]))
    with ProgressCounter("reading links") as count:
        aligned = list(_of_kept(count.each(items), unit, source, target, encoded))
    assert len(aligned) == len(encoded), (
        "the encoded pairs are a part of those read, in their order"
    )
    return LinkRows.of(aligned)


def _of_kept(
    items: Iterator[Aligned],
    unit: WordUnit,
    source: Tokenizer,
    target: Tokenizer,
    encoded: EncodedPairs,
) -> Iterator[set[tuple[int, int]]]:
    at = 0
    for chunk in chunks(items, READ_TOGETHER):
        sources = source.encode_batch([item[0] for item in chunk])
        targets = target.encode_batch([item[1] for item in chunk])
        for (s, t, line, location), a, b in zip(chunk, sources, targets, strict=True):
            if at == len(encoded):
                return
            # What was left out stands between two that were not, and in their order.
            if a != encoded.source(at).tolist() or b != encoded.target(at).tolist():
                continue
            at += 1
            n_source, in_source = units_of_tokens(source, s, a, unit)
            n_target, in_target = units_of_tokens(target, t, b, unit)
            links = parse_links(line, location)
            check_inside(links, n_source, n_target, location)
            yield _of_tokens(links, in_source, in_target)


def _of_tokens(
    links: frozenset[tuple[int, int]], in_source: list[list[int]], in_target: list[list[int]]
) -> set[tuple[int, int]]:
    tokens: list[dict[int, list[int]]] = []
    for parts in (in_source, in_target):
        of_word: dict[int, list[int]] = {}
        for token, words in enumerate(parts):
            for word in words:
                of_word.setdefault(word, []).append(token)
        tokens.append(of_word)
    return {(a, b) for s, t in links for a in tokens[0].get(s, ()) for b in tokens[1].get(t, ())}
