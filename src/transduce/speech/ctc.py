"""CTC: greedy output, joint search with a decoder, alignment (Graves et al. 2006), and the times
of tokens by it.

Symbols: n sentences, r hypotheses, t positions of the memory, v tokens.  The blank is PAD.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.decoding.constraints import OutputConstraints, SearchHooks
from transduce.engine.model import NativeState
from transduce.errors import DataError
from transduce.nn.attention import record_into
from transduce.nn.state import State
from transduce.nn.transformer import DecoderLayer, TransformerDecoder
from transduce.sequence import Padded
from transduce.speech import monotonic
from transduce.speech.model import NativeSpeech, SpeechModel
from transduce.text import EOS, PAD

NEVER = float("-inf")
SMALLEST = 1e-38
"""Floor for sums of probabilities, to keep their logarithm finite."""
IMPOSSIBLE = -1e9
"""Log-probability of a prefix that has more tokens than positions."""


def collapse(path: Sequence[int]) -> list[int]:
    """Tokens of a path: repetitions merged, then blanks removed."""
    return [token for token, _ in itertools.groupby(path) if token != PAD]


def greedy(log_probs: Padded) -> list[list[int]]:
    """Tokens of the best path of each row, from log-probabilities (n, t, v)."""
    best = log_probs.values.argmax(-1).tolist()
    return [
        collapse(row[:length]) for row, length in zip(best, log_probs.lengths.tolist(), strict=True)
    ]


def positions_needed(tokens: Sequence[int]) -> int:
    """Minimum number of positions for these tokens, with a blank between equal neighbours."""
    return len(tokens) + sum(a == b for a, b in itertools.pairwise(tokens))


class TokenSpan(NamedTuple):
    """Positions [start, end) of a token, and the mean of its log-probability over them."""

    token: int
    start: int
    end: int
    log_prob: float


def align(log_probs: Tensor, tokens: Sequence[int]) -> list[TokenSpan]:
    """Positions of each token on the most probable path through log_probs (t, v) that writes
    `tokens` (Viterbi).  Raises DataError if there are too few positions."""
    frames, needed = len(log_probs), positions_needed(tokens)
    if frames < needed:
        raise DataError(f"{len(tokens)} tokens need {needed} positions; there are {frames}")
    if not frames:
        return []
    written = np.full(2 * len(tokens) + 1, PAD)  # a blank before, between and after the tokens
    written[1::2] = tokens
    emitted = log_probs[:, torch.from_numpy(written)].double().cpu().numpy()  # (t, 2n + 1)
    leaps = np.zeros(len(written), bool)  # a blank between unlike tokens may be left out
    leaps[3::2] = written[3::2] != written[1:-2:2]
    best = np.full(len(written), NEVER)
    best[:2] = emitted[0, :2]
    came_from = np.zeros((frames, len(written)), np.int8)
    for t in range(1, frames):
        ways = np.full((3, len(written)), NEVER)
        ways[0] = best
        ways[1, 1:] = best[:-1]
        ways[2, 2:] = np.where(leaps[2:], best[:-2], NEVER)
        came_from[t] = ways.argmax(0)
        best = ways.max(0) + emitted[t]
    position = len(written) - 1
    if len(tokens) and best[-2] > best[-1]:
        position -= 1
    path = np.zeros(frames, np.int64)
    for t in range(frames - 1, -1, -1):
        path[t] = position
        position -= int(came_from[t, position])
    spans = []
    for i, token in enumerate(tokens):
        (at,) = np.nonzero(path == 2 * i + 1)
        mean = float(emitted[at, 2 * i + 1].mean())
        spans.append(TokenSpan(token, int(at[0]), int(at[-1]) + 1, mean))
    return spans


class PrefixState:
    """CTC's probabilities of hypotheses as prefixes of the output (Watanabe et al. 2017, alg. 2).

    `log_prefix` (r, v): log-probability of outputs that begin with the hypothesis and this token;
    at EOS, of the hypothesis.  Sums over all v tokens are a matrix product: the paths to a
    hypothesis do not depend on the next token, except on an equal token.
    """

    def __init__(self, log_probs: Padded) -> None:
        """log_probs: (n, t, v), of a hypothesis for each row, still empty."""
        values, self._lengths = log_probs.values, log_probs.lengths
        self._log_probs = values
        self._probs = values.exp().masked_fill(~log_probs.real[..., None], 0.0)
        self._real = log_probs.real
        n, t, _ = values.shape
        device = values.device
        self._owner = torch.arange(n, device=device)
        self._last = torch.full((n,), -1, device=device)
        # Log-probabilities of paths over the first 0 … t positions, by the kind of their last one.
        self._token = torch.full((n, t + 1), NEVER, dtype=torch.float64, device=device)
        self._blank = torch.zeros(n, t + 1, dtype=torch.float64, device=device)
        self._blank[:, 1:] = values[:, :, PAD].double().cumsum(1)
        self.prefix = torch.zeros(n, dtype=torch.float64, device=device)  # (r,) as log_prefix
        self.log_prefix = self._of_next()

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        self._owner, self._last = self._owner[rows], self._last[rows]
        self._token, self._blank = self._token[rows], self._blank[rows]
        self.prefix, self.log_prefix = self.prefix[rows], self.log_prefix[rows]

    def extend(self, tokens: Tensor) -> None:
        """Append a token (r,) to each hypothesis."""
        self.prefix = self.log_prefix.gather(1, tokens[:, None])[:, 0]
        spoken = self._log_probs[self._owner, :, tokens].double()  # (r, t)
        blank = self._log_probs[self._owner, :, PAD].double()
        begun = self._ended()[:, :-1]
        same = (tokens == self._last)[:, None]
        begun = torch.where(same, self._blank[:, :-1], begun)  # equal ones need a blank between
        token = _run(begun, spoken)
        self._token = torch.cat([torch.full_like(token[:, :1], NEVER), token], 1)
        after = _run(self._token[:, :-1], blank)
        self._blank = torch.cat([torch.full_like(after[:, :1], NEVER), after], 1)
        self._last = tokens
        self.log_prefix = self._of_next()

    def _ended(self) -> Tensor:
        """(r, t + 1) log-probability of having written the hypothesis by each position."""
        return torch.logaddexp(self._token, self._blank)

    def _of_next(self) -> Tensor:
        ended, real = self._ended(), self._real[self._owner]
        before = ended[:, :-1].masked_fill(~real, NEVER)
        most = before.amax(1, keepdim=True).clamp(min=IMPOSSIBLE)
        weights = (before - most).exp().to(self._probs.dtype)
        sums = weights.new_empty(len(weights), self._probs.shape[2])
        for sentence in sorted(set(self._owner.tolist())):
            rows = self._owner == sentence
            sums[rows] = weights[rows] @ self._probs[sentence]
        log_sums = sums.double().clamp(min=SMALLEST).log() + most
        rows = torch.arange(len(log_sums), device=log_sums.device)
        repeated = self._last.clamp(min=0)
        spoken = self._log_probs[self._owner, :, repeated].double()
        again = (self._blank[:, :-1].masked_fill(~real, NEVER) + spoken).logsumexp(1)
        log_sums[rows, repeated] = torch.where(self._last >= 0, again, log_sums[rows, repeated])
        log_sums[:, EOS] = ended.gather(1, self._lengths[self._owner][:, None])[:, 0]
        return log_sums.clamp(min=IMPOSSIBLE)


def _run(begun: Tensor, emitted: Tensor) -> Tensor:
    """Log-probabilities (r, t) of x[i] = (x[i - 1] + begun[i]) · emitted[i], x[-1] = 0, in closed
    form: a product of everything emitted since the beginning."""
    whole = emitted.cumsum(1)
    return whole + (begun - (whole - emitted)).logcumsumexp(1)


@dataclass(eq=False)
class JointState:
    """State of a decoder, and CTC's probabilities of its hypotheses."""

    decoder: State | NativeState
    ctc: PrefixState
    started: bool = False

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        self.decoder.select(rows)
        self.ctc.select(rows)


