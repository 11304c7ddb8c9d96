"""Plural forms: categories of CLDR by language, and the rules of gettext."""

from __future__ import annotations

import functools
import gettext
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from transduce.localise.languages import base_of
from transduce.localise.patterns import PLACEHOLDER
from transduce.text.language_names import canonical

CATEGORY_NAMES = ("zero", "one", "two", "few", "many", "other")
SAMPLES = range(1001)
FEW = 5
"""Numbers of a form that gettext lets leave its number out: fewer."""
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
_SLAVIC = "n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"
RULES = (
    ("nplurals=2; plural=(n != 1);", "pt-PT"),
    (
        "nplurals=1; plural=0;",
        "bm bo dz id ig ii in ja jbo jv jw kde kea km ko lkt lo ms my nqo osa root sah ses sg su "
        "th to vi wo yo yue zh",
    ),
    (
        "nplurals=2; plural=(n > 1);",
        "ak am as bho bn csw fa ff fil fr gu guw hi hy kab kn ln mg nso pa pcm pt si ti tl tzm wa "
        "zu",
    ),
    ("nplurals=2; plural=(n%10==1 && n%100!=11 ? 0 : 1);", "is mk"),
    ("nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);", "lv prg"),
    ("nplurals=3; plural=(n==0 ? 0 : n==1 ? 1 : 2);", "ksh lag"),
    ("nplurals=3; plural=(n==1 ? 0 : n==2 ? 1 : 2);", "he iu iw naq sat se sma smi smj smn sms"),
    ("nplurals=3; plural=(n==1 ? 0 : n==0 || (n%100>0 && n%100<20) ? 1 : 2);", "mo ro"),
    ("nplurals=3; plural=(n<=1 ? 0 : n<=10 ? 1 : 2);", "shi"),
    (f"nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : {_SLAVIC});", "be bs hr ru sh sr uk"),
    ("nplurals=3; plural=(n==1 ? 0 : n>=2 && n<=4 ? 1 : 2);", "cs sk"),
    (f"nplurals=3; plural=(n==1 ? 0 : {_SLAVIC});", "pl"),
    (
        "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : "
        "2);",
        "lt",
    ),
    (
        "nplurals=4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3);",
        "dsb hsb sl",
    ),
    ("nplurals=4; plural=(n==1 || n==11 ? 0 : n==2 || n==12 ? 1 : n>2 && n<20 ? 2 : 3);", "gd"),
    ("nplurals=4; plural=(n%10==1 ? 0 : n%10==2 ? 1 : n%20==0 ? 2 : 3);", "gv"),
    ("nplurals=5; plural=(n==1 ? 0 : n==2 ? 1 : n<7 ? 2 : n<11 ? 3 : 4);", "ga"),
    (
        "nplurals=5; plural=(n==1 ? 0 : n==2 ? 1 : n==0 || (n%100>2 && n%100<11) ? 2 : "
        "n%100>10 && n%100<20 ? 3 : 4);",
        "mt",
    ),
    (
        "nplurals=5; plural=(n%10==1 && n%100!=11 && n%100!=71 && n%100!=91 ? 0 : n%10==2 && "
        "n%100!=12 && n%100!=72 && n%100!=92 ? 1 : (n%10==3 || n%10==4 || n%10==9) && "
        "(n%100<10 || n%100>19) && (n%100<70 || n%100>79) && n%100<90 ? 2 : "
        "n!=0 && n%1000000==0 ? 3 : 4);",
        "br",
    ),
    (
        "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : "
        "n%100>=11 ? 4 : 5);",
        "ar ars",
    ),
    ("nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n==3 ? 3 : n==6 ? 4 : 5);", "cy"),
)
"""Rules of gettext, of the categories of CLDR that whole numbers below a million have."""


class Form(NamedTuple):
    """A plural form: of the number 1, of no other, of fewer than five numbers."""

    is_one: bool
    is_single: bool
    is_rare: bool


def categories(language: str | None) -> dict[str, Form]:
    """Forms of a language by category; those of English for an unknown language."""
    code = re.split("[-_]", (language or "en").lower())[0]
    names = next((names for names, codes in LANGUAGES if code in codes.split()), "one other")
    forms = {}
    for name in names.split():
        is_one = name.startswith("one") or names == "other"
        forms[name.rstrip("*")] = Form(is_one, name == "one", name in ("zero", "one", "two"))
    return forms


def rule_of(language: str) -> str:
    """The rule of gettext for the integers of a language: `nplurals=2; plural=(n != 1);`."""
    full, base = canonical(language), base_of(language)
    rules = ((rule, codes.split()) for rule, codes in RULES)
    return next((rule for rule, codes in rules if full in codes or base in codes), RULES[0][0])


def number_of_forms(language: str | None) -> int:
    """Number of plural forms of the whole numbers of a language; 2 for an unknown one."""
    return int(rule_of(language or "en").removeprefix("nplurals=")[0])


def gettext_forms(header: str, language: str | None, number: int) -> list[Form]:
    """Forms of the rule in a header; without a rule, those of the language if they have as many as
    `number`, else the first form is of 1 alone."""
    if (rule := RULE.search(header)) and (by_rule := _forms_by(int(rule[1]), rule[2])):
        return list(by_rule)
    forms = [form for name, form in categories(language).items() if name != "zero"]
    if language and len(forms) == number:
        return forms
    return [Form(i == 0, number > 1, i == 0 and number > 1) for i in range(number)]


@functools.lru_cache
def _forms_by(number: int, rule: str) -> tuple[Form, ...]:
    """Forms by a rule of gettext; none for one that is no rule."""
    try:
        plural = gettext.c2py(rule)
        form_of = [plural(n) for n in SAMPLES]
    except (ValueError, ArithmeticError, RecursionError):
        return ()
    counts = Counter(form_of)
    return tuple(Form(form_of[1] == i, counts[i] == 1, counts[i] < FEW) for i in range(number))


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
