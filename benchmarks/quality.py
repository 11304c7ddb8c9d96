"""Quality of a model trained here and in transformers, on the same data in the same CPU time.

    python benchmarks/quality.py recipes/translation/tatoeba-zh-en.toml --runs runs/quality

`transduce train` follows the recipe.  Then Marian, as transformers has it, is trained with as many
layers, heads and units on the same batches of the same token ids, with the same loss and schedule,
for as many CPU-seconds, once with each of `--peaks` as its learning rate; the one with the lowest
validation loss counts.  Both translate the test set with the recipe's beam.  `--set` changes the
recipe for both, `--peer-set` for Marian alone, where it does better with another size of batches,
another precision or the like; its optimizer is Adam whatever the recipe says.

Differences: our seconds include everything in `transduce train`, also the vocabulary, encoding and
validation, and Marian reads encoded data.  Ours keeps the weights of the best validation, of the
moving average if the recipe has one; Marian, which has neither, its last weights, at the end of the
schedule.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from marian import marian
from torch import Tensor, nn
from workload import EOS, PAD, machine

import transduce
from transduce.data.batches import PairBatch, TokenBatches, pair_batches
from transduce.data.encoded import encode_pairs
from transduce.data.ragged_rows import Side
from transduce.metrics import measure
from transduce.recipes import as_recipe
from transduce.tasks.recipe import Split
from transduce.tasks.translation.recipe import TranslationRecipe, read_pairs_of
from transduce.training.config import Noam, learning_rate


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/quality"))
    parser.add_argument("--peaks", default="5e-4,1e-3,2e-3", help="learning rates of transformers")
    parser.add_argument("--set", action="append", default=[], help="a.b=c, of both")
    parser.add_argument("--peer-set", action="append", default=[], help="a.b=c, of transformers")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    changes = ["training.threads=1", "training.device=cpu", *options.set]
    theirs, _ = as_recipe(options.recipe, [*changes, *options.peer_set])
    assert isinstance(theirs, TranslationRecipe)
    if isinstance(theirs.training.schedule, Noam):
        parser.error("the schedule of the recipe has no peak; give another by --set")
    path = options.runs / options.recipe.stem
    started = time.process_time()
    transduce.train(options.recipe, path, changes, overwrite=True)
    seconds = time.process_time() - started
    run = transduce.load(path, "cpu")
    evaluation = run.evaluate("test")
    ours = {
        "library": "transduce",
        "parameters": run.info()["parameters"],
        "cpu_seconds": seconds,
        "scores": {name: evaluation.scores[name] for name in ("bleu", "chrf")},
    }
    trials = [
        Marian(run, theirs).trained(seconds, float(peak)) for peak in options.peaks.split(",")
    ]
    best = min(trials, key=lambda trial: trial.loss)
    results = [ours, best.tested(evaluation.sources, evaluation.references)]
    print(json.dumps(results) if options.json else table(results))
    return 0


class Marian:
    """Marian of transformers, of a recipe's size, on its data, with the tokens of a run."""

    def __init__(self, run: transduce.Run, recipe: TranslationRecipe) -> None:
        self.recipe = recipe
        self.translator = run.translator
        self.seconds, self.peak, self.loss = 0.0, 0.0, math.inf
        torch.manual_seed(recipe.seed)
        source, target = self.translator.source, self.translator.target
        self.model = marian(recipe.model, source.size, target.size, recipe.text.target is None)

    def trained(self, seconds: float, peak: float) -> Marian:
        """For so long; keeps the loss on the validation pairs."""
        training = self.recipe.training
        batches = self.batches("train", training.batch_tokens).iterate()
        adam = training.optimizer
        optimizer = torch.optim.AdamW(
            self.model.parameters(),
            betas=(adam.beta1, adam.beta2),
            eps=adam.epsilon,
            weight_decay=0.0,
            fused=True,
        )
        schedule = training.schedule
        assert not isinstance(schedule, Noam)
        self.peak = peak
        self.model.train()
        started, step = time.process_time(), 0
        while (spent := time.process_time() - started) < seconds:
            step += 1
            rate = learning_rate(schedule, step, spent / seconds, self.recipe.model.d_model)
            for group in optimizer.param_groups:
                group["lr"] = rate * peak / schedule.peak
            batch, _ = next(batches)
            with torch.autocast("cpu", torch.bfloat16, enabled=training.precision == "bf16"):
                loss = self.mean_loss(batch, training.label_smoothing)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(self.model.parameters(), training.clip_norm or math.inf)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.seconds = time.process_time() - started
        self.loss = self.validated()
        print(f"peak {peak:g}: {step} steps, validation loss {self.loss:.3f}", file=sys.stderr)
        return self

    @torch.inference_mode()
    def validated(self) -> float:
        """Nats per token of the validation pairs."""
        self.model.eval()
        total, tokens = 0.0, 0
        for batch in self.batches("valid", 4096).in_order():
            total += self.mean_loss(batch, 0.0).item() * batch.target_tokens
            tokens += batch.target_tokens
        return total / tokens

    def mean_loss(self, batch: PairBatch, smoothing: float) -> Tensor:
        """Cross-entropy per target token."""
        target = batch.target.values
        wanted = target[:, 1:].masked_fill(~batch.target.real[:, 1:], -100)
        logits = self.model(
            input_ids=batch.source.values,
            attention_mask=batch.source.real,
            decoder_input_ids=target[:, :-1],
            use_cache=False,
        ).logits
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), label_smoothing=smoothing)

    def batches(self, split: Split, tokens: int) -> TokenBatches[PairBatch]:
        """The recipe's pairs of a split."""
        source, target = self.translator.source, self.translator.target
        with tempfile.TemporaryDirectory() as directory:
            pairs = encode_pairs(
                read_pairs_of(self.recipe.data, split),
                Side(source.encode_batch, source.size),
                Side(target.encode_batch, target.size),
                self.recipe.data.filters,
                Path(directory) / split,
                split,
            )
        return pair_batches(pairs, tokens, self.recipe.seed)

    @torch.inference_mode()
    def tested(self, sources: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Scores of the recipe's beam on the test set."""
        self.model.eval()
        source, target = self.translator.source, self.translator.target
        decoding = self.recipe.decoding
        result: list[str] = []
        for start in range(0, len(sources), 32):
            rows = [[*ids, EOS] for ids in source.encode_batch(list(sources[start : start + 32]))]
            longest = max(map(len, rows))
            ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
            outputs = self.model.generate(
                input_ids=ids,
                attention_mask=ids != PAD,
                num_beams=decoding.beam_size,
                length_penalty=1.0 if decoding.length_penalty == "mean" else 0.0,
                max_new_tokens=2 * longest + 20,
            )
            result += [
                target.decode([token for token in row if token > EOS]) for row in outputs.tolist()
            ]
        language = self.recipe.target_language
        scores = measure(("bleu", "chrf"), result, references, language)
        return {
            "library": "transformers (Marian)",
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "cpu_seconds": self.seconds,
            "peak": self.peak,
            "scores": {name: scores[name] for name in ("bleu", "chrf")},
        }


def table(results: Sequence[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        machine(),
        "",
        "| library | parameters | CPU-seconds of training | BLEU | chrF |",
        "|-|-:|-:|-:|-:|",
    ]
    for result in results:
        scores = result["scores"]
        lines.append(
            f"| {result['library']} | {result['parameters']:,} | {result['cpu_seconds']:,.0f} | "
            f"{scores['bleu']:.2f} | {scores['chrf']:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
