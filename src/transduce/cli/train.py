"""`transduce train`: from a recipe to a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.cli.options import Flag
from transduce.cli.output import print_lines
from transduce.errors import SettingError


def train(
    recipe: Path,
    /,
    *more: Annotated[str, Parameter(show=False)],
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", show_default=False)] = (),
    run: Path | None = None,
    seed: int | None = None,
    fit_memory: Flag = False,
    resume: Flag = False,
    overwrite: Flag = False,
) -> None:
    """Train a model by a recipe.

    Prints the run directory when it is done; the way there is told on stderr.  Ctrl-C writes a
    checkpoint and stops; --resume goes on from it.  Under torchrun, as in
    `torchrun --nproc-per-node 2 -m transduce train RECIPE`, several processes train one model.

    Parameters
    ----------
    recipe
        A TOML file, or a run directory to go by its recipe.
    more
        Further overrides, as in `--set a.b=1 c.d=2`.
    overrides
        Settings to change, as a.b=value; may be given several times.
    run
        Directory to make; by default runs/ and the recipe's name.
    seed
        Another seed than the recipe's, as in `--set seed=7`.
    fit_memory
        First find the largest batches that fit into the memory; each step keeps its size.  The
        same as `--set training.fit_memory=true`.
    resume
        Go on where an interrupted run stopped.
    overwrite
        Delete the run that is there.
    """
    if resume and overwrite:
        raise SettingError("--resume keeps what --overwrite would delete; give one of them")
    if resume and run is None and (recipe / "recipe.toml").is_file():
        run = recipe
    import transduce
    from transduce.training.distributed import is_main_process

    if seed is not None and any(one.startswith("seed=") for one in (*overrides, *more)):
        raise SettingError("--seed and --set seed=... both say the seed; give one of them")
    seeded = () if seed is None else (f"seed={seed}",)
    fitted = ("training.fit_memory=true",) if fit_memory else ()
    settings = (*overrides, *more, *seeded, *fitted)
    path, _ = transduce.train(recipe, run, settings, resume, overwrite)
    if is_main_process():
        print_lines(str(path))
