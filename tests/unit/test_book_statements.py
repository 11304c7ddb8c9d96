"""Numbers of the chapters for beginners, computed with NumPy, stand in both languages."""

from __future__ import annotations

import json
import math
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.live_page import EXPLAIN, engine, needs_node
from helpers.node import run_node

BOOK = Path(__file__).parents[2] / "docs" / "book"
Array = NDArray[np.float64]


CHAPTERS = sorted(path.stem for path in BOOK.glob("[01][0-9]-*.md") if ".zh" not in path.name)


def softmax(scores: Any, temperature: float = 1.0) -> Array:
    powers = np.exp(np.asarray(scores, float) / temperature)
    return powers / powers.sum(-1, keepdims=True)


def four(*numbers: float) -> list[str]:
    return [f"{number:.4f}" for number in numbers]


def signed(number: float, digits: int = 4) -> str:
    return f"{number:.{digits}f}".replace("-", "−")


def descent(w: float, rate: float, steps: int) -> float:
    """Gradient descent on (2 w − 6)²."""
    for _ in range(steps):
        w -= rate * 4 * (2 * w - 6)
    return w


Q, KEYS = np.array([2.0, 1.0]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
STUDENT = [0.8865, 0.3950, 0.9364, 0.8457, 0.7624, 0.8923, 0.9215]

SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])
ALPHA = softmax(KEYS @ [2, 0])


def positions(place: int, width: int) -> Array:
    """Sines and cosines of a position, by turns."""
    angles = place / 10_000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).ravel()


def normalized(*row: float) -> Array:
    return (np.array(row) - np.mean(row)) / np.std(row)


def feed_forward(*x: float) -> Array:
    """The network that chapter 7 works by hand."""
    inner = np.maximum(0, np.array(x) @ np.array([[1, 0, 1], [0, 1, 1]]))
    return np.asarray(inner @ np.array([[2, 0], [0, 3], [1, 1]]), float)


def attention_parameters(m: int) -> int:
    return 4 * (m * m + m)


def forward_parameters(m: int, f: int) -> int:
    return m * f + f + f * m + m


def layer_parameters(m: int, f: int) -> tuple[int, int]:
    """Parameters of a layer of the encoder, and of the decoder."""
    forward = forward_parameters(m, f)
    return attention_parameters(m) + forward + 4 * m, 2 * attention_parameters(m) + forward + 6 * m


