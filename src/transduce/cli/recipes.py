"""`transduce recipes`: the recipes that come with the package."""

from __future__ import annotations

from transduce.cli.output import print_lines
from transduce.errors import DataError


def recipes(name: str = "", /) -> None:
    """List the recipes that come with the package, or print one.

    A recipe names its data at its head; `transduce recipes NAME > my.toml` makes a copy to change.

    Parameters
    ----------
    name
        Name of the recipe to print, such as translation/multi30k-en-de.
    """
    from transduce.explain.tables import table
    from transduce.runs.recipe_files import recipe_names, recipe_purpose, recipe_text

    if name:
        print_lines(*recipe_text(name).splitlines())
    else:
        rows = [(recipe, recipe_purpose(recipe)) for recipe in recipe_names()]
        if not rows:
            raise DataError("this installation carries no recipes; they come with transduce itself")
        print_lines(*table(["recipe", "purpose"], rows))
