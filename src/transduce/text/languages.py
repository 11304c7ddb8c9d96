"""Languages: their English names by code, and detection of the language of a text."""

import functools
import importlib.resources
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from transduce.errors import TransduceError, extra_module

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


_PAIRS = (
    "afr:af aka:ak amh:am arb:ar asm:as ayr:ay azj:az bak:ba bam:bm bel:be ben:bn bod:bo bos:bs "
    "bul:bg cat:ca ces:cs cym:cy dan:da deu:de dzo:dz ell:el eng:en epo:eo est:et eus:eu ewe:ee "
    "fao:fo pes:fa fij:fj fin:fi fra:fr fuv:ff gla:gd gle:ga glg:gl grn:gn guj:gu hat:ht hau:ha "
    "heb:he hin:hi hrv:hr hun:hu hye:hy ibo:ig ind:id isl:is ita:it jav:jv jpn:ja kan:kn kas:ks "
    "kat:ka knc:kr kaz:kk khm:km kik:ki kin:rw kir:ky kon:kg kor:ko kmr:ku lao:lo lvs:lv lim:li "
    "lin:ln lit:lt ltz:lb lug:lg mal:ml mar:mr mkd:mk plt:mg mlt:mt khk:mn mri:mi zsm:ms mya:my "
    "nld:nl nno:nn nob:nb npi:ne nya:ny oci:oc gaz:om ory:or pan:pa pol:pl por:pt pbt:ps quy:qu "
    "ron:ro run:rn rus:ru sag:sg san:sa sin:si slk:sk slv:sl smo:sm sna:sn snd:sd som:so sot:st "
    "spa:es als:sq srd:sc srp:sr ssw:ss sun:su swe:sv swh:sw tam:ta tat:tt tel:te tgk:tg tgl:tl "
    "tha:th tir:ti tsn:tn tso:ts tuk:tk tur:tr twi:tw uig:ug ukr:uk urd:ur uzn:uz vie:vi wol:wo "
    "xho:xh ydd:yi yor:yo zho:zh zul:zu"
)
SHORT: Mapping[str, str] = dict(pair.split(":") for pair in _PAIRS.split())
"""Codes of two letters, by those of three that models have."""
_TOKEN = re.compile(r"__([a-z]{2,3})__|([a-z]{3})_([A-Z][a-z]{3})|([a-z]{2})_([A-Z]{2})")


def languages_of(tokens: Iterable[str]) -> dict[str, str]:
    """The tokens that stand for languages, by canonical codes: "de" for "__de__" (M2M100),
    "deu_Latn" (NLLB) and "de_DE" (mBART).  Script and region stay where a language has several."""
    parts: dict[str, tuple[str, str]] = {}
    for token in tokens:
        if match := _TOKEN.fullmatch(token):
            base = match[1] or match[2] or match[4]
            parts[token] = SHORT.get(base, base), match[3] or match[5] or ""
    bases = Counter(base for base, _ in parts.values())
    return {
        canonical(f"{base}-{more}" if more and bases[base] > 1 else base): token
        for token, (base, more) in parts.items()
    }


def known_code(name: str, codes: Container[str]) -> str | None:
    """A code among `codes` for a code or English name: "de" for "deu_Latn", "de-AT" and "German";
    None without one."""
    plain = name.strip()
    named = next((code for code, known in NAMES.items() if known.lower() == plain.lower()), plain)
    base, *more = named.replace("_", "-").split("-")
    base = SHORT.get(base.lower(), base.lower())
    alike = next((group for group in EQUAL if base in group), set())
    candidates = (canonical("-".join((base, *more))), canonical(base), *sorted(alike))
    return next((code for code in candidates if code in codes), None)


_BESIDE = frozenset(
    (
        *(
            "text",
            "texts",
            "sentence",
            "sentences",
            "source",
            "target",
            "translation",
            "src",
            "tgt",
        ),
        *("lang", "language", "word", "words", "string", "original", "from", "to", "in", "out"),
    )
)
"""Words beside a language in the name of a column."""


_NASAL = re.compile("[ङञणनम]्(?=[क-ह])")
"""Half letters of Hindi that may be written as a dot."""


@functools.cache
def _named() -> Mapping[str, str]:
    """Codes by English names, own names and names in other languages, in lower case."""
    codes = {_spelt(name): code for code, name in NAMES.items()}
    file = importlib.resources.files(__package__) / "language_words.txt"
    for line in file.read_text(encoding="utf-8").splitlines():
        code, _, names = line.partition(": ")
        for name in re.split(r"(?<!\\) ", names):
            codes[_spelt(name.replace("\\ ", " "))] = canonical(code)
    return codes


def _spelt(name: str) -> str:
    """Name in lower case, and in Hindi with the one of two spellings that leaves dots and half
    letters out: हिंदी for हिन्दी, अंग्रेजी for अंग्रेज़ी."""
    plain = unicodedata.normalize("NFC", name.casefold())
    return _NASAL.sub("ं", plain.replace("\u093c", ""))


