"""Old name of `tasks/translation/alignment.py`."""

from transduce.deprecation import forwarded

__getattr__ = forwarded(__name__, "transduce.tasks.translation.alignment")
