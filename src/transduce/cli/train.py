"""`transduce train`: train a recipe into a run directory."""

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
