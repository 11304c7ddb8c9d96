"""Codes and names of languages, and the pairs that a server offers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

CODE = re.compile(r"[A-Za-z]{2,16}([-_][A-Za-z0-9]{1,16})*")

ALIASES = {"zh": "zh-Hans", "zh-cn": "zh-Hans", "zt": "zh-Hant", "zh-tw": "zh-Hant", "pb": "pt-BR"}
"""Other spellings that clients use, in lower case."""

NAMES: Mapping[str, str] = {
    "af": "Afrikaans", "am": "Amharic", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian",
    "bg": "Bulgarian", "bn": "Bengali", "bs": "Bosnian", "ca": "Catalan", "ceb": "Cebuano",
    "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian",
    "fi": "Finnish", "fil": "Filipino", "fr": "French", "ga": "Irish", "gd": "Scottish Gaelic",
    "gl": "Galician", "gu": "Gujarati", "ha": "Hausa", "he": "Hebrew", "hi": "Hindi",
    "hr": "Croatian", "ht": "Haitian Creole", "hu": "Hungarian", "hy": "Armenian",
    "id": "Indonesian", "ig": "Igbo", "is": "Icelandic", "it": "Italian", "ja": "Japanese",
    "jv": "Javanese", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer", "kn": "Kannada",
    "ko": "Korean", "ku": "Kurdish", "ky": "Kyrgyz", "la": "Latin", "lb": "Luxembourgish",
    "lo": "Lao", "lt": "Lithuanian", "lv": "Latvian", "mg": "Malagasy", "mi": "Maori",
    "mk": "Macedonian", "ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi", "ms": "Malay",
    "mt": "Maltese", "my": "Burmese", "nb": "Norwegian Bokmål", "ne": "Nepali", "nl": "Dutch",
    "nn": "Norwegian Nynorsk", "no": "Norwegian", "oc": "Occitan", "pa": "Punjabi", "pl": "Polish",
    "ps": "Pashto", "pt": "Portuguese", "pt-BR": "Portuguese (Brazil)", "ro": "Romanian",
    "ru": "Russian", "rw": "Kinyarwanda", "sd": "Sindhi", "si": "Sinhala", "sk": "Slovak",
    "sl": "Slovenian", "so": "Somali", "sq": "Albanian", "sr": "Serbian", "su": "Sundanese",
    "sv": "Swedish", "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "tg": "Tajik", "th": "Thai",
    "tk": "Turkmen", "tl": "Tagalog", "tr": "Turkish", "tt": "Tatar", "ug": "Uyghur",
    "uk": "Ukrainian", "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese", "xh": "Xhosa",
    "yi": "Yiddish", "yo": "Yoruba", "zh-Hans": "Chinese", "zh-Hant": "Chinese (traditional)",
    "zu": "Zulu",
}  # fmt: skip
"""English names."""


def canonical(code: str) -> str:
    """A code as it is answered: "DE" -> "de", "zh" -> "zh-Hans", "pt_br" -> "pt-BR"."""
    parts = code.replace("_", "-").split("-")
    lower = "-".join(parts).lower()
    if lower in ALIASES:
        return ALIASES[lower]
    written = [parts[0].lower()]
    for part in parts[1:]:
        written.append({4: part.title(), 2: part.upper()}.get(len(part), part.lower()))
    return "-".join(written)


def base_of(code: str) -> str:
    """The language of a code, without script and region."""
    return code.partition("-")[0]


def name_of(code: str) -> str:
    """English name; the code itself where none is known."""
    return NAMES.get(code, code)


class Languages:
    """Pairs that the runs translate directly, and those reached through a pivot.

    pairs: (source, target), canonical codes.  pivots: languages that may stand between two runs.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], pivots: Sequence[str] = ()) -> None:
        self.pairs = frozenset(pairs)
        self._pivots = tuple(map(canonical, pivots))
        codes = {code for pair in self.pairs for code in pair}
        self.codes = tuple(sorted(codes, key=lambda code: (code != "en", name_of(code), code)))
        """All languages: English first, then by name."""
        sources = {source for source, _ in self.pairs}
        self.sources = tuple(code for code in self.codes if code in sources)

    def resolve(self, code: str) -> str | None:
        """The served language for a code: itself, its base, or its only regional variant."""
        wanted = canonical(code)
        for candidate in (wanted, canonical(base_of(wanted))):
            if candidate in self.codes:
                return candidate
        alike = [one for one in self.codes if base_of(one) == base_of(wanted)]
        return alike[0] if len(alike) == 1 else None

    def path(self, source: str, target: str) -> list[tuple[str, str]] | None:
        """Pairs to translate by, one after the other; empty for equal languages, None for none."""
        if source == target:
            return []
        if (source, target) in self.pairs:
            return [(source, target)]
        for pivot in self._pivots:
            steps = [(source, pivot), (pivot, target)]
            if self.pairs.issuperset(steps):
                return steps
        return None

    def targets(self, source: str) -> list[str]:
        """Languages that a source can be translated into, itself included."""
        return [target for target in self.codes if self.path(source, target) is not None]
