"""Plural forms: categories of CLDR by language, and the rules of gettext."""

from __future__ import annotations

import gettext
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from transduce.localise.patterns import PLACEHOLDER

CATEGORY_NAMES = ("zero", "one", "two", "few", "many", "other")
SAMPLES = range(201)
RULE = re.compile(r"nplurals\s*=\s*([1-6])\s*;\s*plural\s*=\s*([^;\n]{1,500});?")
LANGUAGES = (
    (
        "other",
        "bm bo dz id ig ii in ja jbo jv jw kde kea km ko lkt lo ms my nqo osa root sah ses sg su "
        "th to tpi vi wo yo yue zh",
    ),
    ("one* other", "ak am as bho bn csw doi fa ff fil gu guw hi hy is kab kn ln mg mk nso pa pcm"),
    ("one* other", "si tl ti tzm wa zu ceb"),
    ("one* many other", "fr pt"),
    ("one many other", "ca es it lld scn vec"),
    ("zero* one* other", "lv prg"),
    ("zero one other", "ksh lag"),
    ("one two other", "he iu iw naq sat se sma smi smj smn sms"),
    ("one few other", "mo ro shi"),
    ("one* few other", "bs hr sh sr"),
    ("one few many other", "cs pl sk"),
    ("one* few many other", "be lt ru uk"),
    ("one* two few other", "dsb gd hsb sl"),
    ("one two few many other", "ga mt"),
    ("one* two few many other", "br gv"),
    ("zero one two few many other", "ar ars cy kw"),
)
"""Categories of CLDR 47 (cardinal numbers) of languages with others than one and other, in its
order; a star marks a category of more than one number besides the last."""


class Form(NamedTuple):
    """A plural form: of the number 1, and of no other."""

    is_one: bool
    is_single: bool


def categories(language: str | None) -> dict[str, Form]:
    """Forms of a language by category; those of English for an unknown language."""
    code = re.split("[-_]", (language or "en").lower())[0]
    names = next((names for names, codes in LANGUAGES if code in codes.split()), "one other")
    forms = {}
    for name in names.split():
        is_one = name.startswith("one") or names == "other"
        forms[name.rstrip("*")] = Form(is_one, name == "one")
    return forms


def gettext_forms(header: str, language: str | None, number: int) -> list[Form]:
    """Forms of the rule in a header; without a rule, those of the language if they have as many as
    `number`, else the first form is of 1 alone."""
    if rule := RULE.search(header):
        try:
            plural = gettext.c2py(rule[2])
            form_of = [plural(n) for n in SAMPLES]
        except (ValueError, ArithmeticError, RecursionError):
            form_of = []
        if form_of:
            return [Form(form_of[1] == i, form_of.count(i) == 1) for i in range(int(rule[1]))]
    forms = [form for name, form in categories(language).items() if name != "zero"]
    if language and len(forms) == number:
        return forms
    return [Form(i == 0, number > 1) for i in range(number)]


def takes_singular(form: Form, singular: str, plural: str) -> bool:
    """True for a form that is translated from the singular: of 1 alone, or of 1 if the singular has
    the placeholders of the plural, so that no number is lost."""
    return form.is_one and (form.is_single or _names([singular]) == _names([plural]))


def origins(texts: Mapping[str, str], language: str | None) -> dict[str, str]:
    """Category of the source that each category of a translation is made from.

    texts: of the source, by category; with "other".  Categories that only the source has stay.
    """
    forms = categories(language) if language else {}
    made = {name: name if name in texts else "other" for name in (*texts, *forms)}
    singular = forms.get("one")
    if singular and "one" in texts and not takes_singular(singular, texts["one"], texts["other"]):
        made["one"] = "other"
    return made


def _names(texts: Iterable[str]) -> Sequence[str]:
    return sorted(match[0] for text in texts for match in PLACEHOLDER.finditer(text))