NEAR = np.array([np.linalg.norm(positions(place, 2) - positions(0, 2)) for place in range(1, 51)])

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
    "01-sequences": [
        [f"= {0.8 * 0.5 * 0.25:.1f}", signed(math.log(0.1))],
        [f"{0.6 * 0.5:.2f}", f"{0.4 * 0.9:.2f}"],
        [*four(math.exp(1 - 4 / 3)), f"{100 * math.exp(1 - 4 / 3) * math.sqrt(0.5):.2f}"],
        [f"{np.prod(STUDENT):.3f}", signed(np.log(STUDENT).mean(), 2)],
    ],
    "02-attention": [
        four(*ALPHA, *(ALPHA @ KEYS)),
        [f"{np.exp(2):.3f}", f"{np.exp([2, 0, 2]).sum():.3f}"],
        four(*(softmax([0, 0, 0]) @ KEYS)),
        four(*softmax(KEYS @ SWAP @ [2, 0]), *(softmax(KEYS @ SWAP @ [2, 0]) @ KEYS)),
        four(softmax([4, 0, 4])[0]),
    ],
    "03-self-attention": [
        four(*softmax([0, 1, 1]), *(softmax([0, 1, 1]) @ KEYS)),
        [str(7 * 7), f"{7 * 7 * 32:,}", f"{math.sqrt(64):g}"],
        four(softmax([8, 0])[0], softmax([1, 0])[0]),
    ],
    "04-heads": [
        [f"512 / 8 = {512 // 8}", f"128 / 4 = {128 // 4}"],
        [f"{4 * 512**2:,}", f"{4 * 512:,}", f"{4 * (512**2 + 512):,}"],
    ],
    "05-masks": [
        four(*softmax([0.5, 0.5, 0.5])),
        [f"= {np.tril(np.ones((7, 7))).sum():.0f}", f"{49 - 28}"],
        four(*softmax([1, 2]), *softmax([1, 2, 3])),
    ],
    "06-positions": [
        [signed(number) for number in (math.sin(0.1), *positions(2, 4), math.cos(2))],
        [signed(positions(3, 4) @ positions(5, 4)), four(np.exp(-2))[0]],
        [*four(NEAR.min()), f"{NEAR.argmin() + 1}", f"{0.01 * 44:.2f}"],
        [signed(number) for place in (3, 4) for number in positions(place, 128)[:2]],
        [f"{2 * math.pi * 10**i:,.0f}" for i in (1, 2, 3)] + [f"{2 * math.pi:.1f}"],
    ],
    "07-layer": [
        [f"= {2 * 512 * 2048:,}", f"= {4 * 512**2:,}", *four(1.1**10)],
        [signed(number) for number in (*normalized(1, 2, 3, 4), *normalized(2, 2, 2, 6))],
        [f"= {tuple(map(int, np.add([1, -1], feed_forward(1, -1))))}".replace("-", "−")],
        [
            str(tuple(map(int, row)))
            for row in (feed_forward(-1, 2), np.add([-1, 2], feed_forward(-1, 2)))
        ],
        [
            f"{forward_parameters(128, 256):,}",
            f"{attention_parameters(128):,}",
            *four(math.sqrt(3)),
        ],
    ],
    "08-model": [
        [
            f"{count:,}"
            for count in (
                attention_parameters(512),
                forward_parameters(512, 2048),
                *layer_parameters(512, 2048),
            )
        ],
        [f"{6 * sum(layer_parameters(512, 2048)):,}", f"{37_000 * 512:,}"],
        [
            f"{count:,}"
            for count in (*layer_parameters(128, 256), 4 * sum(layer_parameters(128, 256)))
        ],
        [
            f"{(2767 + 4000) * 128:,}",
            f"{(2767 + 4000) * 128 + 4 * sum(layer_parameters(128, 256)):,}",
        ],
        [
            f"{4 * 4 * 7}",
            f"{2 * 4 * 4 * 7}",
            f"{3 * 4 * 4 * 7 + 7}",
            f"{2 * layer_parameters(128, 256)[1]:,}",
        ],
    ],
    "09-training": [
        [f"{-np.log(STUDENT).mean():.2f}", f"{1 / np.prod(STUDENT) ** (1 / 7):.2f}"],
        [f"{math.log(2000):.2f}", f"{400 * 64:,}"],
        [f"{2 - 0.01 * 6}", f"{3 - 0.01 * 4}", *four(1.94 * 2.96, (1.94 * 2.96 - 5) ** 2)],
        [f"{0.9 + 0.1 / 5:.2f}", f"{0.1 / 5:.2f}"],
        four(-0.92 * math.log(0.6), -0.08 * math.log(0.1), -math.log(0.6)),
        four(-0.92 * math.log(0.6) - 0.08 * math.log(0.1)),
        [f"{512**-0.5 * 4000**-0.5 / part:.5g}".rstrip("0") for part in (1, 2, 3, 4)],
    ],
    "10-decoding": [
        [f"= {0.6 * 0.4:.2f}", f"= {0.4 * 0.9:.2f}", f"{0.6 * 0.3:.2f}", f"{0.4 * 0.4:.2f}"],
        [f"{sum(range(8))}", f"{sum(range(101)):,}", f"{2000**7 / 1e23:.1f} × 10²³"],
        [signed(math.log(p) / n) for p in (0.36, 0.24) for n in (1, 2)],
        [*four((12 / 6) ** 0.6, (11 / 6) ** 0.6)],
        [signed(-1.75 / 2**0.6), signed(-1.81 / (11 / 6) ** 0.6)],
        four(*softmax(np.log([0.5, 0.3, 0.2]), 0.5)),
    ],
    "teachers": [four(math.log(2), *(ALPHA @ KEYS)), [f"= {np.dot([1, 2], [3, -1])}"]],
    "11-cost": [
        [f"{48 * 49:,}", f"{48 * 70 * 70:,}"],
        [f"= {7 * 7 * 128:,}", f"= {7 * 128 * 128:,}", f"= {7 * 7}", f"= {10 * 10}"],
        [f"{sum(3**i for i in range(5))}", f"{sum(3**i for i in range(4))}", *four(70 / 512)],
        [f"= {2 * 2048**2 * 4:,}", f"{2 * 2048**2 * 4 >> 20} MiB", f"{8 * 4096**2 >> 20} MiB"],
    ],
    "12-family": [
        [f"{1000 * 0.15:g}", f"{150 * 0.8:g}", f"{150 * 0.1:g}", f"{1000 * 10 // 40}"],
        [f"= {(224 // 16) ** 2}", f"{196**2:,}", f"{(224 // 8) ** 2}", f"{784**2:,}"],
        [f"= {0.5 * 0.2 * 0.4:.2f}", *four(-math.log(0.04) / 3, 0.04 ** (-1 / 3))],
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


def quoted(paragraph: str) -> list[str]:
    """Figures of a paragraph that come from a measurement: shares, and numbers of some length."""
    text = re.sub(r"\([^()\s]*\)|`[^`]*`|\$[^$]*\$|“[^”]*”", "", paragraph)
    numbers = re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?: %)?", text)
    return [n for n in numbers if "%" in n or "." in n or len(re.sub(r"\D", "", n)) > 3]


