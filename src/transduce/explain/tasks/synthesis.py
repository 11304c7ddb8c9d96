"""Explanations of synthesis: attention of each step over the text, and the end."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch
from torch import Tensor

from transduce.decoding.frames import SpokenFrames
from transduce.explain.explanation import Explanation
from transduce.explain.heads import head_pattern
from transduce.explain.parts import Attention, Step
from transduce.explain.recorded_pass import MAX_TOKENS, Pass
from transduce.models.monotonic_synthesis import MonotonicSynthesis
from transduce.models.synthesis import frames_read
from transduce.sequence import Padded
from transduce.tasks.speech.spoken import blocks_of
from transduce.tasks.speech.synthesiser import Synthesiser
from transduce.text import token_names

logger = logging.getLogger("transduce")

GO_ON, END = "go on", "end"
"""Names of the two outcomes of a step."""


def explain_synthesis(synthesiser: Synthesiser, parts: tuple[str, ...]) -> Explanation:
    """A text and the steps of its synthesis, explained by a pass over the steps' inputs."""
    bare = Explanation(
        synthesiser.recipe.task, "", dict(zip(synthesiser.inputs, parts, strict=True)), ""
    )
    if not parts[0].strip():
        return bare
    text, *more = blocks_of(parts[0])
    if more:
        logger.warning("the text is spoken in %d blocks; the first is explained", 1 + len(more))
    (ids,) = synthesiser.encode([text])
    voices = [synthesiser.number_of(parts[1] if len(parts) > 1 else "")]
    spoken = synthesiser.decode([ids], voices)
    (speech,) = synthesiser.speeches(spoken)
    model = synthesiser.model
    if isinstance(model, MonotonicSynthesis):
        return _durations(synthesiser, replace(bare, answer=speech.text), ids, spoken[0].attention)
    read, dropout_mask = _read(synthesiser, ids, spoken[0])
    steps = read.values.shape[1]
    seconds = synthesiser.facts()["seconds_per_step"]
    tokens = {
        "source": token_names(synthesiser.tokenizer)(ids),
        "read": ["start", *(f"{i * seconds:.2f}" for i in range(1, steps))],
        "written": [f"{i * seconds:.2f}" for i in range(1, steps + 1)],
    }
    kinds = {
        "encoder": ("source", "source"),
        "decoder": ("read", "read"),
        "cross": ("written", "source"),
    }
    source = synthesiser.padded([ids], voices).to(synthesiser.device)

    def run() -> Tensor:
        return model.step(read, model.start(source), dropout_mask).stop

    recorded = Pass(model, run, kinds, tokens)
    ends = recorded.output[0].float().sigmoid().tolist()
    return replace(
        recorded.laid_out(bare, synthesiser.recipe.model.d_model),
        answer=speech.text,
        steps=tuple(
            _step(a, b, p, number == steps)
            for number, (a, b, p) in enumerate(
                zip(tokens["read"], tokens["written"], ends, strict=True), 1
            )
        ),
    )


def _durations(
    synthesiser: Synthesiser, bare: Explanation, ids: list[int], path: Tensor
) -> Explanation:
    """The steps (t, s) that each token of a text spans, in place of attention."""
    seconds = synthesiser.facts()["seconds_per_step"]
    weights = path[:MAX_TOKENS].cpu().numpy()[None]
    times = [f"{i * seconds:.2f}" for i in range(1, weights.shape[1] + 1)]
    names = [*token_names(synthesiser.tokenizer)(ids)]
    patterns = (head_pattern(weights[0], names, itself=False),)
    return replace(
        bare,
        sequences={"source": names, "written": times},
        attention=(Attention("durations", "written", "source", weights, patterns),),
    )


def _step(read: str, written: str, end: float, last: bool) -> Step:
    """A step that read and gave frames of these times, by its probability of the end."""
    outcomes = sorted([(END, end), (GO_ON, 1 - end)], key=lambda outcome: -outcome[1])
    return Step(read, written, end if last else 1 - end, tuple(outcomes))


def _read(
    synthesiser: Synthesiser, ids: list[int], spoken: SpokenFrames
) -> tuple[Padded, Tensor | None]:
    """Input frames (1, t, bins) of the steps that spoke ids, and their dropout masks.

    At most of the first `MAX_TOKENS` steps, then with a warning.
    """
    k = synthesiser.recipe.model.frames_per_step
    count = len(spoken.attention)
    if count > MAX_TOKENS:
        logger.warning("the speech has %d steps; the first %d are explained", count, MAX_TOKENS)
        count = MAX_TOKENS
    masks = synthesiser.masks([ids])
    drawn = [mask for _ in range(count) if (mask := masks.draw([0])) is not None]
    read = frames_read(Padded.unpadded(spoken.frames[None, : count * k]), k)
    return read, torch.cat(drawn, 1).to(read.values.device) if drawn else None
