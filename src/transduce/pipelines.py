"""Translation behind the interface of `transformers` 4; version 5 has no pipeline of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from transduce.errors import DataError, SettingError
from transduce.loading import Run, load
from transduce.nn.precision import Precision
from transduce.runs.arguments import EngineName
from transduce.text.languages import canonical, known_code
from transduce.text.tokenizer import mark

TASK = re.compile(r"translation(?:_(\w+)_to_(\w+))?")
WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "clean_up_tokenization_spaces": (True, False, None),
    "do_sample": (False,),
    "early_stopping": (True, False),
    "return_tensors": (False, None),
    "return_text": (True, None),
    "truncation": (True, False, None),
}
"""Settings of transformers that are accepted with these values."""


def pipeline(
    task: str,
    model: str | os.PathLike[str],
    device: int | str | None = None,
    *,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    precision: Precision = "float32",
    engine: EngineName = "auto",
) -> TranslationPipeline:
    """A run of translation that is called like `pipeline("translation")` of `transformers` 4.

    task: "translation", or with its languages "translation_en_to_fr".  model: path of the run.
    device: -1 for the CPU, 0 for the first GPU, or as in `load`; None for "auto".  src_lang,
    tgt_lang: languages, where the run has several.  precision, engine: as in `load`.

    Raises SettingError for another task, RunError as `load`.

    >>> translator = transduce.pipeline("translation", "runs/demo", device=-1)
    """
    named = TASK.fullmatch(task) if isinstance(task, str) else None
    if named is None:
        raise SettingError(
            f"task {task!r}: transduce.pipeline has 'translation'; use transduce.load"
        )
    if isinstance(device, int):
        device = "cpu" if device < 0 else f"cuda:{device}"
    elif not isinstance(device, str | None):
        raise SettingError(f"device={device!r} is not a number or a name of a device")
    run = load(model, device or "auto", precision, engine)
    if run.recipe.task != "translation":
        raise SettingError(f"{model} is a run of the task {run.recipe.task!r}; use transduce.load")
    return TranslationPipeline(run, src_lang or named[1], tgt_lang or named[2])


class TranslationPipeline:
    """A run with its languages."""

    def __init__(self, run: Run, source: str | None, target: str | None) -> None:
        """source, target: codes; None for those of the run."""
        self.run = run
        self._codes = source, target

    def __call__(
        self,
        texts: str | Iterable[str],
        *,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        num_beams: int | None = None,
        num_return_sequences: int = 1,
        batch_size: int = 32,
        **settings: Any,
    ) -> list[Any] | Iterator[list[Any]]:
        """Translations of a text, or of each text of a list: dictionaries with `translation_text`,
        lists of them for several of each; of another iterable an iterator of the lists.

        texts: to translate.  src_lang, tgt_lang: as in `pipeline`.  max_length, max_new_tokens:
        tokens of an output, with and without its beginning and end.  num_beams,
        num_return_sequences: hypotheses of the search, and translations of each text; by default as
        the run's recipe says, and one.  batch_size: texts of an iterable in a batch.  settings: of
        `WITHOUT_EFFECT`.

        Raises SettingError for other settings, and languages that the run does not have; DataError
        for what is no text.
        """
        for name, value in settings.items():
            if value not in WITHOUT_EFFECT.get(name, ()):
                raise SettingError(f"{name}={value!r} is not followed by this pipeline; remove it")
        for name, number in (("max_length", max_length), ("batch_size", batch_size)):
            if number is not None and (not isinstance(number, int) or number < 1):
                raise SettingError(f"{name}={number!r} is not a number from 1")
        options: dict[str, Any] = {"n_best": num_return_sequences}
        if num_beams is not None:
            options["beam_size"] = num_beams
        if max_new_tokens is None and max_length is not None:
            max_new_tokens = max(1, max_length - 2)
        if max_new_tokens is not None:
            options |= {"max_length_ratio": 0.0, "max_length_extra": max_new_tokens}
        tag = self._tag(src_lang or self._codes[0], tgt_lang or self._codes[1])
        if isinstance(texts, str):
            return next(self._translated([texts], tag, options, 1))
        if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
            raise DataError(f"texts are a string or a list of strings, not {texts!r:.80}")
        rows = self._translated(_checked(texts), tag, options, batch_size)
        if not isinstance(texts, list | tuple):
            return rows
        return [row[0] if num_return_sequences == 1 else row for row in rows]

    def _translated(
        self, texts: Iterable[str], tag: str, options: dict[str, Any], size: int
    ) -> Iterator[list[dict[str, str]]]:
        left = iter(texts)
        while batch := [tag + text if text.strip() else text for text in islice(left, size)]:
            for answer in self.run(batch, **options):
                texts_of = [candidate.text for candidate in answer.candidates] or [answer.text]
                yield [{"translation_text": text} for text in texts_of]

    def _tag(self, source: str | None, target: str | None) -> str:
        """Text before each source that selects the languages."""
        named = self.run.translator.recipe.languages
        codes = [
            self._code(name, code, options)
            for name, code, options in (
                ("src_lang", source, named.sources),
                ("tgt_lang", target, named.targets),
            )
        ]
        if named.tags == "pair":
            return "".join(map(mark, codes))
        return mark(codes[1]) if len(named.targets) > 1 else ""

    def _code(self, name: str, code: str | None, codes: tuple[str, ...]) -> str:
        """The recipe's spelling of a language; without `code` the only one, or the first source."""
        spellings = {canonical(spelling): spelling for spelling in codes}
        if code is None and (len(codes) < 2 or name == "src_lang"):
            return codes[0] if codes else ""
        known = None if code is None else known_code(code, spellings)
        if known is None and codes:
            shown = ", ".join(codes[:10])
            raise SettingError(f"{name}={code!r}: {self.run.path} has the languages {shown}")
        return spellings.get(known or "", "")


def _checked(texts: Iterable[Any]) -> Iterator[str]:
    """Texts.  Raises DataError for anything else among them."""
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise DataError(f"text {number} is not a string: {text!r:.80}")
        yield text