@pytest.mark.parametrize("page", sorted(BOOK.glob("[01][0-9]-*.md")), ids=lambda page: page.name)
def test_quotes_stand_in_the_measurements_that_they_name(page: Path) -> None:
    """A measurement that is made again takes the sentences of the chapters with it."""
    missing = []
    for paragraph in page.read_text(encoding="utf-8").split("\n\n"):
        links = set(re.findall(r"\]\((\.\./measurements/[\w-]+(?:\.zh)?\.md)", paragraph))
        text = "".join((BOOK / link).read_text(encoding="utf-8") for link in links)
        shares = {f"{float(share):.0f} %" for share in re.findall(r"([\d.]+) ?%", text)}
        rows = re.findall(r"^\| [^|]+ \| ([\d.]+) \|(?: [\d.]+ \|){3} ([\d.]+) \|$", text, re.M)
        shares |= {f"{100 * float(end) / float(start):.0f} %" for start, end in rows}
        if links:
            missing += [n for n in quoted(paragraph) if n not in text and n not in shares]
    assert missing == []


def test_slides_say_the_same_in_both_languages() -> None:
    page = (BOOK / "slides.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 60_000 and page.count('class="plan"') == 3
    assert re.findall(r"(?:src|href)=[\"']?https?:|@import|url\(", page) == []
    for section in re.findall(r"<section>.*?</section>", page, re.DOTALL):
        pairs = [re.findall(rf'<(\w+)[^>]* lang="{each}"', section) for each in ("zh", "en")]
        assert pairs[0] == pairs[1] != []
    numbers = [each for name in ("02-attention", "03-self-attention") for each in STATEMENTS[name]]
    said = [*STATEMENTS["00-numbers"][0], *numbers[0], *numbers[2], *four(*softmax([0, 1, 1]))]
    said += four(math.log(2), -np.log([0.9, 0.9, 0.1]).mean(), *(softmax([0, 1, 1]) @ KEYS))
    said += [*four(softmax([8, 0])[0], softmax([1, 0])[0]), "63.1", ">28<", f"{0.4 * 0.9:.2f}"]
    assert [number for number in said if number not in page] == []
    first = json.loads((BOOK / "sentences.json").read_text(encoding="utf-8"))[0]
    for step, column in ((0, 0), (2, 1), (3, 2), (4, 3)):
        step, sign = first["steps"][step], first["source"][column]
        assert f"{sign} {step['weights'][column]:.2f}" in page
    front = [(BOOK.parent / f"index{each}.md").read_text(encoding="utf-8") for each in ("", ".zh")]
    written = first["steps"][4]["weights"]
    assert all(f"{weight:.2f}" in text for text in front for weight in written[3:5])


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


BEAMS = """
const cases = JSON.parse(process.argv[2]);
process.stdout.write(JSON.stringify(cases.map((each) => beamSearch(...each))));
"""


def beam_by_hand(rows: Array, width: int, alpha: float) -> list[tuple[float, tuple[int, ...]]]:
    """Finished sentences with their scores: 0 and 1 are tokens, 2 is the end."""
    beam: list[tuple[float, tuple[int, ...]]] = [(1.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    for _ in range(6):
        if not beam or len(finished) >= width:
            break
        every = [
            (p * rows[tokens[-1] + 1 if tokens else 0][token], (*tokens, token))
            for p, tokens in beam
            for token in range(3)
        ]
        beam = []
        for p, tokens in sorted(every, key=lambda each: -each[0]):
            if len(beam) == width or p == 0:
                break
            if tokens[-1] == 2:
                finished.append((math.log(p) / len(tokens) ** alpha, tokens))
            else:
                beam.append((p, tokens))
    return sorted(finished, key=lambda each: -each[0])


@needs_node
@pytest.mark.system
def test_the_beam_of_the_chapter_searches_as_one_by_hand(tmp_path: Path) -> None:
    hand = [[0.6, 0.4, 0], [0.3, 0.3, 0.4], [0.05, 0.05, 0.9]]
    draw = np.random.default_rng(7)
    cases: list[Any] = [[hand, 1, 0], [hand, 2, 0]]
    for width in (1, 2, 3, 8):
        rows = draw.dirichlet([1, 1, 1], 3).tolist()
        cases.append([rows, width, float(draw.uniform(0, 1))])
    code = (BOOK / "numbers.js").read_text(encoding="utf-8") + BEAMS
    shown = run_node(tmp_path, code, json.dumps(cases))
    assert [each["finished"][0]["tokens"] for each in shown[:2]] == [[0, 2], [1, 2]]
    for (rows, width, alpha), each in zip(cases, shown, strict=True):
        expected = beam_by_hand(np.array(rows), width, alpha)
        assert [tuple(found["tokens"]) for found in each["finished"]] == [t for _, t in expected]
        assert np.allclose([found["score"] for found in each["finished"]], [s for s, _ in expected])
        kept = [[candidate["fate"] for candidate in step].count("kept") for step in each["steps"]]
        assert max(kept) <= width


SOFTMAX = "0.4223 0.1554 0.4223", 0.01
LOWER = "低|不会更高", 0.01, "高"
AWAY = "away|no|not faster", 0.01, "sooner|faster"
WRITTEN: dict[tuple[str | float, ...], list[str]] = {  # right answers, as people write them
    SOFTMAX: [
        "0.42, 0.16, 0.42",
        "(0.42; 0.16; 0.42)",
        "0,42 0,16 0,42",
        ".42 .16 .42",
        "0.42/0.16/0.42",
    ],
    (*SOFTMAX, ""): [
        "42% 16% 42%",
        "[0.42、0.16、0.42]",
        "w = 0.42, 0.16, 0.42",
        "0.42，0.155 和 0.42。",
    ],
    ("0.5", 0.01): [
        "0.5",
        ".5",
        "½",
        "1/2",
        "1 / 2",
        "０．５",
        "１／２",
        "50 %",
        "50％",
        "0,5",
        "约 0.5",
    ],
    ("5", 0.01): ["5", "five", "五", "|a| = 5", "√25 = 5", "5。", "长度是 5", "5 = |a|", "5.00"],
    ("2", 0): ["2", "两个", "２个", "两个：机器、学习", "two tokens", "二"],
    ("7 128", 0): ["7, 128", "7 × 128", "7x128", "(7, 128)", "7 行 128 列", "7 rows, 128 columns"],
    ("9 18", 5): ["9% 和 18%", "9-18", "9、18", "nine and 18"],
    ("63082496|6308", 5): ["63,082,496", "6,308"],
    ("2.4849|ln 12|ln12", 0.01): ["2.48", "ln 12", "ln(12)", "-ln(1/12) = 2.485"],
    ("am",): ["am", "▁am", "`am`", "“am”", "AM"],
    ("u|ug",): ["u", "u and g", "u和g", "看 u，其次 g", "UG"],
    ("第三|三|3",): ["第三种", "第3个", "3", "三"],
    LOWER: ["低", "更低", "低，不会更高", "损失更低；写出来不对"],
    AWAY: ["away", "It runs away.", "no", "not faster, it runs away"],
}
MISTAKEN: dict[tuple[str | float, ...], list[str]] = {
    SOFTMAX: ["0.5 0 0.5", "0.42 0.16", "42 16 42", "0.42 0.16 0.42 1"],
    ("0.5", 0.01): ["2", "1/3", "5", "50", "0.05", "-0.5"],
    ("2", 0): ["十二", "3", "2.5", "twenty"],
    ("5", 0.01): ["25", "7", "√25"],
    ("am",): ["ham", "is", "apostrophe"],
    LOWER: ["高", "高，不是低", "更高"],
    AWAY: ["faster", "sooner", "away? no, faster"],
}
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
        *((True, [guess, *answer]) for answer, guesses in WRITTEN.items() for guess in guesses),
        *((False, [guess, *answer]) for answer, guesses in MISTAKEN.items() for guess in guesses),
    ]
    for page in sorted(BOOK.glob("[01][0-9]-*.md")):
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
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_chapters_have_guesses_and_exercises(chapter: str, suffix: str) -> None:
    page = BOOK / f"{chapter}{suffix}.md"
    text = page.read_text(encoding="utf-8")
    assert len(answers_of(page)) >= 2
    assert len(re.findall(r"<summary>(?:Solution|解答)</summary>", text)) == 3
    assert "我是个学生。" in text
    twin = BOOK / f"{chapter}{'' if suffix else '.zh'}.md"
    assert len(answers_of(page)) == len(answers_of(twin))


@pytest.mark.parametrize("page", sorted(BOOK.glob("[01][0-9]-*.md")), ids=lambda page: page.name)
def test_one_sentence_goes_through_every_chapter(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    heading = "## 那句话走到哪里了" if ".zh" in page.name else "## Where the sentence is now"
    assert text.count(heading) == 1
    assert re.search("student|我是个学生|这句话|this sentence", text.split(heading)[1])


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """我是个学生。 in the model of docs/see/paper.html: whole, and without some of its parts."""
    content_of = runpy.run_path(str(BOOK.parent / "see" / "pages.py"))["content_of"]
    _, facts = content_of(BOOK.parent / "see" / "paper.html")
    changes: list[dict[str, Any]] = [{}]
    changes += [{"changes": {"parts": [part]}} for part in ("positions", "residual")]
    asked = [[["我是个学生。"], change] for change in changes]
    directory = tmp_path_factory.mktemp("node")
    content = json.dumps({"facts": facts, "asked": asked})
    (directory / "model.json").write_text(content, encoding="utf-8")
    whole, unplaced, unadded = run_node(directory, engine() + EXPLAIN)
    weights = {each["name"]: np.array(each["weights"]) for each in whole["attention"]}
    names = {each["name"]: each["patterns"] for each in whole["attention"]}
    parts = {"positions": unplaced, "residual": unadded}
    return {"whole": whole, "weights": weights, "names": names, **parts}


@needs_node
@pytest.mark.system
@pytest.mark.parametrize("suffix", ["", ".zh"])
def test_the_sentence_does_as_the_chapters_say(seen: dict[str, Any], suffix: str) -> None:
    whole, weights = seen["whole"], seen["weights"]
    two = "{:.2f}".format
    cross = weights["decoder.layers.3.cross_attention"].mean(0)
    first = weights["encoder.layers.0.self_attention"][0][3]
    decoder = weights["decoder.layers.0.self_attention"][0][3]
    names = [name for head in seen["names"].values() for name, _ in head]
    told = {
        "01-sequences": [f"{step['probability']:.3f}" for step in whole["steps"] if step],
        "02-attention": [two(cross[row, column]) for row, column in LOOKS],
        "03-self-attention": [two(first[column]) for column in (3, 6, 1, 5, 4)],
        "04-heads": [two(value) for _, value in seen["names"]["encoder.layers.0.self_attention"]],
        "05-masks": [two(weight) for weight in decoder[:4]],
        "06-positions": [seen["positions"]["answer"]],
        "07-layer": [two(layer[4][0][1]) for layer in whole["layers"]],
        "10-decoding": [
            signed(score, 2)
            for node in sorted(whole["search"]["nodes"], key=lambda node: -(node["score"] or -9))[
                :2
            ]
            for score in (node["log_prob"], node["score"])
        ],
    }
    for chapter, numbers in told.items():
        page = (BOOK / f"{chapter}{suffix}.md").read_text(encoding="utf-8")
        text = re.split("## (?:那句话走到哪里了|Where the sentence is now)", page)[1]
        assert [number for number in numbers if number not in text] == [], chapter
    assert whole["answer"] == "I'm a student." and seen["residual"]["answer"].startswith("it it it")
    assert not decoder[4:].any() and len(names) == 48 and names[:4].count("punctuation") == 3
    assert first[[0, 2, 4]].max() < 0.04
    assert [layer[4][0][0] for layer in whole["layers"]] == ["▁little"] * 2 + ["▁student"] * 2


@needs_node
@pytest.mark.system
def test_one_vector_loses_what_chapter_2_says(tmp_path: Path) -> None:
    content_of = runpy.run_path(str(BOOK.parent / "see" / "pages.py"))["content_of"]
    _, facts = content_of(BOOK.parent / "see" / "vector.html")
    words = {"cat": "K AE T", "student": "S T UW D AH N T", "blackberries": "B L AE K ER IY Z"}
    content = json.dumps({"facts": facts, "asked": [[[word], {}] for word in words]})
    (tmp_path / "model.json").write_text(content, encoding="utf-8")
    answers = run_node(tmp_path, engine() + EXPLAIN)
    assert [each["answer"] for each in answers] == list(words.values())
    assert facts["d_model"] == 128 and facts["stacks"]["decoder"]["kind"] != "transformer"
    for suffix in ("", ".zh"):
        page = (BOOK / f"02-attention{suffix}.md").read_text(encoding="utf-8")
        assert words["blackberries"] in page and "128" in page


LOOKS = [(0, 0), (2, 1), (3, 2), (4, 3), (4, 4), (5, 5), (6, 6), (1, 1), (1, 3)]
"""Rows and columns of the last cross-attention that chapter 2 names."""
