"""English names of languages, by their codes."""

from __future__ import annotations

from collections.abc import Container, Mapping

ALIASES = {"zh": "zh-Hans", "zh-cn": "zh-Hans", "zt": "zh-Hant", "zh-tw": "zh-Hant", "pb": "pt-BR"}
"""Other spellings that clients use, in lower case."""

NAMES: Mapping[str, str] = {
    "af": "Afrikaans", "am": "Amharic", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian",
    "bg": "Bulgarian", "bn": "Bengali", "bs": "Bosnian", "ca": "Catalan", "ceb": "Cebuano",
    "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "en-x-arpabet": "English (ARPAbet)",
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
    "zh-Latn-pinyin": "Chinese (Pinyin)",
    "zu": "Zulu",
}  # fmt: skip
"""English names."""


def canonical(code: str) -> str:
    """The canonical form of a code: "DE" -> "de", "zh" -> "zh-Hans", "pt_br" -> "pt-BR"."""
    parts = code.replace("_", "-").split("-")
    lower = "-".join(parts).lower()
    if lower in ALIASES:
        return ALIASES[lower]
    written = [parts[0].lower()]
    for part in parts[1:]:
        written.append({4: part.title(), 2: part.upper()}.get(len(part), part.lower()))
    return "-".join(written)


def name_of(code: str) -> str:
    """English name; the code itself where none is known."""
    return NAMES.get(code, code)


EQUAL = ({"no", "nb"}, {"jv", "jw"}, {"tl", "fil"}, {"he", "iw"}, {"id", "in"}, {"zh", "cmn"})
"""Codes of a language, of which models know a single code."""


def spoken_code(name: str, codes: Container[str]) -> str | None:
    """A code among `codes`, without regions, for a code or English name in any spelling: "en" for
    "EN", "en-US", "English", as a region does not tell how to write down speech."""
    plain = name.strip().lower().removeprefix("<|").removesuffix("|>")
    named = next((code for code, known in NAMES.items() if known.lower() == plain), plain)
    base = canonical(named).partition("-")[0]
    alike = next((group for group in EQUAL if base in group), set())
    return next((code for code in (base, *sorted(alike)) if code in codes), None)
