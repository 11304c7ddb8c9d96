"""Regret of `transduce make` against the best of a search by Optuna with the same minutes each.

    python benchmarks/make_regret.py DATA DIRECTORY [MINUTES=4 [TRIALS=12]]

Each set of DATA is left out of the table that decides for it.  12 trials of 4 minutes, two seeds
and four sets take 6.9 hours of a thread; a call goes on where the last was ended.
"""

import functools
import random
import statistics
import sys
from pathlib import Path

from make_table import pairs_of

import transduce
from transduce.data.pairs import write_pairs
from transduce.experiments.sweep import sweep
from transduce.making import build
from transduce.making.data import Plan, Request
from transduce.making.plan import ranked
from transduce.making.trials import METRICS

SETS = {"tatoeba-fr-en": 20_000, "multi30k": 25_000, "cmudict": 20_000, "sst2": 6_000}
SEARCHED = {
    "translation": ["text.source.size=1000,2000,4000,8000", "model.d_model=128,192,256,384"],
    "spelling": ["model.d_model=96,128,192,256", "training.batch_tokens=256,512,1024"],
    "classification": ["model.d_model=64,96,128,192", "head.dropout=0.1..0.6"],
}


def main(data: str, output: str, minutes: str = "4", trials: str = "12") -> None:
    regrets = []
    for name, seed in ((name, seed) for name in SETS for seed in (1, 2)):
        directory = Path(output) / f"{name}-{seed}"
        made, search = directory / "run", directory / "search"
        if not (made / "account.json").is_file():
            pairs = pairs_of(Path(data), name)
            random.Random(seed).shuffle(pairs)
            directory.mkdir(parents=True, exist_ok=True)
            file = write_pairs(pairs[: SETS[name]], directory / "pairs.jsonl")
            build.ranked = functools.partial(ranked, without=name)
            build.make(made, Request([str(file)], float(minutes)))
        kind = Plan.read(made / "made" / "plan.json").prepared.facts.kind
        settings = ["training.schedule.peak=5e-4..8e-3", *SEARCHED[kind]]
        settings += [f"training.minutes={minutes}", f"seed={seed}"]
        again = search.is_dir()
        arguments = (search, (), None) if again else (made, settings, search)
        best = sweep(*arguments, int(trials), resume=again).best
        evaluations = (transduce.load(run).evaluate("test") for run in (made, best.path))
        scores = [evaluation.scores[METRICS[kind]] for evaluation in evaluations]
        regrets.append(scores[1] - scores[0])
        print(f"{name}, seed {seed}: made {scores[0]:.2f}, best trial {scores[1]:.2f}", flush=True)
    print(f"mean regret {statistics.mean(regrets):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
