"""Plural forms: categories of CLDR, rules of gettext, messages of ICU."""

from __future__ import annotations

import functools
import gettext
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.inline import parts_of
from transduce.localise.languages import base_of
from transduce.localise.placeholders import PLACEHOLDER
from transduce.text.languages import canonical

CATEGORY_NAMES = ("zero", "one", "two", "few", "many", "other")
SAMPLES = range(1001)
LIKELY = (21, 3, 5, 1, 2)
"""Numbers that stand for a form, if they are of it."""
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
ORDINALS = (
    ("one other", "n%10!=1 && n%10!=2 || n%100==11 || n%100==12", "sv"),
    ("one other", "n!=1", "bal fil fr ga hy lo mo ms ro tl vi"),
    ("one other", "n!=1 && n!=5", "hu"),
    ("one other", "n<1 || n>4", "ne"),
    ("few other", "n%10!=2 && n%10!=3 || n%100==12 || n%100==13", "be"),
    ("few other", "n%10!=3 || n%100==13", "uk"),
    ("few other", "n%10!=6 && n%10!=9 && n!=10", "tk"),
    ("many other", "n==0 || n%10!=0 && n%10!=6 && n%10!=9", "kk"),
    ("many other", "n!=8 && n!=11 && n!=80 && n!=800", "it lld sc vec"),
    ("many other", "n!=8 && n!=11 && (n<80 || n>89) && (n<800 || n>899)", "lij scn"),
    ("one other", "n%10!=1 && n%10!=3 || n%100==11", "es"),
    ("few other", "n%100<2 || n%100>19", "af"),
    (
        "one many other",
        "n==1 ? 0 : n==0 || n%100>1 && n%100<=20 || n>20 && n%20==0 && n%100 ? 1 : 2",
        "ka",
    ),
    ("one many other", "n==1 ? 0 : n%10==4 && n%100!=14 ? 1 : 2", "sq"),
    (
        "one many other",
        "n%20>0 && n%20<5 && (n<20 || n%100>20 || n%100<5) ? 0 : n%100==5 ? 1 : 2",
        "kw",
    ),
    (
        "one two few other",
        "n%100>10 && n%100<14 ? 3 : n%10==1 ? 0 : n%10==2 ? 1 : n%10==3 ? 2 : 3",
        "en",
    ),
    (
        "one two few other",
        "n%10==1 && n%100!=11 ? 0 : n%10==2 && n%100!=12 ? 1 : "
        "(n%10==3 || n%10==4) && n%100!=13 && n%100!=14 ? 2 : 3",
        "bg",
    ),
    ("one two few other", "n==1 ? 0 : n==2 || n==3 ? 1 : n==4 ? 2 : 3", "kok mr"),
    ("one two few other", "n==1 || n==11 ? 0 : n==2 || n==12 ? 1 : n==3 || n==13 ? 2 : 3", "gd"),
    ("one two few other", "n==1 || n==3 ? 0 : n==2 ? 1 : n==4 ? 2 : 3", "ca"),
    (
        "one two many other",
        "n%100>10 && n%100<19 ? 3 : n%10==1 ? 0 : n%10==2 ? 1 : n%10==7 || n%10==8 ? 2 : 3",
        "mk",
    ),
    (
        "one few many other",
        "n%10==1 || n%10==2 || n%10==5 || n%10==7 || n%10==8 || n%100==20 || n%100==50 || "
        "n%100==70 || n%100==80 ? 0 : n%10==3 || n%10==4 || n%1000 && n%100==0 ? 1 : "
        "n==0 || n%10==6 || n%100==40 || n%100==60 || n%100==90 ? 2 : 3",
        "az",
    ),
    ("one two few many other", "n==1 ? 0 : n==2 || n==3 ? 1 : n==4 ? 2 : n==6 ? 3 : 4", "gu hi"),
    (
        "one two few many other",
        "n==1 || n==5 || n>6 && n<11 ? 0 : n==2 || n==3 ? 1 : n==4 ? 2 : n==6 ? 3 : 4",
        "as bn",
    ),
    (
        "one two few many other",
        "n==1 || n==5 || n>6 && n<10 ? 0 : n==2 || n==3 ? 1 : n==4 ? 2 : n==6 ? 3 : 4",
        "or",
    ),
    (
        "zero one two few many other",
        "n==0 || n>6 && n<10 ? 0 : n==1 ? 1 : n==2 ? 2 : n==3 || n==4 ? 3 : n==5 || n==6 ? 4 : 5",
        "cy",
    ),
)
"""Categories of CLDR 48 of ordinal numbers, by a rule, of languages with others than other."""


