"""Old name of `tasks/translation/recipe.py`."""

from transduce.deprecation import forwarded

__getattr__ = forwarded(__name__, "transduce.tasks.translation.recipe")
