"""Pictures in Chinese: the words of each text of an SVG, translated; formulas and tokens stay."""

from __future__ import annotations

import json
import re
from pathlib import Path

PHRASES: dict[str, str] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
PATTERNS = (
    (r"^layer (\d+), head (\d+): ", r"第 \1 层第 \2 个头："),
    (r"^layer (\d+)$", r"第 \1 层"),
    (r"^step ([\d,]+)$", r"第 \1 步"),
    (r"(\S+) at step ([\d,]+)", r"第 \2 步 \1"),
    (r"position 0 … (\d+)", r"位置 0 … \1"),
    (r"^width (\d)$", r"宽 \1"),
    (r"softmax of (\d+) scores", r"\1 个分数的 softmax"),
    (r"^scores q·k$", "分数 q·k"),
    (r"^next (?=[\d.]+$)", "后一个 "),
    (r", d_k (\d+)$", r"，d_k \1"),
    (r"^distance$", "距离"),
    (r"^positions$", "位置数"),
    (r"^fused$", "融合内核"),
)
TEXT = re.compile(r"(?<=>)[^<>]+(?=</(?:text|title)>)")
PHRASE = re.compile("|".join(map(re.escape, sorted(PHRASES, key=len, reverse=True))))


def in_chinese(svg: str) -> str:
    """The picture with its words in Chinese."""

    def translated(text: re.Match[str]) -> str:
        words = text[0]
        for pattern, replacement in PATTERNS:
            words = re.sub(pattern, replacement, words)
        return PHRASE.sub(lambda phrase: PHRASES[phrase[0]], words)

    return TEXT.sub(translated, svg.replace("&amp;", "&")).replace(" & ", " &amp; ")