class PluralForm(NamedTuple):
    """A plural form: of the number 1, of no other, of fewer than five numbers; one of its numbers,
    "" for a form of fractions alone."""

    is_one: bool
    is_single: bool
    is_rare: bool
    sample: str = ""


@functools.lru_cache
def categories(language: str | None) -> Mapping[str, PluralForm]:
    """Forms of a language by category; those of English for an unknown language."""
    code = re.split("[-_]", (language or "en").lower())[0]
    names = next((names for names, codes in LANGUAGES if code in codes.split()), "one other")
    forms = {}
    samples = _samples_by_category(names.replace("*", "").split(), code)
    for name in names.split():
        is_one = name.startswith("one") or names == "other"
        is_single, is_rare = name == "one", name in ("zero", "one", "two")
        name = name.rstrip("*")
        forms[name] = PluralForm(is_one, is_single, is_rare, samples.get(name, ""))
    return forms


def _samples_by_category(names: Sequence[str], code: str) -> dict[str, str]:
    """A number of each category that whole numbers have."""
    samples = _samples(rule_of(code))
    if code in ("lv", "prg"):
        names = ("one", "other", "zero")
    elif len(names) > len(samples):
        of_fractions = "other" if code in ("be", "pl", "ru", "uk") else "many"
        names = [name for name in names if name != of_fractions]
    return dict(zip(names, samples, strict=False))


@functools.lru_cache
def _samples(rule: str) -> tuple[str, ...]:
    """A number of each form of a rule of gettext, "" for one without."""
    match = RULE.search(rule)
    assert match is not None
    plural = gettext.c2py(match[2])
    form_of = {n: plural(n) for n in (*LIKELY, *SAMPLES)}
    return tuple(
        next((str(n) for n, form in form_of.items() if form == i), "") for i in range(int(match[1]))
    )


def rule_of(language: str) -> str:
    """The rule of gettext for the integers of a language: `nplurals=2; plural=(n != 1);`."""
    full, base = canonical(language), base_of(language)
    rules = ((rule, codes.split()) for rule, codes in RULES)
    return next((rule for rule, codes in rules if full in codes or base in codes), RULES[0][0])


def number_of_forms(language: str | None) -> int:
    """Number of plural forms of the whole numbers of a language; 2 for an unknown one."""
    return int(rule_of(language or "en").removeprefix("nplurals=")[0])


def samples_of(language: str | None) -> tuple[str, ...]:
    """A number of each form of the whole numbers of a language."""
    return _samples(rule_of(language or "en"))


@functools.lru_cache
def _ordinal_rule(language: str) -> tuple[Sequence[str], Callable[[int], int]]:
    """Categories of the ordinal numbers of a language, and the number of that of a number."""
    base = base_of(language)
    rules = ((names, rule) for names, rule, codes in ORDINALS if base in codes.split())
    names, rule = next(rules, ("other", "0"))
    return names.split(), gettext.c2py(rule)


def ordinal_category(language: str, number: int) -> str:
    """The category of an ordinal number: `two` of 22 in English."""
    names, rule = _ordinal_rule(language)
    return names[rule(number)]


@functools.lru_cache
def _ordinal_numbers(language: str) -> dict[str, list[int]]:
    """Numbers of each category of ordinal numbers, likely ones first."""
    numbers: dict[str, list[int]] = {name: [] for name in _ordinal_rule(language)[0]}
    for number in (*LIKELY, *SAMPLES):
        numbers[ordinal_category(language, number)].append(number)
    return numbers


def ordinals(source: str, target: str, present: Collection[str]) -> dict[str, tuple[str, str]]:
    """Of each category of ordinal numbers of a target the category of the source that it is made
    from, and a number of both; those present that only the source has are made from themselves."""
    of_source = _ordinal_numbers(source).items()
    made = {name: (name, str(numbers[0])) for name, numbers in of_source if name in present}
    for name, numbers in _ordinal_numbers(target).items():
        number = next((n for n in numbers if ordinal_category(source, n) == name), numbers[0])
        made[name] = ordinal_category(source, number), str(number)
    return made


def gettext_forms(header: str, language: str | None, number: int) -> list[PluralForm]:
    """Forms of the rule in a header; without a rule, those of the language if they have as many as
    `number`, else the first form is of 1 alone."""
    if (rule := RULE.search(header)) and (by_rule := _forms_by(int(rule[1]), rule[2])):
        return list(by_rule)
    forms = [form for name, form in categories(language).items() if name != "zero"]
    if language and len(forms) == number:
        return forms
    return [PluralForm(i == 0, number > 1, i == 0 and number > 1) for i in range(number)]


