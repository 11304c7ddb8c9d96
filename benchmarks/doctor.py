"""Recall and precision of `transduce doctor` on faults planted into a corpus.

    python benchmarks/doctor.py --foreign OTHER.gz --others others.txt train.de.gz train.en.gz

Ten kinds of faults, each in 1 to 8 % of the lines (by --seed), go into a sample of the pairs; a
hundredth is set aside as held-out data, to leak.  Prints, by kind, the planted lines and those that
were reported as such, and the share of planted lines among all reported ones.  --others FILE lists
a sample of the other reported lines, to be read.
"""

from __future__ import annotations

import argparse
import bisect
import random
import tempfile
from collections import Counter
from pathlib import Path

from transduce.data.text_files import read_lines
from transduce.examination.corpora import corpora_of
from transduce.examination.examine import KINDS, examined

Pair = tuple[str, str]
ACCEPTED = {
    "duplicate": {"duplicate"},
    "near-duplicate": {"near-duplicate", "duplicate"},
    "leak": {"leak"},
    "alignment": {"alignment", "length"},
    "language": {"language"},
    "untranslated": {"untranslated"},
    "encoding": {"encoding"},
    "entities": {"entities"},
    "tags": {"tags"},
    "placeholders": {"placeholders"},
    "numbers": {"numbers"},
    "spreadsheet": {"spreadsheet"},
}


def changed(text: str, chance: random.Random) -> str:
    """The text in other case, punctuation or spacing."""
    variants = [text.upper(), text.lower(), f"{text} ", text.rstrip(".!?。") + "!", f"- {text}"]
    variants += [text.replace(" ", "  ", 1), text.rstrip(".!?。")]
    return chance.choice([variant for variant in variants if variant != text])


def garbled(text: str, chance: random.Random) -> str:
    """The text after a wrong encoding."""
    if not text.isascii() and chance.random() < 0.6:
        raw = text.encode()
        return chance.choice(
            [
                "".join(_windows(byte) for byte in raw),
                raw.decode("ascii", "replace"),
                raw.decode("latin-1"),
            ]
        )
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice("\ufffd\x00\x0b\x1b\x85") + text[at:]


def _windows(byte: int) -> str:
    try:
        return bytes([byte]).decode("cp1252")
    except UnicodeDecodeError:
        return chr(byte)


def escaped(text: str, chance: random.Random) -> str:
    """The text with an entity."""
    for sign, entity in (("'", "&#39;"), ('"', "&quot;"), ("é", "&eacute;"), ("ü", "&uuml;")):
        if sign in text and chance.random() < 0.7:
            return text.replace(sign, entity)
    words = text.split(" ")
    at = chance.randrange(len(words))
    words[at] += chance.choice(["&nbsp;", "&amp;", "&amp;quot;", "&hellip;"])
    return " ".join(words)


def accident(text: str, chance: random.Random) -> str:
    """The text after a spreadsheet."""
    kind = chance.randrange(4)
    if kind == 0:
        return "#NAME?"
    if kind == 1:
        return chance.choice(["1-Mar", "Mar-01", "3-Dec", "2026-03-01 00:00:00", "12-Sep"])
    if kind == 2:
        words = text.split(" ")
        words[-1] = chance.choice(["1.23E+05", "4E+11", "1,2E+10"])
        return " ".join(words)
    words = text.split(" ")
    words[0] = f'""{words[0]}""'
    return f'"{" ".join(words)}"'


