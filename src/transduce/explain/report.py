"""An explanation in a terminal: attention as shades, alone or side by side with others."""

import itertools
import struct
import zlib
from collections.abc import Iterator, Sequence

from torch import Tensor

from transduce.errors import printable
from transduce.explain.explanation import ComparedRun, Explanation, SideBySide
from transduce.explain.parts import Guess, Node
from transduce.support.tables import attention_in_terminal, cells_of, padded, table
from transduce.text import PAD, SPECIAL_TOKENS

GAP = "   "
"""Between pictures beside each other."""


def png_of(pixels: Tensor) -> bytes:
    """Bytes (c, h, w) of 1 or 3 channels as a PNG."""
    c, h, w = pixels.shape
    lines = pixels.permute(1, 2, 0).reshape(h, w * c).numpy()
    raw = b"".join(b"\0" + line.tobytes() for line in lines)
    head = struct.pack(">IIBBBBB", w, h, 8, 2 if c == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)


def abreast(pictures: Sequence[str], width: int) -> list[str]:
    """Pictures of several lines beside each other, as many as fit into this many cells; the
    others in further blocks below."""
    blocks: list[list[list[str]]] = []
    used = 0
    for picture in pictures:
        lines = padded(picture.split("\n"))
        cells = cells_of(lines[0]) + len(GAP)
        if not blocks or used + cells > width + len(GAP):
            blocks.append([])
            used = 0
        blocks[-1].append(lines)
        used += cells
    return ["\n".join(_beside(block)) for block in blocks]


def _beside(block: Sequence[Sequence[str]]) -> Iterator[str]:
    for i in range(max(map(len, block))):
        cells = (lines[i] if i < len(lines) else " " * cells_of(lines[0]) for lines in block)
        yield GAP.join(cells).rstrip()


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)


MAX_COLUMNS = 40
"""Tokens of a picture in a terminal."""
REPORT_RIVALS = 3
SHOWN = 12
"""Lines of a list."""
BLANK = "The input is blank, and so is the output; there is nothing to explain."
FIGURES = ("run", "log p", "per token", "score", "parameters", "seconds", "answer")


def report_of(explanation: Explanation) -> str:
    """The report, several lines; one line for a blank input."""
    if _is_blank(explanation):
        return BLANK
    head = f"{_given(explanation)} → {_answer(explanation)}"
    return "\n\n".join([head, *_parts(explanation)])


def report_side_by_side(side_by_side: SideBySide, width: int) -> str:
    """Answers and figures of each run, its tokens, and attention beside attention.

    width: cells of a line; pictures that do not fit beside each other come below.
    """
    first = side_by_side.runs[0].explanation
    if all(_is_blank(run.explanation) for run in side_by_side.runs):
        return BLANK
    parts = [_given(first), _table([FIGURES, *map(_figures, side_by_side.runs)])]
    likely = [(run.explanation.run, _likely(run.explanation)) for run in side_by_side.runs]
    if any(text for _, text in likely):
        what = "tokens" if first.steps else "labels"
        parts.append(_table([("run", f"{what} and their probabilities"), *likely]))
    pictures = [_main_picture(run.explanation) for run in side_by_side.runs]
    parts += abreast([picture for picture in pictures if picture], width)
    return "\n\n".join(parts)


def _is_blank(explanation: Explanation) -> bool:
    return not (
        explanation.answer
        or explanation.sequences
        or any(text.strip() for text in explanation.inputs.values())
    )


def _given(explanation: Explanation) -> str:
    return " · ".join(printable(" ".join(text.split())) for text in explanation.inputs.values())


def _answer(explanation: Explanation) -> str:
    if "embedding" in explanation.vectors:
        return f"{len(explanation.vectors['embedding'])} numbers"
    return printable(" ".join(explanation.answer.splitlines()))


def _figures(run: ComparedRun) -> tuple[str, ...]:
    explanation, log_prob, score = run.explanation, run.log_prob, run.score
    return (
        explanation.run,
        "-" if log_prob is None else f"{log_prob:.3f}",
        "-" if log_prob is None else f"{log_prob / len(explanation.steps):.3f}",
        "-" if score is None else f"{score:.3f}",
        f"{run.parameters:,}",
        f"{run.seconds:.3f}",
        _answer(explanation),
    )


def _likely(explanation: Explanation) -> str:
    likely = [(step.written, step.probability) for step in explanation.steps[: 3 * SHOWN]]
    return "  ".join(f"{name} {p:.2f}" for name, p in likely or explanation.labels[:REPORT_RIVALS])


