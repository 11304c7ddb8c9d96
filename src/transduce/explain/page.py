"""Explanations as one self-contained HTML page, formulas as MathML."""

import base64
import html
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from transduce.explain.parts import Array, Attention, HeadVectors, Stack, Vectors

SIGN = re.compile(r"\\[A-Za-z]+|\d+(?:\.\d+)?|\S")
LETTERS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "epsilon": "ε",
    "mu": "μ",
    "sigma": "σ",
    "top": "⊤",
}
OPERATORS = {"cdot": "·", "circ": "∘", "ldots": "…", "sum": "∑"}
FUNCTIONS = ("log", "max")
MATHML_SCRIPTS = {"_": "msub", "^": "msup", "_^": "msubsup"}


def mathml(formula: str) -> str:
    """A formula as a `math` element.  Raises ValueError for a command that is not known here."""
    signs = deque(SIGN.findall(formula))
    return f'<math displaystyle="true">{_page_row(signs)}</math>'


def _page_row(signs: deque[str]) -> str:
    """All up to a closing brace."""
    parts = []
    while signs and signs[0] != "}":
        parts.append(_scripted(signs))
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"


def _scripted(signs: deque[str]) -> str:
    """An element with what stands below and above it."""
    base, marks, scripts = _element(signs), "", ""
    while signs and signs[0] in ("_", "^"):
        marks += signs.popleft()
        scripts += _element(signs)
    return f"<{MATHML_SCRIPTS[marks]}>{base}{scripts}</{MATHML_SCRIPTS[marks]}>" if marks else base


def _element(signs: deque[str]) -> str:
    sign = signs.popleft()
    name = sign.removeprefix("\\")
    if sign == "{":
        row = _page_row(signs)
        signs.popleft()
        return row
    if sign == r"\frac":
        return f"<mfrac>{_element(signs)}{_element(signs)}</mfrac>"
    if sign == r"\hat":
        return f'<mover accent="true">{_element(signs)}<mo>^</mo></mover>'
    if sign == r"\sqrt":
        return f"<msqrt>{_element(signs)}</msqrt>"
    if sign in (r"\left", r"\right"):
        return f"<mo>{signs.popleft()}</mo>"
    if sign in ("(", ")"):
        return f'<mo stretchy="false">{sign}</mo>'
    if sign == r"\operatorname":
        signs.popleft()
        letters = iter(signs.popleft, "}")
        return f"<mi>{''.join(letters)}</mi>"
    if name in LETTERS or name in FUNCTIONS or (name == sign and name.isalpha()):
        return f"<mi>{LETTERS.get(name, name)}</mi>"
    if name == sign or name in OPERATORS:
        tag = "mn" if name[0].isdigit() else "mo"
        return f"<{tag}>{html.escape(OPERATORS.get(name, name)).replace('-', '−')}</{tag}>"
    raise ValueError(f"{sign} has no MathML here")


MAX_WEIGHTS = 80_000
"""Attention weights in a page, one byte each; layers in between are left out beyond it."""
MAX_NUMBERS = 24_000
"""Numbers of a head for the work by hand, two bytes each; positions stay in beyond it."""
SCRIPTS = (
    "state",
    "pictures",
    "credits",
    "beside",
    "steps",
    "film",
    "heads",
    "search",
    "layers",
    "hand",
    "columns",
    "figure",
    "answer",
    "page",
)
"""Files that make the page's script, in this order; "film" only for pages with a film."""
ENGINE = (
    "forward",
    "stacks",
    "random",
    "tokenizers",
    "imported",
    "decode",
    "patterns",
    "encoders",
    "patches",
    "credit",
    "explained",
)
"""Files of the model that computes in a page, which stand there as they are written."""
LIVE_SCRIPTS = (
    *SCRIPTS[:-1],
    "vectors",
    "states",
    "image",
    "live",
    "bar",
    "why",
    "laboratory",
    "pairs",
    "guide",
    SCRIPTS[-1],
)
"""The same of a page that computes."""
COMPUTED: dict[str, Any] = {
    **dict.fromkeys(("attention", "by_hand", "credit", "hidden", "labels", "layers", "steps"), ()),
    "search": None,
}
"""Parts of an explanation that a page computes itself."""
SHAPES = re.compile(
    r"(target_)?front_end|head|(encoder|decoder)"
    r"(\.layers\.0\.(self_attention|cross_attention|feed_forward(\.inner)?))?"
)
"""Modules whose shapes the page draws."""
FRAME = (
    '<iframe srcdoc="{page}" title="transduce explain" '
    'style="width:100%;height:46rem;border:0"></iframe>'
)


