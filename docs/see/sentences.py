"""Make docs/book/sentences.json anew: sentences of the front page, from the models of two pages.

Needs Node, which runs the code of the page.
"""

from __future__ import annotations

import json
import runpy
import subprocess
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transduce.explain.page import ENGINE

HERE = Path(__file__).parent
SENTENCES = HERE.parent / "book" / "sentences.json"
TEXTS = {
    "paper.html": ("我是个学生。", "我爱你。", "我认识你。"),
    "zh-en.html": ("机器学习", "请给我一杯水。"),
}
SHOWN = 3  # likeliest tokens of a step
EXPLAIN = """
const { facts, texts } = JSON.parse(require("fs").readFileSync("model.json", "utf8"));
const model = new LiveModel(facts, Uint8Array.from(Buffer.from(facts.bytes, "base64")));
process.stdout.write(JSON.stringify(texts.map((text) => published(model.explain([text], {})))));
"""


def explained(page: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Explanations of the texts by the page's own code."""
    _, facts = runpy.run_path(str(HERE / "pages.py"))["content_of"](HERE / page)
    folder = resources.files("transduce.explain") / "static"
    code = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in ENGINE]
    with TemporaryDirectory() as directory:
        content = json.dumps({"facts": facts, "texts": texts})
        Path(directory, "model.json").write_text(content, encoding="utf-8")
        Path(directory, "script.js").write_text("\n".join([*code, EXPLAIN]), encoding="utf-8")
        done = subprocess.run(["node", "script.js"], cwd=directory, stdout=-1, check=True)
    explanations: list[dict[str, Any]] = json.loads(done.stdout)
    return explanations


def sentences() -> list[dict[str, Any]]:
    """Tokens of each text, and of each step the guesses and the last cross-attention's mean."""
    made = []
    for each in (one for page, texts in TEXTS.items() for one in explained(page, texts)):
        heads = [a["weights"] for a in each["attention"] if "cross" in a["name"]][-1]
        rows = [
            [sum(column) / len(heads) for column in zip(*row, strict=True)]
            for row in zip(*heads, strict=True)
        ]
        steps = [
            {
                "token": step["written"],
                "weights": [round(weight, 2) for weight in row],
                "guesses": [[token, round(p, 2)] for token, p in step["guesses"][:SHOWN]],
            }
            for step, row in zip(each["steps"], rows, strict=True)
        ]
        made.append({"source": each["sequences"]["source"], "steps": steps})
    return made


if __name__ == "__main__":
    SENTENCES.write_text(json.dumps(sentences(), ensure_ascii=False) + "\n", encoding="utf-8")