def _parts(explanation: Explanation) -> Iterator[str]:
    rows: list[tuple[str, ...]]
    if explanation.steps:
        rows = [("step", "p", "written", "likeliest")]
        for number, step in enumerate(explanation.steps[: 3 * SHOWN], 1):
            rows.append(
                (str(number), f"{step.probability:.3f}", step.written, _guesses(step.guesses))
            )
        yield _table(rows)
    if explanation.labels:
        yield _table([(f"{p:.3f}", name) for name, p in explanation.labels])
    if explanation.hidden:
        rows = [("hidden", "guesses" if explanation.layers_of else "labels without it")]
        text = explanation.sequences["text"]
        rows += [(text[h.position], _guesses(h.guesses)) for h in explanation.hidden[: 3 * SHOWN]]
        yield _table(rows)
    if explanation.span is not None:
        text = explanation.sequences["text"]
        sides = (("start", explanation.span.start), ("end", explanation.span.end))
        yield _table([(name, _guesses(_best(text, values))) for name, values in sides])
    if explanation.ctc:
        yield _spikes(explanation)
    if explanation.features:
        text = explanation.sequences["text"]
        rows = [("value × weight", "n-gram")]
        rows += [
            (f"{f.value * f.weight:+.3f}", " ".join(text[f.start : f.end]))
            for f in explanation.features[:SHOWN]
        ]
        yield _table(rows)
    if explanation.attention:
        yield _last_attention(explanation)
        yield _patterns(explanation)
    if explanation.search is not None and explanation.search.method == "beam":
        yield _search(explanation)


def _spikes(explanation: Explanation) -> str:
    """Positions at which CTC writes a token, not the blank."""
    times = explanation.sequences["audio"]
    rows = [("position", "CTC")]
    spikes = (
        (time, _guesses(guesses))
        for time, guesses in zip(times, explanation.ctc, strict=True)
        if guesses[0][0] != SPECIAL_TOKENS[PAD]
    )
    return _table([*rows, *itertools.islice(spikes, 3 * SHOWN)])


def _guesses(guesses: Sequence[Guess]) -> str:
    return "  ".join(f"{name} {p:.3f}" for name, p in guesses[:REPORT_RIVALS])


def _best(names: Sequence[str], values: Sequence[float]) -> list[Guess]:
    return sorted(zip(names, values, strict=True), key=lambda guess: -guess[1])


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(table(rows[0], rows[1:]))


def _main_picture(explanation: Explanation) -> str:
    """The last attention of a run; the equal weights of a fixed context as numbers."""
    if explanation.attention:
        return f"{printable(explanation.run)}\n{_last_attention(explanation)}"
    if "context" not in explanation.vectors:
        return ""
    columns = explanation.sequences["source"]
    equal = [f"{1 / len(columns):.2f}"] * len(columns)
    row = _table([("", *columns[:MAX_COLUMNS]), ("every step", *equal[:MAX_COLUMNS])])
    return f"{printable(explanation.run)}\none vector for every step, no choice of position\n{row}"


def _last_attention(explanation: Explanation) -> str:
    last = explanation.attention[-1]
    rows = [printable(name) for name in explanation.sequences[last.rows][:MAX_COLUMNS]]
    columns = [printable(name) for name in explanation.sequences[last.columns][:MAX_COLUMNS]]
    weights = last.weights.mean(0)[:MAX_COLUMNS, :MAX_COLUMNS].tolist()
    picture = attention_in_terminal(columns, rows, weights)
    heads = len(last.weights)
    mean = f", mean of {heads} heads" if heads > 1 else ""
    return f"{last.name}{mean}\n{picture}"


def _patterns(explanation: Explanation) -> str:
    rows = []
    for attention in explanation.attention:
        names = (f"{pattern.name} {pattern.value:.2f}" for pattern in attention.patterns)
        rows.append((attention.name, "  ".join(names)))
    return _table(rows)


def _search(explanation: Explanation) -> str:
    search = explanation.search
    assert search is not None
    nodes = search.nodes
    ended = [n for n in range(len(nodes)) if nodes[n].score is not None]
    ended.sort(key=lambda n: -(nodes[n].score or 0.0))
    n_kept = sum(node.fate != "cut" for node in nodes)
    title = (
        f"beam of {search.width}, length penalty {search.length_penalty}: {n_kept - 1} hypotheses "
        f"kept, {len(nodes) - n_kept} cut"
    )
    rows = [("score", "log p", "ended")]
    for n in ended[:SHOWN]:
        mark = "★ " if nodes[n].fate == "won" else ""
        text = " ".join(_tokens(nodes, n))
        rows.append((f"{nodes[n].score:.3f}", f"{nodes[n].log_prob:.3f}", mark + text))
    return f"{title}\n{_table(rows)}" if ended else title


def _tokens(nodes: Sequence[Node], at: int) -> list[str]:
    tokens = []
    while at > 0:
        tokens.append(nodes[at].token)
        at = nodes[at].parent
    return tokens[::-1]
