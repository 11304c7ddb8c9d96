"""Explanations of all tasks: the search watched, a recorded pass over input and output, its
parts laid out."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transduce.decoding.constraints import OutputConstraints
from transduce.decoding.hypotheses import DEAD, ActiveHypotheses, Hypothesis, length_penalty
from transduce.decoding.search import SearchRequest, search_steps
from transduce.decoding.strategies import topk
from transduce.explain.credit import Choice, credit_of, nonlinear_stacks
from transduce.explain.explanation import Explanation, Film, FilmScene
from transduce.explain.parts import (
    Array,
    Attention,
    Credit,
    Fate,
    Guess,
    HeadVectors,
    Node,
    SearchTree,
    Step,
    Vectors,
    as_guesses,
    head_pattern,
    sharpness,
)
from transduce.explain.recording import (
    PassRecording,
    as_array,
    describe_stack,
    record_pass,
    stacks_of,
    without_positions,
)
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.heads.label import LabelHead
from transduce.nn.recurrent import RecurrentState
from transduce.sequence import Padded
from transduce.text import BOS, EOS, PAD
from transduce.training.film import read_film

SAMPLED_RIVALS = 4
"""Tokens that are shown beside each drawn token."""
MAX_NODES = 1500

SearchWatchPath = tuple[int, ...]
Names = Callable[[Sequence[int]], list[str]]


class _Candidate(NamedTuple):
    """A way on.  bonus: added to the score if it ends here."""

    total: float
    path: SearchWatchPath
    token: int
    bonus: float = 0.0


class SearchWatch:
    """Wraps the `step` and the bonus for the end of a search over an input; the search itself
    is not touched.

    best: ids of the best hypothesis, once the search is over; finished: it ends with EOS.
    """

    def __init__(
        self, request: SearchRequest[Any], names: Names, min_length: int | None = None
    ) -> None:
        """min_length: tokens before which no hypothesis ends; by default from the options."""
        options = request.options
        self._request = request
        self._least = options.min_length if min_length is None else min_length
        self._options, self._forbidden, self._names = options, set(request.forbidden), names
        beam = options.method == "beam"
        self._rivals = 2 * options.beam_size if beam else SAMPLED_RIVALS + options.n_best
        self._best: list[tuple[list[float], list[int]]] = []
        self._ends: list[float] = []
        self._bonuses: list[float] = []
        self._constraints = OutputConstraints()
        self._nodes = [Node(-1, names([BOS])[0], 0.0, "kept")]
        self._at: dict[SearchWatchPath, int] = {(): 0}
        self.best: list[int] = []
        self.finished = True

    def _watched(self) -> SearchRequest[Any]:
        """The same search, observed."""
        request = self._request
        token_bonus = request.hooks.token_bonus

        def step(fed: Padded, state: Any) -> Tensor:
            logits = request.step(fed, state)
            log_probs = logits[:, -1].float().log_softmax(-1)
            if token_bonus is not None:
                log_probs = log_probs + token_bonus(state)
            count = min(self._rivals + len(self._forbidden | {EOS}), log_probs.shape[1])
            values, ids = topk(log_probs, count)
            self._best = list(zip(values.tolist(), ids.tolist(), strict=True))
            self._ends = log_probs[:, EOS].tolist()
            return logits

        self._constraints = (*request.hooks.sentence_constraints, OutputConstraints())[0]
        end_bonus = request.hooks.end_bonus
        if end_bonus is None:
            return replace(request, step=step, is_watched=True)

        def bonus(state: Any) -> Tensor:
            bonus = end_bonus(state)
            self._bonuses = bonus.tolist()
            return bonus

        hooks = replace(request.hooks, end_bonus=bonus)
        return replace(request, step=step, hooks=hooks, is_watched=True)

    def tree(self) -> SearchTree:
        """Run the search to its end."""
        best: list[Hypothesis] = []
        snapshots = search_steps(self._watched())
        before = next(snapshots)
        for after in snapshots:
            if len(self._nodes) < MAX_NODES:
                self._grow(before.active, after.active)
            self._best, self._ends, self._bonuses = [], [], []
            before, best = after, after.best[0]
        if best:
            self._crown(best[0])
        options = self._options
        nodes = tuple(self._nodes)
        return SearchTree(
            options.method,
            options.width,
            options.length_penalty,
            options.alpha,
            nodes,
            options.coverage_penalty,
        )

    def _crown(self, best: Hypothesis) -> None:
        self.best, self.finished = best.tokens, best.finished
        won = (*best.tokens, *([EOS] if best.finished else []))
        if won not in self._at and won[:-1] in self._at:  # drawn, though no likely end
            token = self._names(won[-1:])[0]
            self._at[won] = len(self._nodes)
            self._nodes.append(Node(self._at[won[:-1]], token, best.log_prob, "ended"))
        if won in self._at:
            index = self._at[won]
            self._nodes[index] = replace(self._nodes[index], fate="won", score=best.score)

    def _candidates(self, active: ActiveHypotheses) -> list[_Candidate]:
        """The likeliest ways on, best first; at the greatest length the ends alone."""
        candidates = []
        for row, (path, total) in enumerate(_paths(active)):
            if total == DEAD:
                continue
            bonus = self._bonuses[row] if self._bonuses else 0.0
            if active.full:
                free = self._options.free_end
                end = 0.0 if free else self._ends[row]
                candidates.append(_Candidate(total + end, path, EOS, bonus))
                continue
            early = set() if self._may_end(path) else {EOS}
            values, ids = self._best[row]
            likeliest = [
                _Candidate(total + value, path, token, bonus)
                for value, token in zip(values, ids, strict=True)
                if token not in self._forbidden | early and value > DEAD
            ]
            candidates += likeliest[: self._rivals]
        return sorted(candidates, key=lambda candidate: -candidate.total)[: self._rivals]

    def _may_end(self, path: SearchWatchPath) -> bool:
        """True if the options let a hypothesis end, before its greatest length."""
        least = max(self._least, len(self._constraints.prefix))
        return len(path) >= least and self._constraints.is_met_by(path)

    def _grow(self, old: ActiveHypotheses, new: ActiveHypotheses) -> None:
        surviving = dict(_paths(new)) if new.sentences else {}
        shown = self._candidates(old)
        beam = self._options.method == "beam"
        there = {(*node.path, node.token) for node in shown}
        for path, total in surviving.items():  # drawn, or forced: not among the likeliest
            if path and path not in there and total != DEAD:
                shown.append(_Candidate(total, path[:-1], path[-1]))
        rank = -1
        for node in shown:
            path = (*node.path, node.token)
            rank += (
                not surviving or path in surviving or node.token == EOS
            )  # others were ruled out, or cut
            if node.path not in self._at:
                continue
            fate: Fate = "kept" if path in surviving else "cut"
            score = None
            if node.token == EOS and beam and rank < self._options.width:
                fate = "ended"
                score = node.total / length_penalty(self._options, len(path)) + node.bonus
            self._at[path] = len(self._nodes)
            token = self._names([node.token])[0]
            total = surviving.get(
                path, node.total
            )  # of a kept one with every penalty of the search
            self._nodes.append(Node(self._at[node.path], token, total, fate, score))


def _paths(active: ActiveHypotheses) -> list[tuple[SearchWatchPath, float]]:
    rows = zip(active.tokens[0].tolist(), active.log_probs[0].tolist(), strict=True)
    return [(tuple(ids), total if math.isfinite(total) else DEAD) for ids, total in rows]


logger = logging.getLogger("transduce")

MAX_TOKENS = 256
"""Tokens of a sequence that are explained."""
RIVALS = 8
"""Tokens shown for a step, the written token included."""
MAX_LABELS = 10
LENS = 3
"""Tokens shown for each position after each layer."""
SHOWN_LAYER = (".layers.0.", ".residuals.0.")


def guesses_of(
    probabilities: Tensor, names: Callable[[Sequence[int]], list[str]], count: int
) -> tuple[Guess, ...]:
    """The likeliest ids of probabilities (v,), by name.

    names: texts of ids.  count: number of ids.
    """
    (values,), (ids,) = topk(probabilities[None], min(count, len(probabilities)))
    return as_guesses(names(ids.tolist()), values.tolist())


def fitting(ids: Iterable[int], what: str) -> list[int]:
    """The ids, or the first `MAX_TOKENS` of them with a warning."""
    known = list(ids)
    if len(known) > MAX_TOKENS:
        message = "the %s has %d tokens; the first %d of them are explained"
        logger.warning(message, what, len(known), MAX_TOKENS)
    return known[:MAX_TOKENS]


class Pass:
    """A pass over a row, recorded, and once more without positions for the work by hand.

    sequences: of each attention (its rows and columns), by the stack and kind that it belongs to:
    "encoder", "decoder" and "cross".  first: positions of a decoder by itself before this pass are
    read, but left out of all that is shown.
    """

    def __init__(
        self,
        model: nn.Module,
        run: Callable[[], Tensor],
        sequences: Mapping[str, tuple[str, str]],
        tokens: Mapping[str, Sequence[str]],
        first: int = 0,
    ) -> None:
        model.eval()
        self.model, self._run, self._first = model, run, first
        self._sequences, self._tokens = sequences, tokens
        with torch.inference_mode():
            with record_pass(model) as recording:
                self.output = run()
            with without_positions(model) as left_out, record_pass(model) as bare:
                if left_out:
                    run()
        self.seen = recording
        self.attention = tuple(
            named_attention(name, as_array(weights[:, first:, first:]), sequences, tokens)
            for name, weights in recording.attention.items()
        )
        self.by_hand = tuple(self._by_hand(bare))
        self.shapes = {
            name: shape
            for name, shape in recording.shapes.items()
            if ("layers." not in name and "residuals." not in name)
            or any(part in f"{name}." for part in SHOWN_LAYER)
        }

    def laid_out(self, bare: Explanation, d_model: int) -> Explanation:
        """The explanation with all that every pass has: attention, vectors, stacks, shapes."""
        stacks = {
            name: describe_stack(stack, self._sequences[name][0], d_model)
            for name, stack in stacks_of(self.model).items()
        }
        return replace(
            bare,
            sequences=self._tokens,
            attention=self.attention,
            by_hand=self.by_hand,
            stacks=stacks,
            shapes=self.shapes,
        )

    def credit(
        self,
        chosen: Iterable[tuple[int, int]],
        names: Names,
        rows: Callable[[Tensor], Tensor] = lambda output: output,
    ) -> tuple[Credit, ...]:
        """Credit of each choice, against the likeliest other token or label.

        chosen: row and id of each.  rows: the output of a pass as logits (1, t, v).  Empty for
        stacks that are not linear (`nonlinear_stacks`), and where there is no other.
        """
        logits = rows(self.output)[0]
        if nonlinear_stacks(self.model) or logits.shape[-1] < 2:
            return ()
        choices = []
        for row, id in chosen:
            others = logits[row].index_fill(0, torch.tensor(id, device=logits.device), -torch.inf)
            choices.append(Choice(row, id, int(others.argmax())))
        return credit_of(self.model, lambda: rows(self._run()), choices, names, self._first)

    def credit_of_label(self, labels: Sequence[str]) -> tuple[Credit, ...]:
        """Credit of the likeliest label, of an output (1, labels)."""

        def names(ids: Sequence[int]) -> list[str]:
            return [labels[i] for i in ids]

        best = int(self.output[0].argmax())
        return self.credit([(0, best)], names, lambda scores: scores[:, None])

    @torch.inference_mode()
    def lens(self, stack: str, read: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """`read` of the vectors (t, m) after each layer of a stack, its last norm applied."""
        whole: Any = stacks_of(self.model)[stack]
        norm = getattr(whole, "norm", None) or nn.Identity()
        return [
            read(norm(layer[self._first :])).float().cpu()
            for layer in self.seen.layers.get(stack, ())
        ]

    def _by_hand(self, bare: PassRecording) -> list[HeadVectors]:
        by_role: dict[tuple[str, str], list[tuple[float, int, int]]] = {}
        for number, attention in enumerate(self.attention):
            if attention.name in self.seen.heads:
                for head, weights in enumerate(attention.weights):
                    ranked = by_role.setdefault((attention.rows, attention.columns), [])
                    ranked.append((-sharpness(weights), number, head))
        chosen = []
        for ranked in by_role.values():
            _, number, head = min(ranked)
            name = self.attention[number].name
            vectors = self.seen.heads[name].after(self._first)
            other: Vectors | None = None
            if name in bare.heads:
                other = bare.heads[name].after(self._first).vectors(head)
            bias = vectors.bias_of(head)
            chosen.append(HeadVectors(number, head, vectors.vectors(head), bias, other))
        return chosen


def steps_of(
    read: Sequence[str],
    written: Sequence[str],
    ids: Sequence[int],
    probabilities: Tensor,
    names: Callable[[Sequence[int]], list[str]],
    count: int = RIVALS,
) -> tuple[Step, ...]:
    """Steps that wrote `ids`, by the probabilities (t, v) of each.

    read, written: tokens, one for each step.  names: texts of ids.  count: rivals of each step.
    """
    return tuple(
        Step(a, b, float(row[i]), guesses_of(row, names, count))
        for a, b, i, row in zip(read, written, ids, probabilities, strict=True)
    )


def encoder_pass(
    bare: Explanation, model: nn.Module, batch: Padded | Tensor, name: str, tokens: list[str]
) -> tuple[Pass, Explanation]:
    """A pass over a row, and the explanation with all that every encoder has.

    bare: explanation without what every encoder has.  model: the encoder.  batch: a single row.
    name: of its sequence.  tokens: of the row.
    """
    recorded = Pass(model, lambda: model(batch), {"encoder": (name, name)}, {name: tokens})
    return recorded, recorded.laid_out(bare, recorded.shapes["front_end"][-1])


def label_guesses(probabilities: Tensor, labels: Sequence[str]) -> tuple[Guess, ...]:
    """The likeliest labels."""
    return guesses_of(probabilities, lambda ids: [labels[i] for i in ids], MAX_LABELS)


def label_layers(
    recorded: Pass, head: LabelHead, labels: Sequence[str]
) -> tuple[tuple[tuple[Guess, ...], ...], ...]:
    """The labels after each layer, as if it were the last.

    recorded: the pass.  head: gives the scores of labels.
    """
    lens = recorded.lens("encoder", lambda x: head(Padded.unpadded(x[None])))
    return tuple((label_guesses(scores[0].softmax(-1), labels),) for scores in lens)


def named_attention(
    name: str,
    weights: Any,
    sequences: Mapping[str, tuple[str, str]],
    tokens: Mapping[str, Sequence[str]],
) -> Attention:
    """Weights (h, t, s) of the attention of that name, with the pattern of each head.

    sequences, tokens: as in `Pass`.
    """
    kind = "cross" if name.endswith("cross_attention") else name.split(".")[0]
    rows, columns = sequences[kind]
    causal = kind == "decoder"
    patterns = tuple(
        head_pattern(head, tokens[columns], rows == columns, causal) for head in weights
    )
    return Attention(name, rows, columns, weights, patterns, causal)


class OutputPass(NamedTuple):
    """An input of an encoder-decoder, and its output.

    source: the name of its sequence, and its tokens.  written: ids without the end.
    """

    model: EncoderDecoder
    batch: Padded | Tensor
    source: tuple[str, Sequence[str]]
    written: Sequence[int]
    names: Names

    def explain(self, bare: Explanation) -> Explanation:
        """A pass over the pair, laid out."""
        model, names = self.model, self.names
        source, shown = self.source
        ids = fitting(self.written, "output")
        whole = len(ids) == len(self.written)
        read = [BOS, *ids] if whole else [BOS, *ids[:-1]]
        written = [*read[1:], EOS if whole else ids[-1]]
        target = Padded.from_rows([read], PAD).to(model.head.weight.device)
        tokens = {source: shown, "read": names(read), "written": names(written)}
        kinds = {
            "encoder": (source, source),
            "decoder": ("read", "read"),
            "cross": ("written", source),
        }
        recorded = Pass(model, lambda: model(self.batch, target), kinds, tokens)
        probabilities = recorded.output[0].float().softmax(-1).cpu()
        return replace(
            recorded.laid_out(bare, model.head.weight.shape[1]),
            steps=steps_of(tokens["read"], tokens["written"], written, probabilities, names),
            credit=recorded.credit(enumerate(written), names),
            layers=layer_guesses(recorded.lens("decoder", model.head), names),
            layers_of="written",
            vectors=_fixed_context(model, self.batch),
        )


def layer_guesses(
    lens: Sequence[Tensor], names: Names
) -> tuple[tuple[tuple[Guess, ...], ...], ...]:
    """The likeliest tokens of logits (t, v) after each layer."""
    return tuple(
        tuple(guesses_of(row, names, LENS) for row in logits.softmax(-1)) for logits in lens
    )


@torch.inference_mode()
def _fixed_context(model: EncoderDecoder, batch: Padded | Tensor) -> dict[str, Array]:
    state = model.start(batch)
    if isinstance(state, RecurrentState) and state.summary is not None:
        return {"context": as_array(state.summary[0])}
    return {}


def film_of(run: Path) -> Film | None:
    """The film of a run directory; None if there is none.  Raises RunError if damaged."""
    film = read_film(run)
    if film is None:
        return None
    scenes = tuple(
        FilmScene(
            scene.text,
            scene.tokens,
            tuple(
                tuple(
                    named_attention(name, _weights(frames[point]), scene.sequences, scene.tokens)
                    for name, frames in scene.attention.items()
                )
                for point in range(len(film.points))
            ),
        )
        for scene in film.scenes
    )
    return Film(tuple(film.points), scenes)


def _weights(stored: torch.Tensor) -> NDArray[np.float32]:
    """Weights (h, t, s) of 8 bits as numbers from 0 to 1."""
    weights: NDArray[np.float32] = stored.numpy().astype(np.float32) / np.float32(255)
    return weights