def page_of(
    explanations: Sequence[Mapping[str, Any]], model: Mapping[str, Any] | None = None
) -> str:
    """One page for all of them, each as `Explanation.packed` gives it; one film for each run.

    model: as `LiveModel.packed` gives it, to compute in the page.
    """
    shown = _with_one_film(explanations)
    texts = [_words("words.json")]
    sheets = ["base.css", "page.css", "figure.css"]
    if model is not None:
        shown = [{**explanation, **COMPUTED} for explanation in shown]
        texts.append(_words("live_words.json"))
        sheets.append("live.css")
    words = {language: {**texts[0][language], **texts[-1][language]} for language in texts[0]}
    page = bare("transduce.explain", "page.html")
    style = "\n".join(bare("transduce.explain", sheet) for sheet in sheets)
    filmed = any(explanation["film"] is not None for explanation in shown)
    scripts = SCRIPTS if model is None else LIVE_SCRIPTS
    names = (name for name in scripts if filmed or name != "film")
    script = "\n".join(bare("transduce.explain", f"{name}.js") for name in names)
    # In this order, so that no text of the data is ever taken for a place to fill.
    page = page.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)
    page = page.replace("/*WORDS*/", plain_json(words))
    page = page.replace("/*FORMULAS*/", _formulas(is_live=model is not None))
    before, after = page.split("/*DATA*/")
    middle, after = after.split("/*MODEL*/")
    return before + plain_json(shown) + middle + ("" if model is None else _engine(model)) + after


def engine_scripts(model: Mapping[str, Any]) -> Iterator[str]:
    """Names of the files that compute with a model: "imported" only for such a tokenizer."""
    imported = any(tokenizer["kind"] == "hugging-face" for tokenizer in model["tokenizers"])
    return (name for name in ENGINE if imported or name != "imported")


def _engine(model: Mapping[str, Any]) -> str:
    """Elements of a model and of the code that computes with it."""
    code = "\n".join(static("transduce.explain", f"{name}.js") for name in engine_scripts(model))
    data = f'<script id="model" type="application/json">{plain_json(model)}</script>\n'
    return f"{data}<script>\n{code}</script>\n"


