"""Languages of documents: equal codes, directions of writing, encodings of old files."""

import re
from pathlib import PurePath

from transduce.errors import SettingError
from transduce.localise.document import Reading, Record
from transduce.text.languages import EQUAL, NAMES, SHORT, canonical

RIGHT_TO_LEFT = "ar arc ars arz ckb dv fa iw ks nqo ps sd syr ug ur yi"
ANY = ("und", "mul", "zxx", "xx")
"""Codes that name no language."""
TRADITIONAL = ("zh-HK", "zh-MO")
PAGES = {
    "cp1250": "bs cs hr hu pl ro sk sl sq",
    "cp1251": "be bg kk ky mk mn ru sr tg tt uk",
    "cp1253": "el",
    "cp1254": "az tr",
    "cp1255": "he iw yi",
    "cp1256": "ar fa ps ug ur",
    "cp1257": "et lt lv",
    "cp1258": "vi",
    "cp874": "th",
    "cp932": "ja",
    "cp949": "ko",
    "gb18030": "zh",
}
"""Encodings of Windows before Unicode, by the codes of their languages."""


TAG = re.compile(r"[A-Za-z0-9]+(?:[-_@.][A-Za-z0-9]+)*")
"""A code as it stands in names of files: pt-BR, sr@latin."""
LOCALES = "LC_MESSAGES"
"""Directory of catalogues, within that of a language."""


def base_of(name: str) -> str:
    """Code of a language without region and script, of a code or English name in any spelling."""
    plain = re.split("[.@]", name.strip())[0]
    named = next((code for code, known in NAMES.items() if known.lower() == plain.lower()), plain)
    base = re.split("[-_]", named.lower())[0]
    base = SHORT.get(base, base)
    return max(next((group for group in EQUAL if base in group), {base}))


LANGUAGES = frozenset(map(base_of, (*NAMES, *SHORT.values())))


def is_same_language(name: str, other: str) -> bool:
    """True for names of one language, whatever their regions, and not of two scripts."""
    codes = [canonical(re.split("[.@]", code.strip())[0]) for code in (name, other)]
    codes = ["zh-Hant" if code in TRADITIONAL else code for code in codes]
    scripts = {script for code in codes for script in re.findall("-([A-Z][a-z]{3})(?=-|$)", code)}
    return base_of(name) == base_of(other) and len(scripts) < 2


def is_right_to_left(language: str) -> bool:
    """True for a language that is written from the right."""
    return base_of(language) in RIGHT_TO_LEFT.split()


def code_page(language: str | None) -> str:
    """The encoding of old files of a language; that of Western Europe for an unknown one."""
    if language and is_same_language(language, "zh-Hant") and canonical(language) != "zh-Hans":
        return "big5hkscs"
    base = base_of(language or "")
    return next((page for page, codes in PAGES.items() if base in codes.split()), "cp1252")


def names_language(code: str) -> bool:
    """True for a code that means a certain language."""
    base = base_of(code)
    return re.fullmatch("[a-z]{2,3}", base) is not None and base not in ANY


def language_of_path(path: str) -> str:
    """The language of a catalogue of gettext by its path, `de.po` or `de/LC_MESSAGES/x.po`; else
    ""."""
    parts = PurePath(path).parts
    at = parts.index(LOCALES) - 1 if LOCALES in parts[1:] else -1
    code = parts[at] if at >= 0 else PurePath(path).stem
    return code if base_of(code) in LANGUAGES else ""


def check_tag(code: str | None) -> None:
    """Raise SettingError for a code of a language that is no part of a path or of a name."""
    if code is not None and not TAG.fullmatch(code):
        raise SettingError(f"{code!r} is no code of a language; give such as de or pt-BR")


def of_other_languages(reading: Reading, source: str = "", target: str = "") -> list[Record]:
    """The record of a file, or of a part of it, with other languages than those of the reading.

    source, target: codes that the file names; empty for none.
    """
    for code, asked, is_target in (
        (source, reading.source, False),
        (target, reading.language, True),
    ):
        if asked and names_language(code) and not is_same_language(code, asked):
            name, option = (
                ("target", "--target-language") if is_target else ("source", "--source-language")
            )
            reason = (
                f"its {name} language is {code}, not {asked}; leave it, or give {option} {code}"
            )
            return [Record("language", code, code, "unread", reason)]
    return []
