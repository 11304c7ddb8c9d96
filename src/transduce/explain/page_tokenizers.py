"""Tokenizers in a page: facts for `static/tokenizers.js`, and for `imported.js` of those of the
library `tokenizers`."""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from transduce.errors import SettingError
from transduce.text import SPECIAL_TOKENS, HuggingFaceTokenizer, MarianTokenizer, Tokenizer
from transduce.text.hugging_face import definition_parts, model_kind
from transduce.text.imported import ImportedTokenizer, charsmap_replacements, piece_table
from transduce.text.subword import SubwordTokenizer
from transduce.text.tokenizer import ListedTokenizer

STEPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "normalizer": {
        **dict.fromkeys(("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"), ()),
        "Strip": ("strip_left", "strip_right"),
        "Prepend": ("prepend",),
        "Replace": ("pattern", "content"),
        "Precompiled": ("precompiled_charsmap",),
        "BertNormalizer": (
            *("clean_text", "handle_chinese_chars"),
            *("strip_accents", "lowercase"),
        ),
    },
    "pre_tokenizer": {
        "BertPreTokenizer": (),
        "ByteLevel": ("add_prefix_space", "trim_offsets", "use_regex"),
        "Metaspace": ("replacement", "prepend_scheme", "split"),
        "WhitespaceSplit": (),
    },
    "decoder": {
        "ByteLevel": ("add_prefix_space", "trim_offsets", "use_regex"),
        "Metaspace": ("replacement", "prepend_scheme", "split"),
        "Replace": ("pattern", "content"),
        "WordPiece": ("prefix", "cleanup"),
    },
}
"""Steps of the library that a page follows, with their settings."""
EXPRESSIONS = (" {2,}",)
"""Regular expressions that JavaScript reads as the library does."""
MODELS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "BPE": {
        **dict.fromkeys(("continuing_subword_prefix", "end_of_word_suffix"), (None, "")),
        "dropout": (None, 0.0),
    },
    "Unigram": {"byte_fallback": (None, False)},
    "WordLevel": {},
    "WordPiece": {},
}
"""Models of the library, with those values of settings that a page follows."""


def tokenizer_facts(tokenizer: Tokenizer) -> dict[str, Any]:
    """The whole of a tokenizer.  Raises SettingError, naming all steps that a page lacks."""
    normalizer = tokenizer.normalizer
    form = {"normalization": normalizer.normalization, "lowercase": normalizer.lowercase}
    match tokenizer:
        case ListedTokenizer():
            return {"kind": tokenizer.kind, **form, "pieces": tokenizer.units}
        case SubwordTokenizer():
            scores = None
            if tokenizer.kind == "unigram":  # nine digits hold a float32
                scores = [float(f"{score:.9g}") for score in tokenizer.scores()]
            pieces = tokenizer.tokens(range(tokenizer.size))
            return {"kind": tokenizer.kind, **form, "pieces": pieces, "scores": scores}
        case HuggingFaceTokenizer():
            return _imported_facts(tokenizer) | _hugging_face_facts(tokenizer)
        case MarianTokenizer():
            return _imported_facts(tokenizer) | _marian_facts(tokenizer)
    kind = getattr(tokenizer, "kind", type(tokenizer).__name__)
    raise SettingError(f"a page has no tokenizers of kind {kind!r}")


def _imported_facts(tokenizer: ImportedTokenizer) -> dict[str, Any]:
    return {
        "opening": tokenizer.opening,
        "closing": tokenizer.closing,
        "marks": sorted(tokenizer.numbering.marks.values()),
        "endless": not tokenizer.ends_sources,
        "between": tokenizer.marks_between,
    }


