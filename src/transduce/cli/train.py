"""`transduce train` and `transduce sweep`: a recipe into a run directory, or into many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from transduce.cli.console import print_error
from transduce.cli.options import Count, Flag
from transduce.cli.output import print_json, print_lines
from transduce.errors import SettingError
from transduce.support.tables import table

if TYPE_CHECKING:
    from transduce.experiments.sweep import Sweep


def train(
    recipe: Path,
    /,
    *more: Annotated[str, Parameter(show=False)],
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False)] = (),
    run: Path | None = None,
    seed: int | None = None,
    resume: Flag = False,
    overwrite: Flag = False,
) -> None:
    """Train a model from a recipe.

    Progress goes to stderr; the run directory is printed on completion. Ctrl-C writes a checkpoint
    and stops; --resume continues from it.

    For several GPUs or machines, use torchrun:
    `torchrun --nproc-per-node 2 -m transduce train RECIPE`.

    Parameters
    ----------
    recipe
        Recipe (TOML file), or a run directory to reuse its recipe.
    more
        Further overrides, as in `--set a.b=1 c.d=2`.
    overrides
        Override a setting of the recipe: SECTION.NAME=VALUE. May be repeated.
    run
        Run directory to create. Default: the recipe's name, in runs/.
    seed
        Random seed. Same as `--set seed=N`.
    resume
        Resume an interrupted run from its last checkpoint.
    overwrite
        Replace an existing run.
    """
    if resume and overwrite:
        raise SettingError("--resume cannot be combined with --overwrite; give one of them")
    if resume and run is None and (recipe / "recipe.toml").is_file():
        run = recipe
    import transduce
    from transduce.training.distributed import is_main_process

    if seed is not None and any(override.startswith("seed=") for override in (*overrides, *more)):
        raise SettingError("--seed cannot be combined with --set seed=...; give one of them")
    seeded = () if seed is None else (f"seed={seed}",)
    settings = (*overrides, *more, *seeded)
    path, _ = transduce.train(recipe, run, settings, resume, overwrite)
    if is_main_process():
        print_lines(str(path))


def prepare(
    recipe: Path,
    /,
    *more: Annotated[str, Parameter(show=False)],
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False)] = (),
    run: Path | None = None,
) -> None:
    """Read, tokenise and encode the data of a recipe, without training.

    All cores are used, and no GPU. `transduce train RECIPE --run RUN --resume` then begins at the
    first step. The same command continues after an interruption.

    Parameters
    ----------
    recipe
        Recipe (TOML file), or a run directory to reuse its recipe.
    more
        Further overrides, as in `--set a.b=1 c.d=2`.
    overrides
        Override a setting of the recipe: SECTION.NAME=VALUE. May be repeated.
    run
        Run directory to create. Default: the recipe's name, in runs/.
    """
    from transduce.runs import training
    from transduce.training.distributed import check_single_process

    check_single_process("prepare")
    print_lines(str(training.prepare(recipe, run, (*overrides, *more))))


FromZero = Annotated[int, Parameter(validator=validators.Number(gte=0), show_default=False)]

TRAIN_FIGURES = ("mean", "standard_deviation")


def sweep(
    recipe: Path,
    /,
    *more: Annotated[str, Parameter(show=False)],
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False)] = (),
    runs: Path | None = None,
    search: FromZero = 0,
    jobs: Count = 1,
    resume: Flag = False,
    json: Flag = False,
) -> int:
    """Train a recipe over a grid or search of hyperparameters.

    Prints a table of scores with the best run and, over several seeds, mean and standard deviation.
    Ctrl-C writes a checkpoint and stops; --resume continues from it. A failed run does not stop the
    others; the exit code is then 1.

    Parameters
    ----------
    recipe
        Recipe (TOML file); with --resume the directory of a sweep.
    more
        Further overrides, as in `--set a.b=1,2 c.d=3`.
    overrides
        Override a setting: SECTION.NAME=VALUE for all runs, or SECTION.NAME=VALUE,VALUE,... to vary
        it; a list in brackets is one value. With --search also SECTION.NAME=LOW..HIGH. May be
        repeated.
    runs
        Directory for the runs. Default: the recipe's name with -sweep, in runs/.
    search
        Run N trials of hyperparameter search (Optuna) instead of a full grid.
    jobs
        Number of runs to train in parallel, each in its own process.
    resume
        Resume an interrupted sweep; --search N continues a search to N trials.
    json
        Print a JSON object.
    """
    from transduce.experiments.sweep import sweep as run_sweep
    from transduce.training.distributed import check_single_process

    check_single_process("sweep")
    done = run_sweep(recipe, (*overrides, *more), runs, search, jobs, resume)
    if json:
        print_json(_train_as_object(done))
    else:
        print_lines(*_train_as_table(done))
    if done.failed:
        print_error(f"{len(done.failed)} of {len(done.runs)} runs failed")
        return 1
    return 0


def _settings(overrides: Sequence[str]) -> dict[str, Any]:
    from transduce.experiments.grid import value_of

    pairs = (override.partition("=") for override in overrides)
    return {name: value_of(text) for name, _, text in pairs}


def _train_as_object(done: Sweep) -> dict[str, Any]:
    return {
        "directory": str(done.directory),
        "select_by": done.select_by,
        "best": str(done.best.path) if done.best else None,
        "over_seeds": _over_seeds(done),
        "runs": [
            {
                "run": str(run.path),
                "settings": _settings(run.overrides),
                "step": run.result.step,
                "best_step": run.result.best_step,
                "seconds": run.result.seconds,
                "scores": dict(run.result.scores),
                "error": run.result.error or None,
            }
            for run in done.runs
        ],
    }


def _over_seeds(done: Sweep) -> list[dict[str, Any]]:
    """Mean and standard deviation of scores over seeds, per combination of other settings."""
    if "seed" not in done.varied:
        return []
    return [
        {
            "settings": _settings(group.overrides),
            "runs": [str(run.path) for run in group.runs],
            "mean": {name: group.mean(name) for name in group.runs[0].result.scores},
            "standard_deviation": {
                name: group.deviation(name) for name in group.runs[0].result.scores
            },
        }
        for group in done.groups
    ]


def _train_as_table(done: Sweep) -> Iterator[str]:
    scores = list(dict.fromkeys(name for run in done.runs for name in run.result.scores))
    head = ["run", *done.varied, "steps", "best step", *scores, "seconds"]
    rows = []
    for run in done.runs:
        result, settings = run.result, _settings(run.overrides)
        measured = [result.scores.get(name) for name in scores]
        outcome = [result.step, result.best_step, *measured, round(result.seconds)]
        if result.error:
            outcome = [None] * len(outcome)
        rows.append([run.path.name, *(settings[name] for name in done.varied), *outcome])
    yield from table(head, rows)
    yield ""
    if groups := _over_seeds(done):
        yield "mean and standard deviation over seeds"
        names = [name for name in done.varied if name != "seed"]
        columns = [column for name in scores for column in (name, "±")]
        yield from table(
            [*names, "runs", *columns],
            (
                [group["settings"][name] for name in names]
                + [len(group["runs"])]
                + [
                    group[key].get(name)
                    for name in scores
                    for key in ("mean", "standard_deviation")
                ]
                for group in groups
            ),
        )
        yield ""
    for run in done.failed:
        yield f"{run.path} failed: {run.result.error}"
    if done.best is None or done.best_group is None:
        return
    if "seed" not in done.varied:
        yield f"best by {done.select_by}: {done.best.path}"
    elif len(done.varied) > 1:
        chosen = " ".join(done.best_group.overrides)
        yield f"best by mean {done.select_by}: {chosen}, best of its runs: {done.best.path}"
    else:
        yield "only the seed varies; differences between these runs are due to chance"
