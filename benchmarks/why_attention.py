"""Why attention: textbook claims on the Transformer and its predecessors, measured.

    python benchmarks/why_attention.py --data DIRECTORY --output docs/measurements/why-attention

DIRECTORY holds `tatoeba-zh-en/`.  Models are trained by recipes/translation/tatoeba-ancestors.toml,
with `model` from MODELS, and several peaks of the learning rate.  All figures go into
OUTPUT/results.json as they come; from it alone (`--draw`) the plots OUTPUT/*.svg are drawn and the
tables in OUTPUT.md written, each between two markers.  Models that are done are not trained again;
with `--models` only some are trained, and the results of the others stay.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
import why_attention_costs as costs
import why_attention_page as page

import transduce
from transduce.errors import TransduceError
from transduce.metrics import make_metric, measure, paired_bootstrap
from transduce.settings.sections import merge_settings
from transduce.training.weight_files import checkpoints_of

RECIPE = Path(__file__).parents[1] / "recipes" / "translation" / "tatoeba-ancestors.toml"
GRU = {"cell": "gru"}
MODELS: dict[str, dict[str, Any]] = {
    "rnn-sutskever": {"preset": "rnn-sutskever"},
    "rnn-cho": {"preset": "rnn-cho"},
    "rnn-bahdanau": {"preset": "rnn-bahdanau"},
    "rnn-luong": {"preset": "rnn-luong"},
    "rnn-fixed": {"preset": "rnn-fixed"},
    "rnn-dot": {"preset": "rnn-dot"},
    "rnn-general": {"preset": "rnn-general"},
    "rnn-additive": {"preset": "rnn-additive"},
    "gru-additive": {"preset": "rnn-additive", "d_model": 176, "encoder": GRU, "decoder": GRU},
    "bytenet": {"preset": "bytenet"},
    "convs2s": {"preset": "convs2s"},
    "convolution": {"preset": "convolution"},
    "tiny": {"preset": "tiny"},
}
COMPARED = (  # the second of two models with the first; the first three pairs by length, too
    ("rnn-sutskever", "rnn-luong"),
    ("rnn-cho", "rnn-bahdanau"),
    ("rnn-fixed", "rnn-dot"),
    ("rnn-dot", "rnn-general"),
    ("rnn-general", "rnn-additive"),
    ("rnn-additive", "gru-additive"),
    ("rnn-bahdanau", "convs2s"),
    ("convs2s", "bytenet"),
    ("gru-additive", "convolution"),
    ("convolution", "tiny"),
)
BY_LENGTH = COMPARED[:3]
BUCKETS = ((1, 4), (5, 6), (7, 8), (9, 10), (11, 10_000))  # source tokens


@dataclass(frozen=True)
class Plan:
    """Models and budgets of the measurements."""

    data: Path
    output: Path
    runs: Path
    steps: int
    batch_tokens: int
    vocabulary: int
    peaks: tuple[float, ...]
    beyond: int
    models: tuple[str, ...]
    rounds: int
    speed_tokens: int
    longest: int
    threads: int

    @property
    def warmup_steps(self) -> int:
        return max(1, self.steps // 5)

    @property
    def results(self) -> Path:
        return self.output / "results.json"


def main(arguments: Sequence[str] | None = None) -> int:
    options = vars(command_line().parse_args(arguments))
    only, draw = options.pop("only"), options.pop("draw")
    parts = only.split(",") if only else list(PARTS)
    plan = Plan(**options)
    for option, given, there in (("only", parts, PARTS), ("models", plan.models, MODELS)):
        if unknown := sorted(set(given) - set(there)):
            print(f"--{option} {unknown[0]}: there are {', '.join(there)}", file=sys.stderr)
            return 2
    torch.set_num_threads(plan.threads)
    plan.output.mkdir(parents=True, exist_ok=True)
    try:
        for part in [] if draw else parts:
            PARTS[part](plan)
        page.draw(read(plan.results), plan.output)
    except TransduceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    data = os.environ.get("TRANSDUCE_DATA", ".")
    parser.add_argument("--data", type=Path, default=Path(data), help="holds tatoeba-zh-en/")
    parser.add_argument("--output", type=Path, default=Path("docs/measurements/why-attention"))
    parser.add_argument("--runs", type=Path, default=Path("runs/why-attention"))
    parser.add_argument("--only", default="", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--draw", action="store_true", help="measure nothing, redraw from results")
    training, source = published()["training"], published()["text"]["source"]
    steps, tokens, size = training["steps"], training["batch_tokens"], source["size"]
    parser.add_argument("--steps", type=int, default=steps, help="optimizer steps of each model")
    parser.add_argument("--batch-tokens", type=int, default=tokens, help="of a training batch")
    parser.add_argument("--vocabulary", type=int, default=size, help="joint, for both languages")
    parser.add_argument(
        "--peaks", type=numbers, default=(4e-3, 8e-3), help="learning rates to begin with"
    )
    parser.add_argument(
        "--beyond", type=int, default=4, help="most peaks to try outside these, one at a time"
    )
    parser.add_argument(
        "--models", type=names, default=tuple(MODELS), help=f"some of {','.join(MODELS)}"
    )
    parser.add_argument("--rounds", type=int, default=5, help="timings of which to take the median")
    parser.add_argument("--speed-tokens", type=int, default=2048, help="of a batch that is timed")
    parser.add_argument("--longest", type=int, default=8192, help="positions, for memory and speed")
    parser.add_argument("--threads", type=int, default=1)
    return parser


def numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


# --- results ---------------------------------------------------------------------------------


def read(path: Path) -> dict[str, Any]:
    """All results so far."""
    if not path.exists():
        return {}
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def put(plan: Plan, part: str, value: dict[str, Any]) -> None:
    """Replace the results of one part, and leave the others as they are by now."""
    results = {**read(plan.results), part: value}
    ordered = {name: results[name] for name in PARTS if name in results}
    new = plan.results.with_suffix(".new")
    new.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    new.replace(plan.results)


def made(plan: Plan) -> dict[str, Any]:
    """Date and machine of a measurement."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "date": date.today().isoformat(),
        "processor": names[0] if names else "unknown",
        "cores": os.cpu_count(),
        "threads": plan.threads,
        "torch": torch.__version__,
    }


