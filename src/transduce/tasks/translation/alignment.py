"""Alignments of a source and its target, by attention, and the words of a translation."""

import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transduce.data.batches import PairBatch
from transduce.data.encoded import BatchLinks, EncodedPairs, LinkRows, MixedPairs, as_mixed
from transduce.data.lexicon import Lexicon, chunks_of, learn_lexicon
from transduce.data.pairs import read_pairs, without_marks
from transduce.data.sources import stamp
from transduce.data.text_files import read_lines
from transduce.decoding.strategies import topk
from transduce.errors import DataError, RunError, SettingError
from transduce.metrics.alignment import Symmetry, attended_above, most_attended, symmetrised
from transduce.nn.attention import RecordedAttention, record_attention, weights_with_gradient
from transduce.sequence import Padded
from transduce.support.work import chunks, in_batches
from transduce.tasks.recipe import checksum_of, read_split
from transduce.tasks.translation.recipe import DataConfig, TranslationRecipe
from transduce.tasks.translation.scoring import (
    SCORED_TOGETHER,
    SCORED_TOKENS,
    attended,
    cross_attentions,
    layer_of,
    max_scored_length,
)
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, EOS, PAD, UNK, Tokenizer
from transduce.text.alignment import (
    Link,
    Unit,
    WordUnit,
    check_inside,
    parse_links,
    units_of_tokens,
)
from transduce.text.offsets import token_spans
from transduce.text.scripts import UNSPACED
from transduce.training.config import GuidedAlignmentConfig
from transduce.training.log import ProgressCounter
from transduce.training.loss import LossSums
from transduce.training.weights import read_tensors, write_tensors

logger = logging.getLogger("transduce")

Weights = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class AlignmentOptions:
    """Alignment: attention to use, and extraction of links from it."""

    layer: int | None = None
    """Layer of the decoder, from 0, or from the last on -1; by default that of guided alignment,
    else the last."""
    head: int | None = None
    """A head instead of the mean of all; by default the head of guided alignment."""
    mean: bool = False
    """The mean of all heads even where guided alignment trained a head."""
    threshold: float | None = None
    """Link token pairs with more than this attention weight; by default each target token to the
    source token with the highest weight."""
    unit: Unit = "words"
    """Unit of links; a word is linked if any of its tokens is."""
    shifted: bool = False
    """Take attention of the step that reads a target token instead of the step that predicts it
    (Chen et al. 2020), which is better for heads without guided alignment."""


class PairLinks(NamedTuple):
    """The links of a pair, and how many units it has on each side."""

    links: frozenset[Link]
    n_source: int
    n_target: int


def align_pairs(
    translator: Translator,
    pairs: Iterable[tuple[str, str]],
    options: AlignmentOptions = AlignmentOptions(),
) -> Iterator[PairLinks]:
    """Links of each (source, target) pair, in order, independent of the batch.

    Pairs beyond `max_scored_length` tokens get no links, and a warning.  Raises RunError for a
    model without cross-attention, SettingError for a missing layer or head.

    translator: with its model.  pairs: (source, target) texts.  options: attention to use, and unit
    of the links.
    """
    module, head = attention_of(translator, options)
    first = 0
    for chunk in chunks(pairs, SCORED_TOGETHER):
        yield from _align(translator, module, head, chunk, options, first)
        first += len(chunk)


def align_both_ways(
    forward: Translator,
    backward: Translator,
    pairs: Iterable[tuple[str, str]],
    symmetry: Symmetry,
    options: AlignmentOptions = AlignmentOptions(),
) -> Iterator[PairLinks]:
    """The links that a run and a run of the other direction find together.

    forward: translates sources to targets.  backward: translates targets to sources.  pairs:
    (source, target) texts.  symmetry: combination of both alignments.  options: as in
    `align_pairs`.  Raises DataError for pairs whose tokens the runs count differently.
    """
    first, other = itertools.tee(pairs)
    there = align_pairs(forward, first, options)
    back = align_pairs(backward, ((target, source) for source, target in other), options)
    for number, (a, b) in enumerate(zip(there, back, strict=True), 1):
        if (a.n_source, a.n_target) != (b.n_target, b.n_source):
            raise DataError(
                f"pair {number} has {a.n_source} and {a.n_target} tokens in one run, but "
                f"{b.n_target} and {b.n_source} in the other; align words instead of tokens"
            )
        turned = {(source, target) for target, source in b.links}
        links = frozenset(symmetrised(a.links, turned, symmetry))
        yield PairLinks(links, a.n_source, a.n_target)


