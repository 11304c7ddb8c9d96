"""A trained model with its tokenizers: texts in, texts out."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from transduce.decoding.hypotheses import Hypothesis
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import search
from transduce.decoding.shortlist import NarrowModel, Shortlist, check_shortlist
from transduce.errors import RunError, SettingError
from transduce.inspect.attention import record_attention
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.sequence import Padded
from transduce.text import BOS, EOS, PAD, Tokenizer

logger = logging.getLogger("transduce")

SENTENCE_ENDS = tuple(".!?。！？…;；:：")


PIECE_BITS = 40
"""Where the number of a piece begins in the number of its random stream, above the text's."""
SCORED_TOGETHER = 512
"""Pairs that are read before they are scored."""
SCORED_TOKENS = 1024
"""Target tokens scored at once: their log-probabilities over the vocabulary are all held."""
LONGEST_SCORED = 8192


@dataclass(frozen=True)
class Candidate:
    """One possible output."""

    text: str
    tokens: tuple[str, ...]
    """Pieces as the model made them."""
    score: float
    """What candidates are ranked by: log-probability after the length penalty."""
    log_prob: float
    """Natural logarithm of the probability of the tokens and the end."""
    parts: tuple[tuple[int, ...], ...] = field(default=(), repr=False, compare=False)
    """Ids of the tokens, for each piece of the source."""


@dataclass(frozen=True)
class Translation:
    """The best output for one input, and the other candidates that were asked for."""

    text: str
    tokens: tuple[str, ...] = ()
    score: float = 0.0
    log_prob: float = 0.0
    candidates: tuple[Candidate, ...] = field(default=(), repr=False)
    """The n best, best first; the first is this translation itself."""

    def fields(self) -> dict[str, Any]:
        """What goes into a JSON record."""
        return {"translation": self.text, "score": self.score, "tokens": self.tokens}