class JointModel:
    """Speech model ranked by log p(decoder) + weight · log p(CTC) (Watanabe et al. 2017)."""

    def __init__(self, model: SpeechModel | NativeSpeech, weight: float) -> None:
        self._model = model
        self._weight = weight

    def hooks(self, sentence_constraints: Sequence[OutputConstraints]) -> SearchHooks:
        """Hooks for `search`: output constraints, and CTC's part of each step."""
        return SearchHooks(sentence_constraints, self._bonus)

    def start(self, source: Padded) -> JointState:
        """Encode frames; returns the initial state."""
        memory = self._model.encode(source)
        return self.over(memory, self._model.ctc_log_probs(memory))

    def over(self, memory: Padded, log_probs: Padded) -> JointState:
        """The initial state over a memory (n, t, m), and CTC's log-probabilities (n, t, v)."""
        return JointState(self._model.over(memory), PrefixState(log_probs))

    def step(self, target: Padded, state: JointState) -> Tensor:
        """Logits (r, t, v) of the decoder; CTC follows all tokens of `target` after the first."""
        for column in range(0 if state.started else 1, target.values.shape[1]):
            state.ctc.extend(target.values[:, column])
        state.started = True
        decoder: Any = state.decoder
        return self._model.step(target, decoder)

    def _bonus(self, state: JointState) -> Tensor:
        """(r, v) weight · log p(CTC writes on with this token), at most 0."""
        gain = state.ctc.log_prefix - state.ctc.prefix[:, None]
        return (self._weight * gain).clamp(max=0.0).float()