def _hugging_face_facts(tokenizer: HuggingFaceTokenizer) -> dict[str, Any]:
    definition, numbering = tokenizer.definition, tokenizer.numbering
    if missing := [*_missing(definition)]:
        raise SettingError(f"a page has no {', '.join(missing)} of this tokenizer")
    model, added = definition["model"], definition["added_tokens"]
    merges = [m.split(" ") if isinstance(m, str) else m for m in model.get("merges", ())]
    plain = [t for t in added if not t["special"] and t["content"]]
    exact = [[t["content"], t["id"]] for t in plain if not t["normalized"]]
    normalized = [
        [tokenizer.normalized_token(t["content"]), t["id"]] for t in plain if t["normalized"]
    ]
    return {
        "kind": tokenizer.kind,
        "normalization": "none",
        "lowercase": tokenizer.lower_case,
        "normalizer": [_step(part) for part in _steps(definition.get("normalizer"))],
        "pre_tokenizer": [*_steps(definition.get("pre_tokenizer"))],
        "decoder": definition.get("decoder") and [*_steps(definition.get("decoder"))],
        "model": {**model, "type": model_kind(model), "merges": merges},
        "added": [_longest_first(exact), _longest_first(normalized)],
        "names": [[tokenizer.piece_there(token["id"]), token["id"]] for token in added],
        "size": numbering.size,
        "specials": [-1 if token is None else token for token in numbering.specials],
        "mask": numbering.mask,
    }


def _marian_facts(tokenizer: MarianTokenizer) -> dict[str, Any]:
    """A SentencePiece model with its own normalisation.  others: its pieces without an id here."""
    if tokenizer.added:
        named = ", ".join(repr(token.content) for token in tokenizer.added)
        raise SettingError(f"a page has no added tokens of a Marian tokenizer ({named})")
    table = piece_table(tokenizer.sentencepiece)
    scores = {piece: float(f"{score:.9g}") for piece, score in table.scores.items()}
    pieces = tokenizer.tokens(range(tokenizer.size))
    known = {*pieces[len(SPECIAL_TOKENS) :]}
    return {
        "kind": "bpe" if tokenizer.is_bpe else "unigram",
        "normalization": "none",
        "lowercase": False,
        "pieces": pieces,
        "scores": [scores.get(piece) for piece in pieces],
        "others": {piece: score for piece, score in scores.items() if piece not in known},
        "replacements": table.replacements,
        "dummy_prefix": table.dummy_prefix,
        "single_blanks": table.single_blanks,
    }


def _missing(definition: Mapping[str, Any]) -> Iterator[str]:
    """Names of steps, models and tokens that a page does not follow."""
    for stage, known in STEPS.items():
        parts = [*_steps(definition.get(stage))]
        for part in parts:
            settings = known.get(part["type"])
            odd = settings is None or not part.keys() <= {"type", *settings}
            expression = (part.get("pattern") or {}).get("Regex", EXPRESSIONS[0])
            scheme = part.get("prepend_scheme", "always")
            if odd or expression not in EXPRESSIONS or scheme not in ("always", "never"):
                yield f"{stage} {json.dumps(part, ensure_ascii=False):.100}"
    model = definition["model"]
    kind = model_kind(model)
    if kind not in MODELS:
        yield f"model {kind}"
    for setting, values in MODELS.get(kind, {}).items():
        if model.get(setting) not in values:
            yield f"model.{setting} = {model[setting]!r}"
    for token in definition["added_tokens"]:
        flags = [flag for flag in ("single_word", "lstrip", "rstrip") if token[flag]]
        if flags and not token["special"]:
            yield f"added token {token['content']!r} with {', '.join(flags)}"


def _steps(stage: Any) -> Iterator[dict[str, Any]]:
    return (part for part in definition_parts(stage) if part["type"] != "Sequence")


def _step(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] != "Precompiled":
        return part
    charsmap = base64.b64decode(part["precompiled_charsmap"])
    return {"type": "Precompiled", "replacements": charsmap_replacements(charsmap)}


def _longest_first(tokens: list[list[Any]]) -> list[list[Any]]:
    return sorted(tokens, key=lambda token: -len(token[0]))