# --- translation -----------------------------------------------------------------------------


def recipe(plan: Plan, name: str, peak: float) -> dict[str, Any]:
    """The same for all but for model and peak; the batches are the same and in the same order."""
    budget = {
        "data": {"root": str(plan.data / "tatoeba-zh-en")},
        "text": {"source": {"size": plan.vocabulary}},
        "training": {
            "steps": plan.steps,
            "batch_tokens": plan.batch_tokens,
            "validate_every": max(1, plan.steps // 4),
            "schedule": {"peak": peak, "warmup_steps": plan.warmup_steps},
            "threads": plan.threads,
            "device": "cpu",
        },
    }
    return merge_settings(merge_settings(published(), budget), {"model": MODELS[name]})


def published() -> dict[str, Any]:
    return tomllib.loads(RECIPE.read_text(encoding="utf-8"))


def translation(plan: Plan) -> None:
    """Train each model with each peak of the learning rate, and test the best by validation.

    If the best peak is the lowest or the highest, the next one beyond is tried too.  Results of
    an earlier call are kept.
    """
    budget = {
        "steps": plan.steps,
        "warmup_steps": plan.warmup_steps,
        "batch_tokens": plan.batch_tokens,
        "vocabulary": plan.vocabulary,
    }
    part = read(plan.results).get("translation", {})
    if part.get("budget") != budget:
        part = {"budget": budget, "made": made(plan), "trials": {}, "models": {}}
    for name in plan.models:
        trials = part["trials"].setdefault(name, {})
        peaks: list[float] = []
        following = list(plan.peaks)
        while following:
            for peak in following:
                if not tried(plan, name, peak, trials):
                    trials[f"{peak:g}"] = trained(plan, name, peak)
                    put(plan, "translation", part)
            peaks += following
            left = len(plan.peaks) + plan.beyond - len(peaks)
            following = beyond(peaks, trials) if left else []
        best = best_of(peaks, trials)
        tested_before = part["models"].get(name, {}).get("peak") == best
        if not tested_before or not outputs_of(plan, name).exists():
            scores = tested(plan, name, best)
            part["models"][name] = {"peak": best, **trials[f"{best:g}"], **scores}
            put(plan, "translation", part)
    outputs = {
        name: json.loads(outputs_of(plan, name).read_text())
        for name in MODELS
        if outputs_of(plan, name).exists()
    }
    everything = (0, BUCKETS[-1][1])
    before = [*part.get("comparisons", ()), *part.get("by_length", ())]
    part["comparisons"] = compare_all(COMPARED, (everything,), outputs, before)
    part["by_length"] = compare_all(BY_LENGTH, BUCKETS, outputs, before)
    put(plan, "translation", part)


def tried(plan: Plan, name: str, peak: float, trials: dict[str, Any]) -> bool:
    """True if this training was done before, and its weights exist."""
    return f"{peak:g}" in trials and (run_of(plan, name, peak) / "weights.safetensors").exists()


def best_of(peaks: Sequence[float], trials: dict[str, Any]) -> float:
    """The peak with the lowest validation loss."""
    return min(peaks, key=lambda peak: float(trials[f"{peak:g}"]["validation_loss"]))


def beyond(peaks: Sequence[float], trials: dict[str, Any]) -> list[float]:
    """Half or twice the best peak if it is the lowest or the highest: a better one may follow."""
    best = best_of(peaks, trials)
    return [best / 2] if best == min(peaks) else [best * 2] if best == max(peaks) else []


def run_of(plan: Plan, name: str, peak: float) -> Path:
    return plan.runs / f"{name}-{peak:g}"


def outputs_of(plan: Plan, name: str) -> Path:
    return plan.runs / f"{name}.json"


def trained(plan: Plan, name: str, peak: float) -> dict[str, Any]:
    """Train one model with one peak; its size, costs and validation loss."""
    path = run_of(plan, name, peak)
    started = time.process_time()
    _, outcome = transduce.train(recipe(plan, name, peak), path, overwrite=True)
    seconds = time.process_time() - started
    progress = json.loads((checkpoints_of(path)[-1] / "progress.json").read_text())
    return {
        "parameters": transduce.load(path, "cpu").info()["parameters"],
        "target_tokens": progress["target_tokens"],
        "cpu_seconds": seconds,
        "date": date.today().isoformat(),
        "best_step": outcome.best_step,
        "validation_loss": outcome.scores["loss"],
    }


def tested(plan: Plan, name: str, peak: float) -> dict[str, Any]:
    """Translate the test set; the scores, and those by length."""
    run = transduce.load(run_of(plan, name, peak), "cpu")
    evaluation = run.evaluate("test")
    outputs = {
        "lengths": [len(ids) for ids in run.translator.source.encode_batch(evaluation.sources)],
        "hypotheses": list(evaluation.hypotheses),
        "references": [list(item) for item in evaluation.references],
    }
    outputs_of(plan, name).write_text(json.dumps(outputs), encoding="utf-8")
    return {**evaluation.scores, "by_length": by_length(outputs)}


def rows_of(bucket: tuple[int, int], lengths: Sequence[int]) -> list[int]:
    """Indices of the sentences with a number of source tokens in the bucket."""
    return [i for i, length in enumerate(lengths) if bucket[0] <= length <= bucket[1]]


def by_length(outputs: dict[str, Any]) -> list[dict[str, Any]]:
    """BLEU of the sentences in each bucket that is not empty."""
    result = []
    for bucket in BUCKETS:
        rows = rows_of(bucket, outputs["lengths"])
        if rows:
            hypotheses = [outputs["hypotheses"][i] for i in rows]
            references = [outputs["references"][i] for i in rows]
            bleu = measure(("bleu",), hypotheses, references, "en")["bleu"]
            result.append({"tokens": bucket, "sentences": len(rows), "bleu": bleu})
    return result


def compare_all(
    pairs: Sequence[tuple[str, str]],
    buckets: Sequence[tuple[int, int]],
    outputs: dict[str, Any],
    before: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    """The comparisons of pairs in buckets; from `before` where outputs are not at hand."""
    known = {(c["a"], c["b"], tuple(c["tokens"])): c for c in before}
    result = []
    for a, b in pairs:
        for bucket in buckets:
            if a not in outputs or b not in outputs:
                result += [known[a, b, bucket]] if (a, b, bucket) in known else []
            elif rows_of(bucket, outputs[a]["lengths"]):
                result.append(compared(a, b, outputs, bucket))
    return result


def compared(a: str, b: str, outputs: dict[str, Any], bucket: tuple[int, int]) -> dict[str, Any]:
    """Difference in BLEU of b from a, by paired bootstrap over the sentences of a bucket."""
    rows = rows_of(bucket, outputs[a]["lengths"])
    texts = [[outputs[name]["hypotheses"][i] for i in rows] for name in (a, b)]
    references = [outputs[a]["references"][i] for i in rows]
    result = paired_bootstrap(make_metric("bleu", "en"), texts[0], texts[1], references)
    return {
        "a": a,
        "b": b,
        "tokens": bucket,
        "sentences": len(rows),
        "difference": result.difference,
        "low": result.low,
        "high": result.high,
        "p_value": result.p_value,
    }


# --- costs -----------------------------------------------------------------------------------


def speed(plan: Plan) -> None:
    """Training tokens per second against the length of sentences."""
    timed = costs.training_speed(plan.vocabulary, plan.speed_tokens, plan.rounds, plan.longest)
    put(plan, "speed", {"made": made(plan), "rounds": plan.rounds, **timed})


def memory(plan: Plan) -> None:
    """Memory of one self-attention against length."""
    put(plan, "memory", {"made": made(plan), **costs.attention_memory(plan.longest)})


def paths(plan: Plan) -> None:
    """Layers between two positions against their distance."""
    put(plan, "paths", {"made": made(plan), **costs.path_lengths()})


PARTS: dict[str, Callable[[Plan], None]] = {
    "translation": translation,
    "speed": speed,
    "memory": memory,
    "paths": paths,
}

if __name__ == "__main__":
    sys.exit(main())