@dataclass(frozen=True)
class Alignment:
    """How the target looked at the source."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Tensor
    """(len(target), len(source)): each row sums to one; mean over the heads of a layer."""


class Translator:
    """Turns source texts into target texts."""

    inputs = ("source",)

    def __init__(
        self,
        model: EncoderDecoder,
        source: Tokenizer,
        target: Tokenizer,
        options: DecodingOptions,
        longest: int,
        reach: int | None = None,
    ) -> None:
        """longest: source tokens that the model was trained for; longer texts go in pieces.

        reach: target tokens that the decoder's positions allow; None for no limit.
        """
        self.model = model
        self.source = source
        self.target = target
        self.options = options
        self.longest = longest
        self.reach = reach
        self.aligning: tuple[int, int | None] = (-1, None)
        """Layer and head to align by unless another is asked for; no head for the mean of all."""
        self.shortlist: Shortlist | None = None
        """The target tokens that sources can need, for `options.shortlist`."""

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def translate(
        self, texts: Sequence[str], options: DecodingOptions | None = None, first: int = 0
    ) -> list[Translation]:
        """One translation for each text, in order; a blank text gives a blank one.

        options: by default the recipe's.  first: number of the first text in a longer input, for
        messages and for the random streams of sampling.
        """
        options = options or self.options
        pieces: list[tuple[int, list[int]]] = []  # (text, ids of a piece that fits)
        streams: list[int] = []
        for i, ids in enumerate(self.source.encode_batch(list(texts))):
            if texts[i].strip():
                fitting = list(self._fitting(ids, first + i + 1))
                pieces += ((i, piece) for piece in fitting)
                streams += (first + i + (j << PIECE_BITS) for j in range(len(fitting)))
        found: list[list[list[Hypothesis]]] = [[] for _ in texts]
        hypotheses = self._decode([ids for _, ids in pieces], streams, options)
        for (i, _), best in zip(pieces, hypotheses, strict=True):
            found[i].append(best)
        return [self._translation(parts) for parts in found]

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | None = None,
        first: int = 0,
    ) -> list[Translation]:
        """The same as `translate`, for inputs of one text each."""
        return self.translate([text for (text,) in inputs], options, first)

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[float]:
        """Natural log-probability of each target text, end included, given its source.

        Pairs beyond `LONGEST_SCORED` tokens get nan and a warning.
        """
        rest, first = iter(pairs), 0
        while chunk := list(itertools.islice(rest, SCORED_TOGETHER)):
            yield from self._score(chunk, first)
            first += len(chunk)

    def align(self, source: str, target: str | None = None, layer: int = -1) -> Alignment:
        """How each target token, and the end, looked at the source tokens in one layer.

        target: by default the model's own translation.  Raises RunError for a model that pays no
        attention to the source, SettingError for a layer that it does not have.
        """
        if target is None:
            target = self.translate([source])[0].text
        source_ids = [*self.source.encode(source), EOS]
        target_ids = [BOS, *self.target.encode(target)]
        with torch.inference_mode(), record_attention(self.model) as maps:
            layers = [seen for name, seen in maps.items() if name.endswith("cross_attention")]
            check_layer(layer, len(layers))
            self.model(self._batch([source_ids]), self._batch([target_ids]))
        weights = layers[layer][0][0].mean(0)  # (h, t, s) -> (t, s)
        return Alignment(
            (*self.source.tokens(source_ids[:-1]), "</s>"),
            (*self.target.tokens(target_ids[1:]), "</s>"),
            weights.float().cpu(),
        )

    def _decode(
        self, sources: list[list[int]], streams: list[int], options: DecodingOptions
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each source, decoded in batches of like lengths."""
        self.model.eval()
        lengths = [len(ids) + 1 for ids in sources]
        order = sorted(range(len(sources)), key=lengths.__getitem__, reverse=True)
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for rows in in_batches(order, lengths, options.batch_tokens):
            batch = self._batch([[*sources[i], EOS] for i in rows])
            narrow = self._narrow([sources[i] for i in rows], options)
            model: Any = self.model if narrow is None else narrow
            limits = options.max_lengths(torch.tensor([len(sources[i]) for i in rows]))
            if self.reach is not None:
                limits = limits.clamp(max=self.reach)
            with torch.inference_mode():
                found = search(
                    model.step,
                    model.start(batch),
                    Padded.unpadded(torch.full((len(rows), 1), BOS, device=self.device)),
                    limits.to(self.device),
                    EOS,
                    (BOS, PAD),
                    options,
                    [streams[i] for i in rows],
                )
            if narrow is not None:
                found = narrow.widened(found)
            for i, hypotheses in zip(rows, found, strict=True):
                results[i] = hypotheses
        return results

    def _narrow(self, sources: list[list[int]], options: DecodingOptions) -> NarrowModel | None:
        """The model with the shortlists of some sources, if options ask for them."""
        if not options.shortlist:
            return None
        if self.shortlist is None:
            raise RunError("this run has no shortlist; make one with transduce shortlist RUN")
        check_shortlist(options)
        return self.shortlist.narrow(self.model, sources)

    def _translation(self, parts: list[list[Hypothesis]]) -> Translation:
        """The translation of a text from those of its pieces, which are mostly one."""
        if not parts:
            return Translation("")
        candidates = []
        for rank in range(min(len(part) for part in parts)):
            chosen = [part[rank] for part in parts]
            ids = [token for hypothesis in chosen for token in hypothesis.tokens]
            # What is one line in must be one line out, whatever the model says.
            text = " ".join(self.target.decode(ids).splitlines())
            score = sum(h.score for h in chosen) / len(chosen)
            log_prob = sum(h.log_prob for h in chosen)
            tokens = tuple(self.target.tokens(ids))
            each = tuple(tuple(hypothesis.tokens) for hypothesis in chosen)
            candidates.append(Candidate(text, tokens, score, log_prob, each))
        best = candidates[0]
        return Translation(best.text, best.tokens, best.score, best.log_prob, tuple(candidates))

    def _fitting(self, ids: list[int], line: int) -> Iterator[list[int]]:
        """The ids whole, or in pieces that fit, cut after the ends of sentences or words."""
        if len(ids) > self.longest:
            logger.warning(
                "line %d has %d tokens, more than the %d this model was trained for; "
                "it is translated in pieces",
                line,
                len(ids),
                self.longest,
            )
        return self.in_pieces(ids)

    def in_pieces(self, ids: list[int]) -> Iterator[list[int]]:
        """Source ids whole, or in the pieces that they are translated in."""
        while len(ids) > self.longest:
            cut = self._cut(self.source.tokens(ids[: self.longest + 1]))
            yield ids[:cut]
            ids = ids[cut:]
        yield ids

    def _cut(self, tokens: Sequence[str]) -> int:
        """Where to cut: after the last end of a sentence in the later half, else before a word."""
        half = len(tokens) // 2
        for i in range(len(tokens) - 1, half, -1):
            if tokens[i - 1].endswith(SENTENCE_ENDS):
                return i
        for i in range(len(tokens) - 1, half, -1):
            if tokens[i].startswith(("▁", " ")):
                return i
        return len(tokens) - 1

    def _score(self, pairs: Sequence[tuple[str, str]], first: int) -> list[float]:
        """Scores of some pairs, in batches of like lengths; `first` is the number of the first."""
        self.model.eval()
        sources = [[*ids, EOS] for ids in self.source.encode_batch([s for s, _ in pairs])]
        targets = [[*ids, EOS] for ids in self.target.encode_batch([t for _, t in pairs])]
        lengths = [max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]
        scores = [math.nan] * len(pairs)
        order = []
        for i in sorted(range(len(pairs)), key=lengths.__getitem__, reverse=True):
            if lengths[i] > LONGEST_SCORED:
                message = "pair %d has %d tokens on a side, more than the %d that are scored"
                logger.warning(message, first + i + 1, lengths[i], LONGEST_SCORED)
            else:
                order.append(i)
        for rows in in_batches(order, lengths, SCORED_TOKENS):
            batch = [sources[i] for i in rows], [targets[i] for i in rows]
            for i, score in zip(rows, self._forced(*batch), strict=True):
                scores[i] = score
        return scores

    @torch.inference_mode()
    def _forced(self, sources: list[list[int]], targets: list[list[int]]) -> list[float]:
        """Log-probability of each target, given its source."""
        given = self._batch([[BOS, *ids[:-1]] for ids in targets])
        wanted = self._batch(targets)
        log_probs = self.model(self._batch(sources), given).float().log_softmax(-1)
        at_target = log_probs.gather(-1, wanted.values[..., None])[..., 0]  # (b, t)
        totals: list[float] = at_target.masked_fill(~wanted.real, 0.0).sum(1).tolist()
        return totals

    def _batch(self, rows: Sequence[Sequence[int]]) -> Padded:
        return Padded.from_rows(rows, PAD).to(self.device)


def check_layer(layer: int, n_layers: int) -> None:
    """Raises RunError where no layer looks at the source, SettingError where this one is none."""
    if not n_layers:
        raise RunError(
            "this model has no attention to align by: its decoder sees the source as one fixed "
            "vector; train one with another model.decoder.context.kind, such as 'general'"
        )
    if not -n_layers <= layer < n_layers:
        raise SettingError(
            f"there is no layer {layer} to align by; this model has {n_layers}: 0 to "
            f"{n_layers - 1}, or from the last on -1 to {-n_layers}"
        )


def in_batches(order: Sequence[int], lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Items in an order of falling lengths, cut so that none but a lone one exceeds `tokens`."""
    at = 0
    while at < len(order):
        rows = list(order[at : at + max(1, tokens // lengths[order[at]])])
        at += len(rows)
        yield rows