def language_of(heading: str) -> str | None:
    """Canonical code of the language that the heading of a column names, or None.

    "fr" for "French", "Français", "Französisch (Kanada)", "fr-CA", "fra", "text_fr".
    """
    plain = _spelt(" ".join(heading.split()))
    words = re.findall(r"[^\W_]+", plain)
    for name in (plain, plain.partition("(")[0].strip()):
        if name in _named():
            return _named()[name]
    if re.fullmatch(r"[a-z]{2,3}([-_][a-z]{2,4}){0,2}", plain):
        base = plain.replace("_", "-").partition("-")[0]
        if SHORT.get(base, base) in NAMES or canonical(base) in NAMES:
            regions = canonical(plain)
            return regions if regions in NAMES else canonical(SHORT.get(base, base))
    codes = [code for word in words if (code := _named().get(word) or _short(word))]
    others = [word for word in words if not (_named().get(word) or _short(word))]
    if len(codes) == 1 and others and all(word in _BESIDE for word in others):
        return codes[0]
    return None


def _short(word: str) -> str | None:
    """Code of a word that is a code of two or three letters."""
    base = SHORT.get(word, word)
    code = canonical(base) if re.fullmatch("[a-z]{2,3}", base) else ""
    return code if code in NAMES else None


MAX_CHARACTERS = 4000
"""Characters of a text used for detection."""

TRADITIONAL = frozenset(
    "這個們來說國時會對過學後發還沒開關點見話問間東車電長門馬鳥魚風飛語讀書寫買賣愛聽聲兒"
    "從當將與為無樂體頭題應讓認識請謝錯錢銀鐵難雖離雲葉號處萬歲歡氣漢溫滿熱產畫盡種現習專"
)
SIMPLIFIED = frozenset(
    "这个们来说国时会对过学后发还没开关点见话问间东车电长门马鸟鱼风飞语读书写买卖爱听声儿"
    "从当将与为无乐体头题应让认识请谢错钱银铁难虽离云叶号处万岁欢气汉温满热产画尽种现习专"
)
"""Frequent characters with two forms; characters with one form count for neither."""


class Detected(NamedTuple):
    """A language and its confidence in percent."""

    language: str
    confidence: float


class Detector:
    """Identifies the language of texts among some, best first.

    Confidence is the probability among all languages that the model of py3langid knows: low
    for a text in another language.  The model is loaded in a thread of its own; `ready` is false
    until it is there.  A single language needs no model, and has the confidence 0.
    """

    def __init__(self, codes: Sequence[str]) -> None:
        self.codes = tuple(codes)
        self._identifier: Any = None
        self._known: dict[str, list[str]] = {}
        self.ready = len(self.codes) < 2

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Begin to load the model, where it is needed.

        failed: called in the thread with an error.
        """

        def begin() -> None:
            try:
                self.load()
            except BaseException as error:
                failed(error)

        if not self.ready:
            threading.Thread(target=begin, name="serve-detection", daemon=True).start()

    def load(self) -> None:
        """Load the model now, where it is needed."""
        langid = extra_module("py3langid.langid", "language detection", "serve", TransduceError)
        identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
        for code in self.codes:
            if code.partition("-")[0] in identifier.labels:
                self._known.setdefault(code.partition("-")[0], []).append(code)
        if self._known:
            self._identifier = identifier
        self.ready = True

    def detect(self, text: str) -> list[Detected]:
        """Languages of a text with their confidence, best first; 0 for a text without letters."""
        text = text[:MAX_CHARACTERS]
        if not self.codes:
            return []
        if self._identifier is None or not any(map(str.isalpha, text)):
            return [Detected(self.codes[0], 0.0)]
        languages = [
            Detected(_variant(self._known[base], text), round(100 * float(share), 1))
            for base, share in self._identifier.rank(text)
            if base in self._known
        ]
        return [best for best in languages if best.confidence > 0] or languages[:1]


PARTS, DETECTED, SURE = 3, 2_000, 90.0
"""Parts of some texts whose languages must agree, their characters, and confidence in percent."""


@functools.cache
def loaded_detector() -> Detector:
    """Detector of all languages, loaded once.  Raises TransduceError without its extra."""
    detector = Detector(tuple(NAMES))
    detector.load()
    return detector


def languages_of_texts(columns: Sequence[Sequence[str]]) -> list[str]:
    """Code of the language of each column of texts by detection; empty where it is not sure, or
    without the extra of detection."""
    try:
        detector = loaded_detector()
    except TransduceError:
        return [""] * len(columns)
    codes = []
    for texts in columns:
        parts = [" ".join(texts[part::PARTS])[:DETECTED] for part in range(PARTS)]
        best = {detector.detect(text)[0] for text in parts}
        sure = len({code for code, _ in best}) == 1 and min(c for _, c in best) >= SURE
        codes.append(next(iter(best))[0] if sure else "")
    return codes


def _variant(codes: Sequence[str], text: str) -> str:
    """Code of a language: the script of Chinese by its characters, else the first."""
    if len(codes) == 1:
        return codes[0]
    traditional = sum(character in TRADITIONAL for character in text)
    simplified = sum(character in SIMPLIFIED for character in text)
    script = "zh-Hant" if traditional > simplified else "zh-Hans"
    return script if script in codes else codes[0]
