"""Formulas of the explain page, typeset when the page is made."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from importlib import resources

import pytest

from transduce.explain.page import mathml


def test_scripts_fractions_roots_and_signs() -> None:
    assert mathml(r"\frac{q_i - 1}{\sqrt{d}}") == (
        '<math displaystyle="true"><mfrac><mrow><msub><mi>q</mi><mi>i</mi></msub><mo>−</mo>'
        "<mn>1</mn></mrow><msqrt><mi>d</mi></msqrt></mfrac></math>"
    )
    assert mathml(r"\sum_j^2 < \operatorname{max}") == (
        '<math displaystyle="true"><mrow><msubsup><mo>∑</mo><mi>j</mi><mn>2</mn></msubsup>'
        "<mo>&lt;</mo><mi>max</mi></mrow></math>"
    )


def test_an_unknown_command_is_an_error() -> None:
    with pytest.raises(ValueError, match="begin"):
        mathml(r"\begin{matrix}")


def test_every_formula_of_the_page_is_well_formed() -> None:
    file = resources.files("transduce.explain") / "static" / "formulas.json"
    for formulas in json.loads(file.read_text(encoding="utf-8")).values():
        for formula in formulas.values():
            assert ET.fromstring(mathml(formula)).tag == "math"
