"""Formulas in LaTeX as MathML: letters, numbers, signs, scripts, fractions and roots."""

from __future__ import annotations

import html
import re
from collections import deque

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
SCRIPTS = {"_": "msub", "^": "msup", "_^": "msubsup"}


def mathml(formula: str) -> str:
    """A formula as a `math` element.  Raises ValueError for a command that is not known here."""
    signs = deque(SIGN.findall(formula))
    return f'<math displaystyle="true">{_row(signs)}</math>'


def _row(signs: deque[str]) -> str:
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
    return f"<{SCRIPTS[marks]}>{base}{scripts}</{SCRIPTS[marks]}>" if marks else base


def _element(signs: deque[str]) -> str:
    sign = signs.popleft()
    name = sign.removeprefix("\\")
    if sign == "{":
        row = _row(signs)
        signs.popleft()
        return row
    if sign == r"\frac":
        return f"<mfrac>{_element(signs)}{_element(signs)}</mfrac>"
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