def attention_of(translator: Translator, options: AlignmentOptions) -> tuple[nn.Module, int | None]:
    """Attention of the layer selected by the options, and the head; None for the mean of all."""
    trained_layer, trained_head = translator.config.alignment_head
    layer = trained_layer if options.layer is None else options.layer
    head = options.head
    layers = cross_attentions(translator.model)
    attention = layer_of(layers, layer)
    if head is None and not options.mean and attention is layers[trained_layer]:
        head = trained_head
    n_heads = int(getattr(attention, "n_heads", 1))
    if head is not None and not 0 <= head < n_heads:
        raise SettingError(
            f"alignment head {head} is out of range: the layer has heads 0 to {n_heads - 1}"
        )
    return attention, head


def _align(
    translator: Translator,
    attention: nn.Module,
    head: int | None,
    pairs: Sequence[tuple[str, str]],
    options: AlignmentOptions,
    first: int,
) -> list[PairLinks]:
    translator.model.eval()
    sources = translator.source.encode_batch([source for source, _ in pairs])
    targets = translator.target.encode_batch([target for _, target in pairs])
    translator.check_pairs(pairs, sources, targets, first)
    lengths = [1 + max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]
    units = [
        (
            units_of_tokens(translator.source, source, sources[i], options.unit),
            units_of_tokens(translator.target, target, targets[i], options.unit),
        )
        for i, (source, target) in enumerate(pairs)
    ]
    pair_links = [
        PairLinks(frozenset(), n_source, n_target) for (n_source, _), (n_target, _) in units
    ]
    readable, max_length = [], max_scored_length(translator.model)
    for i, length in enumerate(lengths):
        if length > max_length:
            message = "pair %d has %d tokens on one side; alignment is limited to %d"
            logger.warning(message, first + i + 1, length, max_length)
        elif sources[i] and targets[i]:
            readable.append(i)
    for rows in in_batches(readable, lengths, SCORED_TOKENS):
        batch = [sources[i] for i in rows], [targets[i] for i in rows]
        weights = _weights(translator, attention, head, *batch, options.shifted)
        for i, of_pair in zip(rows, weights, strict=True):
            if options.threshold is None:
                tokens = most_attended(of_pair)
            else:
                tokens = attended_above(of_pair, options.threshold)
            (_, in_source), (_, in_target) = units[i]
            links = {(a, b) for s, t in tokens for a in in_source[s] for b in in_target[t]}
            pair_links[i] = pair_links[i]._replace(links=frozenset(links))
    return pair_links


def _weights(
    translator: Translator,
    attention: nn.Module,
    head: int | None,
    sources: list[list[int]],
    targets: list[list[int]],
    shifted: bool,
) -> list[Weights]:
    """For each pair the weights (t, s) of its tokens, without the marks of begin and end."""
    device = translator.device
    source = Padded.from_rows([translator.source.as_source(ids) for ids in sources], PAD).to(device)
    target = Padded.from_rows([[BOS, *ids] for ids in targets], PAD).to(device)
    recorded = attended(translator.model, attention, source, target)  # (b, h, t, s)
    chosen = recorded.mean(1) if head is None else recorded[:, head]
    weights = chosen.float().cpu().numpy()
    after = int(shifted)  # row t predicts token t, and reads token t - 1
    return [
        weights[i, after : after + len(t), : len(s)]
        for i, (s, t) in enumerate(zip(sources, targets, strict=True))
    ]


Floats = NDArray[np.float64]
Span = tuple[int, int]

MAX_TOKENS = 512
"""Tokens of a sentence, or of its translation: the memory grows by the square."""
RIVALS = 8
"""Likeliest tokens in the place of each."""