def planted(kind: str, pair: Pair, other: Pair, foreign: str, chance: random.Random) -> Pair:
    """A pair with a fault of this kind.  other: another pair."""
    side = chance.randrange(2)

    def on_side(text: str) -> Pair:
        return (text, pair[1]) if side == 0 else (pair[0], text)

    if kind == "near-duplicate":
        return on_side(changed(pair[side], chance))
    if kind == "alignment":
        return pair[0], other[1]
    if kind == "language":
        return on_side(foreign)
    if kind == "untranslated":
        return pair[0], pair[0]
    if kind == "encoding":
        return on_side(garbled(pair[side], chance))
    if kind == "entities":
        return on_side(escaped(pair[side], chance))
    if kind == "tags":
        whole = f"<b>{pair[0]}</b>", f"<b>{pair[1]}</b>"
        text = whole[side].removeprefix("<b>") if chance.random() < 0.5 else whole[side][:-4]
        return (text, whole[1]) if side == 0 else (whole[0], text)
    if kind == "placeholders":
        sign = chance.choice(["%s", "{name}", "%(count)d", "%1"])
        lost = chance.choice(
            ["", "%d", sign.replace("s", "S").replace("n", " n").replace("1", "2")]
        )
        texts = [f"{pair[0]} {sign}", f"{pair[1]} {sign}"]
        texts[side] = f"{pair[side]} {lost}"
        return texts[0], texts[1]
    if kind == "numbers":
        number = chance.randrange(3, 3000)
        texts = [f"{number} {pair[0]}", f"{number} {pair[1]}"]
        texts[side] = f"{number + chance.choice([1, 10, 100])} {pair[side]}"
        return texts[0], texts[1]
    if kind == "spreadsheet":
        return on_side(accident(pair[side], chance))
    return pair


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--foreign", type=Path, required=True, help="texts in a third language")
    parser.add_argument("--pairs", type=int, default=25_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=float, default=0.08, help="largest share of a kind")
    parser.add_argument("--others", type=Path, help="file for a sample of other reported lines")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    every = list(zip(read_lines(options.source), read_lines(options.target), strict=True))
    every = [pair for pair in every if pair[0].strip() and pair[1].strip()]
    pairs = chance.sample(every, min(options.pairs, len(every)))
    foreign = [text for text in read_lines(options.foreign) if len(text) > 10]
    held_out, pairs = pairs[: len(pairs) // 100], pairs[len(pairs) // 100 :]
    kinds: list[str | None] = [None] * len(pairs)
    free = list(range(len(pairs)))
    chance.shuffle(free)
    lines: list[tuple[Pair, str | None]] = []
    for kind in ACCEPTED:
        for _ in range(int(chance.uniform(0.01, options.most) * len(pairs))):
            if not free:
                break
            at = free.pop()
            kinds[at] = kind
    originals = [at for at, kind in enumerate(kinds) if kind is None]
    for number, (pair, kind) in enumerate(zip(pairs, kinds, strict=True)):
        base = pair
        if kind in ("duplicate", "near-duplicate"):
            before = bisect.bisect(originals, number)
            base = pairs[originals[chance.randrange(before)] if before else originals[0]]
        elif kind == "leak":
            base = chance.choice(held_out)
        if kind is not None:
            base = planted(kind, base, chance.choice(pairs), chance.choice(foreign), chance)
        lines.append((base, kind))
    with tempfile.TemporaryDirectory() as directory:
        files = {}
        for name, rows in (("train", [pair for pair, _ in lines]), ("test", held_out)):
            for side in (0, 1):
                files[name, side] = Path(directory) / f"{name}.{side}"
                text = "".join(f"{pair[side]}\n" for pair in rows)
                files[name, side].write_text(text, encoding="utf-8", newline="")
        corpora = corpora_of(
            [files["train", 0], files["train", 1]], [files["test", 0], files["test", 1]], ()
        )
        found_by: Counter[str] = Counter()
        others: list[str] = []
        reported, first = 0, Counter[str]()
        for line in examined(corpora, list(KINDS)):
            if line.corpus.split != "train":
                continue
            kind = lines[line.line - 1][1]
            if not line.faults:
                if kind is not None:
                    others.append(f"MISSED\t{kind}\t{line.pair[0]}\t{line.pair[1]}")
                continue
            reported += 1
            if kind is None:
                facts = "; ".join(f"{name}: {fault}" for name, fault in line.faults.items())
                others.append(f"OTHER\t{facts}\t{line.pair[0]}\t{line.pair[1]}")
                first[next(iter(line.faults))] += 1
            elif ACCEPTED[kind] & set(line.faults):
                found_by[kind] += 1
            else:
                others.append(f"WRONG\t{kind} {dict(line.faults)}\t{line.pair[0]}\t{line.pair[1]}")
    counts = Counter(kind for _, kind in lines if kind is not None)
    print(f"{'kind':<16}{'planted':>8}{'recall':>8}")
    for kind, count in counts.items():
        print(f"{kind:<16}{count:>8}{found_by[kind] / count:>8.3f}")
    of_all = sum(counts.values())
    print(f"{'all':<16}{of_all:>8}{sum(found_by.values()) / of_all:>8.3f}")
    print(f"reported {reported}, planted {reported - sum(first.values())}, others {dict(first)}")
    if options.others is not None:
        options.others.write_text("\n".join(others), encoding="utf-8")


if __name__ == "__main__":
    main()
