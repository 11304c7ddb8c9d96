"""Fields and languages of DeepL's API; the state that its endpoints share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from transduce.localise.terms import Glossary, no_glossary
from transduce.serve.errors import invalid
from transduce.serve.glossaries import Glossaries
from transduce.serve.languages import base_of
from transduce.serve.requests import Fields
from transduce.serve.service import Service
from transduce.text.language_names import name_of

VARIANTS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
"""Codes that clients ask for in place of a target language without region."""


class DeepLRequests:
    """Reads the requests to a service.

    billed: characters that each key has had translated since the start.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.glossaries = Glossaries(service.settings.glossaries)
        self.billed: Counter[str] = Counter()

    def target(self, fields: Fields) -> str:
        """The target language."""
        return self.service.language(fields.text("target_lang"))

    def source(self, fields: Fields) -> str | None:
        """The source language; None to detect it."""
        code = fields.text("source_lang", "")
        return self.service.language(code) if code else None

    def detected(self, text: str, target: str) -> str:
        """The most probable language of a text from which the target can be reached."""
        languages = self.service.languages
        detected = [likely.language for likely in self.service.detect([text])]
        for code in (*detected, *languages.sources):
            if languages.path(code, target) is not None:
                return code
        return target

    def terms(self, fields: Fields, source: str | None, target: str) -> Glossary:
        """Terms of the glossary that a request names.  Raises RequestError 400 for other
        languages."""
        identity = fields.text("glossary_id", "")
        if not identity:
            return no_glossary
        if source is None:
            raise invalid("a glossary needs source_lang")
        glossary = self.glossaries.get(identity)
        if (glossary.source, glossary.target) != (source, target):
            raise invalid(
                f"the glossary is for {glossary.source} to {glossary.target}, "
                f"not for {source} to {target}"
            )
        return lambda sentence: glossary.terms.constraints(sentence)


def source_code(code: str) -> str:
    """A source language as it is answered: without region and script."""
    return base_of(code).upper()


def target_names(codes: Sequence[str]) -> dict[str, str]:
    """Codes and names of target languages as they are answered."""
    names: dict[str, str] = {}
    for code in codes:
        names |= VARIANTS.get(code, {code.upper(): name_of(code)})
    return names
