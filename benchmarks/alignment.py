"""Alignment error rates: EM on a published gold standard, and attention on letters and sounds.

    python benchmarks/alignment.py --steps 3000 --output runs/alignment

Letters and sounds come from `transduce demo`.  Their gold standard is the fifty words below,
aligned by hand as `letters/SOUNDS`, with possible links in brackets.  The published one is Ugarit's
of ancient Greek and English, read from $TRANSDUCE_DATA; EM learns from its 274 pairs alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import transduce
from transduce.cli.demo import demo_recipe
from transduce.cli.demo_data import read_dictionary, write_pairs
from transduce.cli.demo_table import EN
from transduce.data.encoded import encode_pairs
from transduce.data.filter_config import FilterConfig
from transduce.data.lexicon import learn_lexicon
from transduce.data.mixture import MixedPairs
from transduce.data.rows import Side
from transduce.inspect.alignment import Symmetry, symmetrised
from transduce.metrics.alignment import alignment_scores, alignment_statistics
from transduce.tasks.translation.alignment import AlignmentOptions, align_pairs
from transduce.text.pharaoh import GoldLinks, Link, parse_gold

GOLD = """
th/TH ou(gh)/AO t/T
th/DH ou(gh)/OW
(k)n/N i(gh)/AY t/T
(p)s/S y/AY ch/K o/AA l/L o/AH g/JH y/IY
ph/F o(e)/OW n/N
s(c)/S i/AY e/AH n/N c(e)/S
l/L a/AE n/NG g/G u/W a/AH g(e)/JH
b/B eau/Y+UW t/T i/AH f/F u/AH l/L
m/M a/AH ch/SH i/IY n(e)/N
c/K l/L i/AY m(b)/M i/IH ng/NG
l/L i/IH s(t)/S e/AH n/N
c/K a/AE s(t)/S (e)/AH l/L
w/W ei(gh)/EY t/T
l/L au/AE gh/F
q/K u/W e/EH s/S t/CH io/AH n/N
e/IH x/K+S ch/CH a/EY n/N g(e)/JH
y/Y a(ch)/AA t/T
r(h)/R y/IH th/DH (m)/AH m/M
s(c)/S i/IH ss/Z or/ER s/Z
n/N ei(gh)/EY b/B or/ER
c/K o/AA l/L u/AH m(n)/M
d/D e/AH b/B r/R i(s)/IY
(h)o/AA n/N e/AH s/S t/T
ch/K e/EH m/M i/AH s/S t/T r/R y/IY
b/B r/R i/IH dg(e)/JH
w/W a/AA tch/CH
n/N a/EY ti/SH o/AH n/N
v/V i/IH si/ZH o/AH n/N
m/M ea/EH s/ZH ur(e)/ER
f/F i/IH x/K+S i/IH ng/NG
q/K u/W i/AY e/AH t/T
b/B o/AA x/K+S
r/R e/IH c/S ei(p)/IY t/T
i(s)/AY l/L a/AH n/N d/D
au/AO t/T u/AH m(n)/M
s(w)/S o/AO r/R d/D
a/AE n/N s(w)/S er/ER
(w)r/R i/IH n/NG k/K (e)/AH l/L
(g)n/N o(e)/OW m/M
h/HH y/IH m(n)/M
p/P eo/IY p/P (e)/AH l/L
w/W o/IH m/M e/AH n/N
ch/K a/EH r/R a/IH c/K t/T er/ER
s/S ch/K e/EH d/JH u/UH l(e)/L
p/P i/IY z/T z/S a/AH
j/JH u/AH m/M p/P i/IH ng/NG
c/K u/Y+UW b(e)/B s/Z
m/M u/Y+UW s/Z i/IH c/K
u/Y+UW n/N i/IY q(ue)/K
b/B u/Y+UH r/R eau/OW
"""

Pair = tuple[str, str]


def letters_and_sounds() -> Iterator[tuple[Pair, GoldLinks]]:
    """The words above, with the links of letters and sounds.

    Letters in brackets go possibly with the sounds of their group; a group of nothing else, as in
    "(e)/AH", says that the sound comes possibly from there.  Where letters and sounds of a group
    are several, every link of them is a sure one.
    """
    for line in GOLD.strip().splitlines():
        word, sounds = "", []
        sure, possible = set(), set()
        for group in line.split():
            spelled, made = group.split("/")
            places = range(len(sounds), len(sounds) + len(made.split("+")))
            sounds += made.split("+")
            for part in re.findall(r"\(\w+\)|\w", spelled):
                for letter in part.strip("()"):
                    links = {(len(word), place) for place in places}
                    possible |= links
                    if "(" not in part:
                        sure |= links
                    word += letter
        yield (word, " ".join(sounds)), GoldLinks(frozenset(sure), frozenset(possible))


def aer(found: Iterable[frozenset[Link]], gold: Sequence[GoldLinks]) -> float:
    """In percent, of the corpus."""
    return round(alignment_scores(alignment_statistics(list(found), gold).sum(0))["aer"], 1)


def by_em(pairs: Sequence[Pair], gold: Sequence[GoldLinks], split: Any) -> dict[str, float]:
    """Error rates of EM on the first pairs, the gold standard, after learning from all."""
    names = [{n: i for i, n in enumerate(sorted({w for p in pairs for w in split(p[k])}), 4)}
             for k in (0, 1)]  # fmt: skip
    sides = [
        Side(lambda texts, ids=ids: [[ids[w] for w in split(t)] for t in texts], len(ids) + 4)
        for ids in names
    ]
    with tempfile.TemporaryDirectory() as directory:
        filters = FilterConfig(max_length=4000, drop_duplicates=False)
        encoded = encode_pairs(pairs, *sides, filters, Path(directory) / "pairs", "")
        data = MixedPairs([encoded], [1.0])
        import numpy as np

        rows = np.arange(len(gold))
        one = learn_lexicon(data, sides[1].vocabulary_size)
        other = learn_lexicon(data, sides[0].vocabulary_size, backward=True)
        there, n_targets = one.choices(data, rows)
        back, n_sources = other.choices(data, rows)
    forward = [
        {(s, t) for t, s in enumerate(part.tolist()) if s >= 0}
        for part in np.split(there, np.cumsum(n_targets)[:-1])
    ]
    backward = [
        {(s, t) for s, t in enumerate(part.tolist()) if t >= 0}
        for part in np.split(back, np.cumsum(n_sources)[:-1])
    ]
    result = {"EM": aer(map(frozenset, forward), gold)}
    result["EM backward"] = aer(map(frozenset, backward), gold)
    methods: tuple[Symmetry, ...] = ("intersection", "grow-diag", "union")
    for method in methods:
        joined = [symmetrised(a, b, method) for a, b in zip(forward, backward, strict=True)]
        result[f"EM {method}"] = aer(map(frozenset, joined), gold)
    return result


def by_attention(path: Path, pairs: Sequence[Pair], gold: Sequence[GoldLinks]) -> dict[str, Any]:
    """Error rates of every layer and head of a run, and its word error rate."""
    run = transduce.load(path, device="cpu")
    result: dict[str, Any] = {}
    config = run.recipe.model.decoder
    for layer in range(config.n_layers):
        for shifted in (False, True):
            for head in (None, *range(config.n_heads)):
                options = AlignmentOptions(layer, head, head is None, None, "tokens", shifted)
                found = [one.links for one in align_pairs(run.translator, pairs, options)]
                name = f"layer {layer}, {'mean' if head is None else f'head {head}'}"
                result[name + (", shifted" if shifted else "")] = aer(found, gold)
    options = AlignmentOptions(unit="tokens")
    found = [one.links for one in align_pairs(run.translator, pairs, options)]
    result["as the run says"] = aer(found, gold)
    scores = run.evaluate("test").scores
    result |= {name: round(float(scores[name]), 2) for name in ("wer", "per")}
    return result


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--weight", type=float, default=0.05)
    parser.add_argument("--output", type=Path, default=Path("runs/alignment"))
    arguments = parser.parse_args()
    result: dict[str, Any] = {}
    ugarit = Path(os.environ.get("TRANSDUCE_DATA", ".")) / "ugarit-grc-eng-alignment"
    if ugarit.is_dir():
        texts = [(ugarit / name).read_text("utf-8").splitlines() for name in ("grc.txt", "eng.txt")]
        lines = (ugarit / "gold.talp").read_text("utf-8").splitlines()
        gold = [parse_gold(line, "gold.talp") for line in lines]
        result["ugarit"] = by_em(list(zip(*texts, strict=True)), gold, str.split)
    pairs, gold = map(list, zip(*letters_and_sounds(), strict=True))
    words = arguments.output / "data" / "words.tsv"
    write_pairs(words, read_dictionary())
    settings = demo_recipe(EN, words.parent, None)
    settings["training"] |= {"steps": arguments.steps, "validate_every": arguments.steps}
    del settings["training"]["minutes"]
    rows = [tuple(line.split("\t")) for line in words.read_text("utf-8").splitlines()]
    spelled = [(" ".join(s), t) for s, t in [*pairs, *rows]]
    result["letters and sounds"] = by_em(spelled, gold, str.split)
    print(json.dumps(result, indent=2), flush=True)
    for name, alignment in (("plain", None), ("guided", {"weight": arguments.weight})):
        path = arguments.output / f"{name}-{arguments.steps}"
        if alignment:
            settings["training"]["alignment"] = alignment
            path = path.with_name(f"{path.name}-{arguments.weight:g}")
        if not (path / "README.md").is_file():
            transduce.train(settings, path, overwrite=True)
        result[name] = by_attention(path, pairs, gold)
        print(json.dumps({name: result[name]}, indent=2), flush=True)


if __name__ == "__main__":
    main()
