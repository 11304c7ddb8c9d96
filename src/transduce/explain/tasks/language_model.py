"""Explanations of continuations, replies and recommendations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from transduce.explain.explanation import Explanation
from transduce.explain.recorded_output import layer_guesses
from transduce.explain.recorded_pass import Pass, logger, steps_of
from transduce.explain.search_watch import Names, SearchWatch
from transduce.models.decoder_only import DecoderOnly
from transduce.sequence import Padded
from transduce.tasks.language_model.dialogue import TrainedDialogue
from transduce.tasks.language_model.generator import Continuation, Generator
from transduce.tasks.language_model.recommendation import Recommender
from transduce.text import BOS, EOS, PAD, UNK, token_names

GENERATED_RIVALS = 50
"""Tokens shown for a step of a language model, for the temperature."""
MAX_STEPS = 32
MAX_PROMPT = 40
"""Maximum tokens shown of a continuation, and of its prompt."""


def explain_generation(generator: Generator, parts: tuple[str, ...]) -> Explanation:
    """A prompt or a history, its continuation, and all between."""
    dialogue = isinstance(generator, TrainedDialogue)
    task = "dialogue" if dialogue else "language-model"
    (prompt,) = generator.read(list(parts), 0)
    options = generator.options
    marks = generator.recipe.data.roles if isinstance(generator, TrainedDialogue) else ()
    names = token_names(generator.tokenizer, [f"<{role}>" for role in marks])
    text = generator.continuation_text(prompt, options)
    pieces = list(generator.pieces(prompt, options, 0, 0))
    request = generator.backend.step_search("an explanation").request(pieces, options)
    watch = SearchWatch(request, names)
    with torch.inference_mode():
        tree = watch.tree()
    written = [*watch.best, *([EOS] if watch.finished else [])]
    if len(written) > MAX_STEPS:
        logger.warning("the output has %d tokens; %d are explained", len(written), MAX_STEPS)
        written = written[:MAX_STEPS]
    answer = Continuation(text.exact(watch.best)).text
    bare = Explanation(task, "", {generator.inputs[0]: parts[0]}, answer, search=tree)
    return _explain_alone(bare, generator.model, prompt, written, generator.window, names)


def explain_recommendation(recommender: Recommender, parts: tuple[str, ...]) -> Explanation:
    """A history of items, and the likeliest next items."""
    best = recommender.predict([parts])[0]
    ids = [i for i in recommender.tokenizer.encode(parts[0]) if i != UNK]
    bare = Explanation("recommendation", "", {"history": parts[0]}, best.text, labels=best.items)
    names = token_names(recommender.tokenizer)
    block = recommender.recipe.data.block
    return _explain_alone(bare, recommender.model, [BOS, *ids], [], block, names)


def _explain_alone(
    bare: Explanation,
    model: DecoderOnly,
    prompt: Sequence[int],
    written: Sequence[int],
    window: int,
    names: Names,
) -> Explanation:
    """A decoder-only model's pass over a prompt and the continuation `written`."""
    row = [*prompt, *written[:-1]][-window:]
    first = max(0, len(row) - MAX_STEPS - MAX_PROMPT)
    if first:
        logger.warning("the input has %d tokens; the last of them are shown", len(prompt))
    read, next_ones = names(row[first:]), names([*row[first + 1 :], *written[-1:]])
    batch = Padded.from_rows([row], PAD).to(model.head.weight.device)
    sequences = {"decoder": ("read", "read")}
    recorded = Pass(model, lambda: model(batch), sequences, {"read": read}, first)
    probabilities = recorded.output[0].float().softmax(-1).cpu()
    begin = len(row) - max(len(written), 1)
    steps = steps_of(
        names(row[begin:]) if written else [],
        names(written),
        written,
        probabilities[begin:][: len(written)],
        names,
        GENERATED_RIVALS,
    )
    return replace(
        recorded.laid_out(bare, model.head.weight.shape[1]),
        sequences={"read": read, "written": next_ones},
        steps=steps,
        first_step=begin - first,
        layers=layer_guesses(recorded.lens("decoder", model.head), names),
        layers_of="read",
    )