@functools.lru_cache
def _forms_by(number: int, rule: str) -> tuple[PluralForm, ...]:
    """Forms by a rule of gettext; none for one that is no rule."""
    try:
        plural = gettext.c2py(rule)
        form_of = [plural(n) for n in SAMPLES]
    except (ValueError, ArithmeticError, RecursionError):
        return ()
    counts = Counter(form_of)
    samples = _samples(f"nplurals={number}; plural={rule};")
    return tuple(
        PluralForm(form_of[1] == i, counts[i] == 1, counts[i] < FEW, samples[i])
        for i in range(number)
    )


def takes_singular(form: PluralForm, singular: str, plural: str) -> bool:
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


HEAD = re.compile(
    r"\{\s*(?P<argument>\w+)\s*,\s*(?P<kind>plural|select|selectordinal|choice)\s*,\s*(?P<offset>offset\s*:\s*[0-9]+\s*)?"
)
PLURAL_LIMIT = re.compile(r"\s*[-+]?(?:[0-9][0-9.,Ee]*|\u221e)\s*[#<\u2264]")
"""Beginning of a text of Java's choices: its least number."""
BAR = re.compile(r"(?P<quoted>''|'[^']*')|[{}|]")
SELECTOR = re.compile(r"\s*(?P<name>=[0-9]+|\w+)\s*\{")
SIGN = re.compile(r"(?P<quoted>''|'[{}#|][^']*+')|[{}]")
MOST = 64
"""Maximum number of texts of a message."""
PLURAL_DEEPEST = 6


COUNTED = ("plural", "selectordinal")
"""Kinds of choices between the forms of a number."""


class Branch(NamedTuple):
    """A text of a message, with what is before it, up to its brace; a number of its form, if
    known."""

    selector: str
    name: str
    text: Message
    number: str = ""


class Leaf(NamedTuple):
    """A text of a message, in a plural a number of its form, and the argument that is the number,
    "" where only `#` is."""

    text: str
    number: str = ""
    argument: str = ""


class Message(NamedTuple):
    """A text, or a choice between branches: then `text` is what is before the first of them.

    end: what is behind the last branch.  argument: of a plural, "" with an offset.
    """

    text: str
    kind: str = ""
    branches: tuple[Branch, ...] = ()
    end: str = ""
    argument: str = ""

    def leaves(self, number: str = "", argument: str = "") -> Iterator[Leaf]:
        """All texts, in order, as those of the plural around them.

        number, argument: of a leaf outside of a choice.
        """
        if not self.kind:
            yield Leaf(self.text, number, argument)
        for branch in self.branches:
            counted = (branch.number, self.argument) if self.kind in COUNTED else (number, argument)
            yield from branch.text.leaves(*counted)

    def texts(self) -> Iterator[str]:
        """All texts, in order."""
        return (leaf.text for leaf in self.leaves())

    def in_language(self, source: str, target: str | None) -> Message:
        """The message with the plural categories of a target language; those that are made from one
        text, and all of ordinal numbers, get a number of each."""
        inner = tuple(b._replace(text=b.text.in_language(source, target)) for b in self.branches)
        by_name = {branch.name: branch for branch in inner}
        cases = {
            name: " ".join(branch.text.texts()).replace("#", "%1")
            for name, branch in by_name.items()
            if name in CATEGORY_NAMES
        }
        if target is None or self.kind not in COUNTED or "other" not in cases:
            return self._replace(branches=inner)
        if self.kind == "plural":
            made = origins(cases, target)
            numbers = {name: form.sample for name, form in categories(target).items()}
            n_made = Counter(origin for name, origin in made.items() if numbers.get(name))
            numbers = {name: n for name, n in numbers.items() if n_made[made[name]] > 1}
        else:
            forms = ordinals(source, target, cases)
            made = {name: form[0] if form[0] in cases else "other" for name, form in forms.items()}
            numbers = {name: number for name, (_, number) in forms.items()}
        new = {
            name: by_name[origin]._replace(
                selector=by_name[origin].selector.replace(origin, name, 1), name=name
            )
            for name, origin in made.items()
            if origin != name and not (name == "one" and "=1" in by_name)
        }
        other = by_name.pop("other")
        branches = (by_name | new | {"other": new.get("other", other)}).values()
        numbered = (b._replace(number=numbers.get(b.name, "")) for b in branches)
        return self._replace(branches=tuple(numbered))

    def with_texts(self, texts: Iterator[str]) -> str:
        """The message with other texts in their places."""
        if not self.kind:
            return next(texts)
        parts = [(b.selector, b.text.with_texts(texts)) for b in self.branches]
        if self.kind == "choice":
            rows = "|".join(f"{selector}{_quoted(text)}" for selector, text in parts)
        else:
            rows = "".join(f"{selector}{text}}}" for selector, text in parts)
        return f"{self.text}{rows}{self.end}"


