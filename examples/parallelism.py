"""Parallelism: a training step over 64 lines of 64 tokens, and over one line of 4,096 (one minute).

    python examples/parallelism.py

Both have as many tokens.  A recurrent layer needs as many steps, one after the other, as a line has
tokens; a layer of attention needs one.  Measured for the presets `rnn-dot` and `tiny`, of as many
parameters, on one thread and on two; `--steps` is the number of repetitions, of which the fastest
counts.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch
import torch.nn.functional as F
from _common import BLUE, ORANGE, options, panels, save, table

from transduce.models.config import PRESETS
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.sequence import Padded

MODELS = {"RNN": "rnn-dot", "Transformer": "tiny"}
SHAPES = ((64, 64), (1, 4096))  # rows, tokens of each
THREADS = (1, 2)
VOCABULARY = 1000


def build(preset: str) -> EncoderDecoder:
    """The preset without dropout."""
    config = PRESETS[preset]
    config = replace(
        config,
        encoder=replace(config.encoder, dropout=0.0),
        decoder=replace(config.decoder, dropout=0.0),
    )
    return build_encoder_decoder(config, VOCABULARY, VOCABULARY, joint=True)


def chain(model: str, length: int) -> int:
    """Layers and steps that wait for each other on the longest way through the model."""
    layers = PRESETS[MODELS[model]].encoder.n_layers + PRESETS[MODELS[model]].decoder.n_layers
    return layers * length if model == "RNN" else layers


def seconds(model: EncoderDecoder, rows: int, length: int, threads: int, times: int) -> float:
    """Wall-clock seconds of forward and backward, the fastest of `times`."""
    torch.set_num_threads(threads)
    found = []
    for _ in range(times):
        tokens = torch.randint(VOCABULARY, (rows, length))
        begin = time.perf_counter()
        logits = model(Padded.unpadded(tokens), Padded.unpadded(tokens))
        F.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        found.append(time.perf_counter() - begin)
    return min(found)


def main() -> None:
    given = options(__doc__, steps=2)
    rows, found = [], {}
    for name, preset in MODELS.items():
        model = build(preset)
        for shape in SHAPES:
            for threads in THREADS:
                found[name, shape, threads] = seconds(model, *shape, threads, given.steps)
            one, two = (found[name, shape, threads] for threads in THREADS)
            times = f"{shape[0]} × {shape[1]:,}"
            waits = f"{chain(name, shape[1]):,}"
            rows.append((name, times, waits, f"{one:.2f} s", f"{two:.2f} s", f"{one / two:.2f}"))
    table(("model", "lines × tokens", "longest chain", "1 thread", "2 threads", "gain"), rows)
    figure, (axes,) = panels(1, width=5.4)
    for i, (name, colour) in enumerate(zip(MODELS, (ORANGE, BLUE), strict=True)):
        heights = [found[name, shape, 1] for shape in SHAPES]
        places = [place + 0.4 * (i - 0.5) for place in range(len(SHAPES))]
        axes.bar(places, heights, width=0.36, color=colour, label=name)
        for shape, x, y in zip(SHAPES, places, heights, strict=True):
            waits = f"{y:.1f} s\n{chain(name, shape[1]):,} in turn"
            axes.text(x, y, waits, ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(SHAPES)), [f"{rows} × {length:,} tokens" for rows, length in SHAPES])
    axes.set(title="As many tokens, one thread", ylabel="seconds of a training step")
    axes.set_ylim(0, 1.25 * max(found[name, shape, 1] for name in MODELS for shape in SHAPES))
    axes.legend(frameon=False, loc="upper left")
    save(figure, given.picture)


if __name__ == "__main__":
    main()
