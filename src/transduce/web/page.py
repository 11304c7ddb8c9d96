"""A page that translates by itself: model, engine and tokenizers in one HTML file."""

from __future__ import annotations

import base64
import json
from typing import Any

from transduce.engine.build import library_path
from transduce.engine.instructions import WASM
from transduce.explain.live import Precision
from transduce.explain.page import plain_json, static
from transduce.tasks.translation.translator import Translator
from transduce.web.model import model_file, parameters

SCRIPTS = (
    ("transduce.explain", "tokenizers.js"),
    ("transduce.web", "translator.js"),
    ("transduce.web", "page.js"),
)
"""Files that make the script of the page, in this order."""
SHEETS = (("transduce.explain", "base.css"), ("transduce.web", "page.css"))
"""The same of its style."""


def offline_page(translator: Translator, name: str, precision: Precision) -> str:
    """The page of a translator.  name: of the run.

    Raises SettingError for a model that the engine lacks, and without the compiled engine.
    """
    file = model_file(translator, name, precision)
    relaxed, plain = (library_path(instructions).read_bytes() for instructions in WASM)
    facts: dict[str, Any] = {
        "run": name,
        "precision": precision,
        "parameters": parameters(translator),
        "words": json.loads(static("transduce.web", "words.json")),
        "file": _text(file),
        "relaxed": _text(relaxed),
        "plain": _text(plain),
    }
    page = static("transduce.web", "page.html")
    page = page.replace("/*STYLE*/", "".join(static(*sheet) for sheet in SHEETS))
    page = page.replace("/*SCRIPT*/", "".join(static(*script) for script in SCRIPTS))
    before, after = page.split("/*MODEL*/")
    size = len((before + after).encode()) + len(plain_json(facts).encode())
    return before + plain_json({**facts, "bytes": size}) + after


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