CTC_SMOOTHED = 7
"""Positions of the median filter over attention."""


def spoken_spans(scored: Tensor, tokens: Sequence[int]) -> list[TokenSpan]:
    """Positions of tokens on CTC's most probable path, by its log-probabilities (t, v); none
    without room."""
    return align(scored, tokens) if positions_needed(tokens) <= len(scored) else []


@torch.inference_mode()
def attended_spans(
    model: SpeechModel,
    memory: Tensor | NDArray[np.float32],
    before: Sequence[int],
    tokens: Sequence[int],
    heads: Sequence[tuple[int, int]],
    positions: int,
) -> list[TokenSpan]:
    """Positions of tokens by cross-attention, on the best monotonic path; none without room.

    Weights are normalised over the tokens, smoothed, and averaged (Radford et al. 2022, the
    published code).  memory: (t, m), of which the first `positions` have sound.  before: ids before
    the tokens.  heads: layer and head of each that follows the words; empty for all of the upper
    half of the layers.
    """
    if not tokens or positions < len(tokens) + 1:
        return []
    memory = torch.as_tensor(memory)
    decoder = cast(TransformerDecoder, model.decoder)
    layers = [cast(DecoderLayer, layer).cross_attention for layer in decoder.layers]
    upper = range(len(layers) // 2, len(layers))
    heads = heads or [(i, head) for i in upper for head in range(layers[i].n_heads)]
    chosen = sorted({layer for layer, _ in heads})
    state = decoder.start(Padded.unpadded(memory[None]))
    recorded = {i: record_into(layers[i], on=True)[""] for i in chosen}
    try:
        ids = torch.tensor([[*before, *tokens]], device=memory.device)
        logits = model.step(Padded.unpadded(ids), state)[0, len(before) - 1 :]
    finally:
        for i in chosen:
            record_into(layers[i], on=False)
    # A token is written while the one before it is read; the last row is of the end.
    weights = torch.stack([recorded[i][0][0, head] for i, head in heads]).float()
    weights = weights[:, len(before) - 1 :, :positions]  # (heads, n + 1, t)
    deviation, mean = torch.std_mean(weights, 1, keepdim=True, correction=0)
    weights = (weights - mean) / (deviation + 1e-6)
    padded = torch.nn.functional.pad(
        weights, (CTC_SMOOTHED // 2, CTC_SMOOTHED // 2), mode="reflect"
    )
    smooth = padded.unfold(2, CTC_SMOOTHED, 1).median(3).values.mean(0)
    scores = smooth.cpu().numpy()[None].astype(np.float32)
    lengths = monotonic.durations(scores, [len(tokens) + 1], [positions])[0]
    ends = lengths.cumsum().tolist()
    written = torch.tensor([*tokens, EOS], device=memory.device)
    log_probs = logits.float().log_softmax(-1).gather(1, written[:, None])[:, 0].tolist()
    starts = [0, *ends]
    return [
        TokenSpan(token, start, end, log_prob)
        for token, start, end, log_prob in zip(tokens, starts, ends, log_probs, strict=False)
    ]
