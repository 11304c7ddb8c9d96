"""Numbers of the chapters for beginners, computed with NumPy, stand in both languages."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.live_page import needs_node
from helpers.node import run_node

BOOK = Path(__file__).parents[2] / "docs" / "book"
Array = NDArray[np.float64]


def softmax(scores: Any, temperature: float = 1.0) -> Array:
    powers = np.exp(np.asarray(scores, float) / temperature)
    return powers / powers.sum(-1, keepdims=True)


def four(*numbers: float) -> list[str]:
    return [f"{number:.4f}" for number in numbers]


def descent(w: float, rate: float, steps: int) -> float:
    """Gradient descent on (2 w − 6)²."""
    for _ in range(steps):
        w -= rate * 4 * (2 * w - 6)
    return w


Q, KEYS = np.array([2.0, 1.0]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
STUDENT = [0.8865, 0.3950, 0.9364, 0.8457, 0.7624, 0.8923, 0.9215]

STATEMENTS: dict[str, list[list[str]]] = {
    "00-numbers": [
        four(*softmax([1, 0, 1])),
        [f"{math.e:.3f}", f"{np.exp([1, 0, 1]).sum():.3f}"],
        four(math.log(12)),
        [f"= {math.hypot(3, 4):g}"],
        [f"= {np.dot([1, 0, 2], [3, 5, -1])}"],
        [f"{descent(0, 0.1, 1):g}", f"{descent(0, 0.1, 2):g}", f"= −{-4 * (2 * 0 - 6)}"],
        [f"= −{-(1 - 8 * 0.3):.1f}"],
        [f"{power:.3f}" for power in np.exp([2, 1, 3])] + [f"{np.exp([2, 1, 3]).sum():.3f}"],
        four(*softmax(KEYS @ Q)),
        four(-math.log(0.5), -np.log([0.9, 0.9, 0.1]).mean(), -math.log(0.1)),
        four(*softmax([2, 0]), *softmax([2, 0], 2)),
        ["0.395", "0.355", f"{1 - 0.395 - 0.355:.2f}"],
    ],
}


@pytest.mark.parametrize("chapter", STATEMENTS)
@pytest.mark.parametrize("suffix", ["", ".zh"])
def test_numbers_stand_in_the_chapter(chapter: str, suffix: str) -> None:
    text = (BOOK / f"{chapter}{suffix}.md").read_text(encoding="utf-8")
    missing = [
        number for numbers in STATEMENTS[chapter] for number in numbers if number not in text
    ]
    assert missing == []


def test_learning_rates_do_as_the_chapter_says() -> None:
    assert descent(0, 0.125, 1) == 3
    assert [descent(0, 0.25, steps) for steps in range(4)] == [0, 6, 0, 6]
    assert abs(descent(0, 0.3, 20) - 3) > 1000
    assert abs(descent(0, 0.1, 2) - 3) == pytest.approx(abs(descent(0, 0.1, 1) - 3) / 5)


NUMBERS = """
const { scores, q, k, probabilities, w } = JSON.parse(process.argv[2]);
process.stdout.write(JSON.stringify({
  softmax: softmax(scores), warm: softmax(scores, 2.5), dot: dot(q, k), length: length(q),
  loss: meanLoss(probabilities), next: stepped(w, [2, 6], 0.1), slope: slopeOf(w, [2, 6]),
}));
"""


@needs_node
@pytest.mark.system
def test_the_pieces_compute_as_numpy_does(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    code = (BOOK / "numbers.js").read_text(encoding="utf-8") + NUMBERS
    for scale in (1.0, 30.0, 900.0):  # powers of the last are infinite
        scores, q, k = (draw.normal(0, scale, 6) for _ in range(3))
        probabilities, w = draw.uniform(0.01, 1, 7), draw.normal()
        case = {"scores": scores, "q": q, "k": k, "probabilities": probabilities}
        given = json.dumps({name: list(each) for name, each in case.items()} | {"w": w})
        shown = run_node(tmp_path, code, given)
        assert np.allclose(shown["softmax"], softmax(scores - scores.max()), atol=1e-12)
        assert np.allclose(shown["warm"], softmax(scores - scores.max(), 2.5), atol=1e-12)
        assert np.allclose([shown["dot"], shown["length"]], [q @ k, np.linalg.norm(q)])
        assert np.allclose(shown["loss"], -np.log(probabilities).mean())
        assert np.allclose([shown["slope"], shown["next"]], [8 * w - 24, descent(w, 0.1, 1)])


TOKENS = """
const cases = JSON.parse(process.argv[2]);
process.stdout.write(JSON.stringify(cases.map(([text, pieces]) => tokenized(text, pieces))));
"""


@needs_node
@pytest.mark.system
def test_tokens_lose_nothing(tmp_path: Path) -> None:
    pieces = ["我", "学", "机器", "学习", "a", "ab", "ab"]
    texts = ["机器学习", "我学 abab😀", "", "习aba", "ab"]
    code = (BOOK / "numbers.js").read_text(encoding="utf-8") + TOKENS
    shown = run_node(tmp_path, code, json.dumps([[text, pieces] for text in texts]))
    assert [token["text"] for token in shown[0]] == ["机器", "学习"]
    assert [token["id"] for token in shown[0]] == [258, 259]
    for text, tokens in zip(texts, shown, strict=True):
        joined = b"".join(
            bytes([token["id"]]) if token["id"] < 256 else token["text"].encode()
            for token in tokens
        )
        assert joined.decode() == text


GUESSES = """
const cases = JSON.parse(process.argv[2]);
process.stdout.write(JSON.stringify(cases.map((guess) => isRight(...guess))));
"""


def answers_of(page: Path) -> list[tuple[str, dict[str, str]]]:
    """Right answers of the guesses of a page, with their attributes."""
    found = re.findall(r"<details (data-answer=[^>]*)>", page.read_text(encoding="utf-8"))
    attributes = [dict(re.findall(r'data-(\w+)="([^"]*)"', each)) for each in found]
    return [(each["answer"], each) for each in attributes]


@needs_node
@pytest.mark.system
def test_guesses_are_checked(tmp_path: Path) -> None:
    cases = [
        (True, ["0.42, 0.16；0.42", "0.4223 0.1554 0.4223"]),
        (True, ["０．４２ ０．１６ ０．４２", "0.4223 0.1554 0.4223"]),
        (False, ["0.42 0.42 0.16", "0.4223 0.1554 0.4223"]),
        (False, ["0.42", "0.4223 0.1554 0.4223"]),
        (True, ["−24", "-24", 0]),
        (False, ["-24.1", "-24", 0]),
        (True, ["18 %", "18", 2]),
        (True, ["I am a student.", "i'm a student|I am a student"]),
        (True, ["会更低", "低", 0.01, "高"]),
        (False, ["高，不是低", "低", 0.01, "高"]),
        (False, ["slower", "low", 0.01]),
        (False, ["?", "low|high"]),
    ]
    for page in sorted(BOOK.glob("0[0-5]-*.md")):
        for answer, _ in answers_of(page):
            for alternative in answer.split("|"):
                cases.append((True, [alternative, answer]))
            cases.append((False, ["xyz", answer]))
    code = (BOOK / "numbers.js").read_text(encoding="utf-8") + GUESSES
    given = json.dumps([case for _, case in cases])
    verdicts = run_node(tmp_path, code, given)
    wrong = [case for (right, case), seen in zip(cases, verdicts, strict=True) if right != seen]
    assert wrong == []


@pytest.mark.parametrize("suffix", ["", ".zh"])
@pytest.mark.parametrize("chapter", ["00-numbers"])
def test_chapters_have_guesses_and_exercises(chapter: str, suffix: str) -> None:
    page = BOOK / f"{chapter}{suffix}.md"
    text = page.read_text(encoding="utf-8")
    assert len(answers_of(page)) >= 2
    assert len(re.findall(r"<summary>(?:Solution|解答)</summary>", text)) == 3
    assert "我是个学生。" in text
    twin = BOOK / f"{chapter}{'' if suffix else '.zh'}.md"
    assert len(answers_of(page)) == len(answers_of(twin))
