"""A page that learns two columns in a browser, and saves itself as a page that translates."""

import json
from typing import Any

from transduce.decoding.options import DecodingOptions
from transduce.engine.build import LEARNER, WASM, InstructionSet, library_path
from transduce.explain.page import bare, plain_json, static
from transduce.making import data as rules
from transduce.making.columns import IDS, SOURCE_NAMES, TARGET_NAMES
from transduce.making.plan import LETTERS, TEXT_OF_A_PIECE, measured_table
from transduce.web.page import SCRIPTS, SHEETS, packed, search_facts

DECODING = DecodingOptions(beam_size=4, length_penalty="mean")
"""Search of the models that a page trains, as of `transduce make`."""
KINDS = ("spelling", "translation")
LONGEST = 256
"""Characters of a cell, at most; longer ones are left out."""
PACE = 3_000
"""Target tokens a second of the first candidate, about, for the choice of a size."""
SAMPLES = 2.5
"""Seconds between two looks at held-out rows."""
SOURCES = {
    "tokenizers": SCRIPTS[0],
    "translator": SCRIPTS[2],
    "worker": SCRIPTS[3],
    "page": ("transduce.web", "page.js"),
    "base": SHEETS[0],
    "style": SHEETS[1],
    "html": ("transduce.web", "page.html"),
    "words": ("transduce.web", "words.json"),
    **{
        name: ("transduce.web", f"{name}.js")
        for name in ("learner", "table", "saving", "study", "lesson")
    },
}
"""Files inside the page: scripts of its worker, and those of the page that it saves."""
WORKER = ("tokenizers", "translator", "learner", "table", "saving", "study", "lesson")
"""Scripts of the worker, in this order."""
RULES = ("SHORT", "ONE_WORD", "MAX_SYMBOLS", "LEAST_PAIRS", "TEST_PAIRS")
"""Limits of `transduce make` that the worker follows."""
LOOKS = (SHEETS[0], ("transduce.web", "learner.css"))
BEHAVIOUR = (("transduce.web", "learner_page.js"), ("transduce.web", "dials.js"))


def learner_page() -> str:
    """The page, with trainer, engine and everything that it saves.

    Raises SettingError without the compiled modules.
    """
    facts = {
        "words": packed(static("transduce.web", "learner_words.json").encode()),
        "sources": packed(json.dumps(sources()).encode()),
        "scripts": WORKER,
        **worker_facts(),
    }
    page = static("transduce.web", "learner.html")
    page = page.replace("/*STYLE*/", "\n".join(bare(*sheet) for sheet in LOOKS))
    page = page.replace("/*SCRIPT*/", "\n".join(bare(*script) for script in BEHAVIOUR))
    return page.replace("/*PAGE*/", plain_json(facts))


def sources() -> dict[str, str]:
    """Texts of `SOURCES`."""
    return {name: static(*file) for name, file in SOURCES.items()}


def worker_facts() -> dict[str, Any]:
    """Constant facts of the worker: modules, rules of `transduce make`, search of its models."""
    return {
        **_modules(WASM),
        "learner": _modules(LEARNER),
        "facts": search_facts(DECODING),
        "decoding": {"beam_size": DECODING.beam_size, "length_penalty": DECODING.length_penalty},
        "columns": {"source": SOURCE_NAMES, "target": TARGET_NAMES, "ids": sorted(IDS)},
        "limits": {
            **{name: getattr(rules, name) for name in RULES},
            "LETTERS": LETTERS,
            "TEXT_OF_A_PIECE": TEXT_OF_A_PIECE,
            "LONGEST": LONGEST,
            "PACE": PACE,
            "SAMPLES": SAMPLES,
        },
        "table": _table(),
    }


def _modules(pair: tuple[InstructionSet, ...]) -> dict[str, str]:
    """Modules with relaxed vectors and without them."""
    relaxed, plain = (packed(library_path(each).read_bytes()) for each in pair)
    return {"relaxed": relaxed, "plain": plain}


def _table() -> dict[str, Any]:
    """Transformers of the table of `transduce make`, and their measured rows."""
    table = measured_table()
    candidates = {
        kind: {name: c for name, c in table["candidates"][kind].items() if "n_heads" in c}
        for kind in KINDS
    }
    fields = ("kind", "set", "pairs", "work", "candidate", "score")
    rows = [row for row in table["measured"] if row["candidate"] in candidates.get(row["kind"], {})]
    return {"candidates": candidates, "measured": [[row[f] for f in fields] for row in rows]}
