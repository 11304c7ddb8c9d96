"""Old name of `tasks/language_model/dialogue.py`."""

from transduce.deprecation import forwarded

__getattr__ = forwarded(__name__, "transduce.tasks.language_model.dialogue")