def _with_one_film(explanations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The explanations, the film of a run with the first of its explanations only."""
    filmed: set[str] = set()
    shown = []
    for explanation in explanations:
        shown.append({**explanation, "film": None} if explanation["run"] in filmed else explanation)
        filmed.add(explanation["run"])
    return shown


def bare(package: str, name: str) -> str:
    """A file of a package's directory `static` without indentation and lines of comment."""
    lines = (line.strip() for line in static(package, name).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("// "))


def _words(name: str) -> dict[str, dict[str, str]]:
    """Texts of the page, by language and key; or formulas, by kind of page and name."""
    words: dict[str, dict[str, str]] = json.loads(static("transduce.explain", name))
    return words


def _formulas(is_live: bool) -> str:
    """Elements with the formulas of a page, for `formula` of static/pictures.js."""
    kinds = _words("formulas.json")
    formulas = kinds["page"] | kinds["live"] if is_live else kinds["page"]
    return "".join(
        f'<template id="formula-{name}">{mathml(formula)}</template>'
        for name, formula in formulas.items()
    )


def static(package: str, name: str) -> str:
    """A file of a package's directory `static`."""
    return (resources.files(package) / "static" / name).read_text(encoding="utf-8")


def frame_of(page: str) -> str:
    """A page inside a frame of a notebook."""
    return FRAME.format(page=html.escape(page))


def plain_json(data: Any) -> str:
    """JSON that cannot end the script element that it stands in, nor half a character."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return safe.encode("utf-8", "replace").decode("utf-8")


def packed(
    data: dict[str, Any],
    attention: Sequence[Attention],
    by_hand: Sequence[HeadVectors],
    stacks: Mapping[str, Stack],
    vectors: Mapping[str, Array],
) -> dict[str, Any]:
    """The dictionary of an explanation without its arrays, and these as text of few bytes.

    data: the dictionary, changed in place.  attention: weights of all layers.  by_hand: heads
    computed by hand.  stacks: by name.  vectors: by name.
    """
    shown = shown_attention(attention, by_hand, MAX_WEIGHTS)
    numbers = {number: index for index, number in enumerate(shown)}
    data["attention"] = [_attention(attention[number]) for number in shown]
    data["attentionLeftOut"] = len(attention) - len(shown)
    data["by_hand"] = [_head(head, numbers[head.attention]) for head in by_hand]
    if data["search"] is not None:
        data["search"]["nodes"] = [list(node.values()) for node in data["search"]["nodes"]]
    data["shapes"] = {k: v for k, v in data["shapes"].items() if SHAPES.fullmatch(k)}
    for name, stack in stacks.items():
        data["stacks"][name]["waves"] = None if stack.waves is None else _small(stack.waves)
    data["vectors"] = {name: _half(vector) for name, vector in vectors.items()}
    return data


def shown_attention(
    attention: Sequence[Attention], by_hand: Sequence[HeadVectors], room: int
) -> list[int]:
    """Numbers of the attentions that are shown: of each kind as many layers as have room.

    attention: weights of all layers.  by_hand: heads computed by hand, whose layers are always
    shown.  room: weights of all together.

    They lie evenly between the first and the last; a layer of the work by hand comes in the place
    of the nearest.
    """
    kinds: dict[tuple[str, str], list[int]] = {}
    for number, layer in enumerate(attention):
        kinds.setdefault((layer.rows, layer.columns), []).append(number)
    chosen: set[int] = set()
    for numbers in kinds.values():
        size = max(visible_weights(attention[numbers[0]]).size, 1)
        count = min(max(1, room // len(kinds) // size), len(numbers))
        positions = np.linspace(len(numbers) - 1, 0, count).round().astype(int)
        shown = {numbers[position] for position in positions}
        for needed in {head.attention for head in by_hand} & set(numbers) - shown:
            shown.remove(min(shown, key=lambda number: abs(number - needed)))
            shown.add(needed)
        chosen |= shown
    return sorted(chosen)


def visible_weights(attention: Attention) -> Array:
    """The weights (h, …) that are not hidden: of a causal square its lower triangle, by rows."""
    _, t, s = attention.weights.shape
    if attention.causal and t == s:
        return attention.weights[:, *np.tril_indices(t)]
    return attention.weights


def place_of(attention: Attention) -> dict[str, Any]:
    """Name, sequences and shape of an attention, without its weights."""
    return {
        "name": attention.name,
        "rows": attention.rows,
        "columns": attention.columns,
        "causal": attention.causal,
        "shape": attention.weights.shape,
    }


def _attention(attention: Attention) -> dict[str, Any]:
    return {
        **place_of(attention),
        "patterns": [[name, round(float(value), 2)] for name, value in attention.patterns],
        "weights": _text((visible_weights(attention) * 255).round().clip(0, 255).astype(np.uint8)),
    }


def _head(head: HeadVectors, attention: int) -> dict[str, Any]:
    other = head.without_positions
    vectors = head.vectors
    if 2 * (vectors.query.size + vectors.key.size + vectors.value.size) > MAX_NUMBERS:
        other = None
    return {
        "attention": attention,
        "head": head.head,
        **_vectors(head.vectors),
        "bias": None if head.bias is None else _half(head.bias),
        "bare": None if other is None else _vectors(other),
    }


def _vectors(vectors: Vectors) -> dict[str, Any]:
    return {"query": _half(vectors.query), "key": _half(vectors.key), "value": _half(vectors.value)}


def _half(array: Array) -> dict[str, Any]:
    """Numbers of 16 bits; greater numbers become the greatest that these hold."""
    greatest = float(np.finfo(np.float16).max)
    return {"shape": array.shape, "half": _text(array.clip(-greatest, greatest).astype("<f2"))}


def _small(array: Array) -> dict[str, Any]:
    """Numbers of 8 bits, as shares of the greatest."""
    greatest = float(np.abs(array).max()) if array.size else 0.0
    scaled = array / greatest * 127 if greatest else array
    return {
        "shape": array.shape,
        "byte": _text((scaled.round() + 128).astype(np.uint8)),
        "greatest": greatest,
    }


def _text(array: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