def has_choice(text: str, tags: Sequence[str]) -> bool:
    """True for a text with a choice outside of its tags."""
    return any(HEAD.search(part) for is_tag, part in parts_of(text, tags) if not is_tag)


def _outermost(text: str) -> str:
    """A text without braces with their content, and without tags."""
    text = re.sub("<[^<>]*>", "", text)
    for _ in range(2 * PLURAL_DEEPEST):
        text = re.sub(r"\{[^{}]*\}", "", text)
    return text


def parse_message(text: str, depth: int = 0, number: str = "") -> Message:
    """A message as a tree; words around a choice go into each of its texts.

    number: the argument that `#` stands for, of the plural around the text.

    Raises DataError for unbalanced braces, too many texts, and a number sign beside a choice.
    """
    head = HEAD.search(text)
    if head is None:
        return Message(text)
    if depth > PLURAL_DEEPEST:
        raise DataError(f"the message has choices in more than {PLURAL_DEEPEST} others")
    start = head.end()
    bodies: list[tuple[str, str, str]] = []
    if head["kind"] == "choice":
        end = _closing(text, start)
        bodies, start = _choices(text, start, end), end
    while head["kind"] != "choice" and (selector := SELECTOR.match(text, start)):
        end = _closing(text, selector.end())
        bodies.append((selector[0], selector["name"], text[selector.end() : end]))
        start = end + 1
    closing = re.compile(r"\s*\}").match(text, start)
    if closing is None or not bodies:
        raise DataError("the braces of the message do not match")
    before, after = text[: head.start()], text[closing.end() :]
    outside = _outermost(before + after)
    inside = ("", "")
    if any(map(str.isalnum, outside)) or HEAD.search(after):
        if "#" in outside and head["kind"] in COUNTED and number:
            before, after = _with_number(before, number), _with_number(after, number)
        elif "#" in outside and not number:
            raise DataError("the message has # outside of its choice; write it in each text")
        inside, before, after = (before, after), "", ""
    if head["kind"] in COUNTED:
        number = "" if head["offset"] else head["argument"]
    branches = tuple(
        Branch(selector, name, parse_message(f"{inside[0]}{body}{inside[1]}", depth + 1, number))
        for selector, name, body in bodies
    )
    argument = number if head["kind"] in COUNTED else ""
    message = Message(before + head[0], head["kind"], branches, closing[0] + after, argument)
    if sum(1 for _ in message.texts()) > MOST:
        raise DataError(f"the message has more than {MOST} texts")
    return message


def _with_number(text: str, number: str) -> str:
    """A text with an argument in place of each `#` outside of its braces."""
    depth, parts = 0, []
    for part in re.split("([{}#])", text):
        depth += (part == "{") - (part == "}")
        parts.append(f"{{{number}, number}}" if part == "#" and depth == 0 else part)
    return "".join(parts)


def _choices(text: str, start: int, end: int) -> list[tuple[str, str, str]]:
    """Texts of a choice of Java, in the span of its body; one with arguments is read twice."""
    cuts, depth = [start - 1], 0
    for sign in BAR.finditer(text, start, end):
        if sign["quoted"] is None:
            depth += (sign[0] == "{") - (sign[0] == "}")
            cuts += [sign.start()] * (sign[0] == "|" and depth == 0)
    bodies = []
    for before, after in itertools.pairwise([*cuts, end]):
        limit = PLURAL_LIMIT.match(text, before + 1, after)
        if limit is None:
            raise DataError("a text of the choice has no limit before it, such as 0#")
        body = text[limit.end() : after]
        bodies.append((limit[0], limit[0], body.replace("''", "'") if "{" in body else body))
    return bodies


def _quoted(text: str) -> str:
    if "|" in text:
        raise DataError("a translation has the | that ends a text of the choice")
    return text.replace("'", "''") if "{" in text else text


def _closing(text: str, start: int) -> int:
    """Place of the brace that closes the one before a place; quoted braces do not count."""
    depth = 1
    while sign := SIGN.search(text, start):
        start = sign.end()
        if sign["quoted"] is None:
            depth += (sign[0] == "{") - (sign[0] == "}")
            if depth == 0:
                return sign.start()
    raise DataError("the braces of the message do not match")