_UNSPACED = "".join(f"{first}-{last}" for first, last in UNSPACED)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:['’-][^\W{_UNSPACED}]+)*|[^\w\s]")


@dataclass(frozen=True)
class TranslatedWords:
    """Words of a source and of its translation, as characters [start, end) of each."""

    source: tuple[Span, ...]
    target: tuple[Span, ...]
    probabilities: Floats = field(repr=False)
    """(t,): of each word of the target, given the source and the words before it."""
    attention: Floats | None = field(repr=False)
    """(t, s): mean over the heads of the last layer and the tokens of a word.  A row sums to at
    most 1; the rest lies on the end of the source.  None without cross-attention."""
    rivals: Callable[[int], list[tuple[str, float]]] = field(repr=False)
    """Number of a word -> (target up to it, with another token in place of its first; probability
    of that token), likeliest first."""


def word_spans(text: str) -> tuple[Span, ...]:
    """Words, marks of punctuation, and characters of scripts without spaces, each by itself."""
    return tuple(match.span() for match in _WORD.finditer(text))


@torch.inference_mode()
def translated_words(
    translator: Translator, source: str, target: str, tag: str = ""
) -> TranslatedWords:
    """Words of a sentence and of its translation, from a forced pass of the model.

    tag: text before the source that selects the target language, and is no word of it.  Raises
    DataError beyond `MAX_TOKENS`.
    """
    if tag and (languages := translator.config.languages) is not None:
        _, (pair,) = languages.separate([tag + source])
        translator, tag = translator.between(*pair), ""
    source_ids = translator.source.encode(tag + source)
    target_ids = translator.target.encode(target)
    rows = [translator.source.as_source(source_ids), [BOS, *target_ids]]
    limit = min(MAX_TOKENS, max_scored_length(translator.model))
    if max(map(len, rows)) > limit:
        raise DataError(f"the sentence or its translation has more than {limit} tokens")
    translator.model.eval()
    batches = [Padded.from_rows([row], PAD).to(translator.device) for row in rows]
    with record_attention(translator.model) as maps:
        logits = translator.model(*batches)[0].float()  # (t + 1, v)
    log_probs = logits.log_softmax(-1).cpu()
    of_tokens = [float(row[i]) for row, i in zip(log_probs, target_ids, strict=False)]
    likeliest, likeliest_ids = topk(log_probs, min(RIVALS, log_probs.shape[1]))
    spans = word_spans(source), word_spans(target)
    shifted = [(start + len(tag), end + len(tag)) for start, end in spans[0]]
    read = _members(translator.source, tag + source, source_ids, shifted)
    written = _members(translator.target, target, target_ids, spans[1])
    layers = [recorded for name, recorded in maps.items() if name.endswith("cross_attention")]
    attention = None
    if layers:
        weights = layers[-1][0].mean(1)[0].double().cpu().numpy()  # (b, h, t, s) -> (t, s)
        attention = _of_words(weights, written, read)
    probabilities = np.exp([sum(of_tokens[i] for i in tokens) for tokens in written])

    def rivals(word: int) -> list[tuple[str, float]]:
        first = written[word][0] if written[word] else 0
        probabilities = likeliest[first].exp().tolist(), likeliest_ids[first].tolist()
        return [
            (translator.target.decode([*target_ids[:first], token]), probability)
            for probability, token in zip(*probabilities, strict=True)
            if token not in (PAD, BOS, EOS, UNK, target_ids[first])
        ]

    return TranslatedWords(*spans, np.asarray(probabilities, np.float64), attention, rivals)


def _members(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], words: Sequence[Span]
) -> list[list[int]]:
    """Tokens of each word; a token across several words belongs to the first."""
    owner = [-1] * len(text)
    for number, (start, end) in enumerate(words):
        owner[start:end] = [number] * (end - start)
    members: list[list[int]] = [[] for _ in words]
    for token, (start, end) in enumerate(token_spans(tokenizer, text, ids)):
        owners = [owner[i] for i in range(start, end) if owner[i] >= 0]
        if owners:
            members[owners[0]].append(token)
    return members


def _of_words(weights: NDArray[Any], rows: list[list[int]], columns: list[list[int]]) -> Floats:
    """Weights (t, s) of tokens -> of words: the mean of their rows, the sum of their columns."""
    matrix = np.zeros((len(rows), len(columns)))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            if row and column:
                matrix[i, j] = weights[np.ix_(row, column)].sum(1).mean()
    return matrix


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
