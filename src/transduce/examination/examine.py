"""Examination of corpora: one pass to learn what is usual and fit limits, one to report."""

import bisect
import functools
import itertools
import logging
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.encoded import Pair, has_text, hash_of
from transduce.data.workers import in_workers
from transduce.errors import TransduceError
from transduce.examination.checks import CHECKS, checked
from transduce.examination.corpora import NO_KEY, ExaminedCorpus, Repeats, Sample, folded
from transduce.examination.language import CorpusSide, Support, copied_pairs, is_of_a_side
from transduce.support.work import chunks
from transduce.text.languages import Detector, loaded_detector

Floats = NDArray[np.float64]

PRECISION = 0.85
"""Share of misaligned pairs among those reported, as estimated."""
MIN_SHARE = 0.002
"""Share of misaligned pairs in a corpus, at least, to report any by their score."""
QUANTILES = np.linspace(0.5, 0.98, 49)
DEVIATIONS = 5.0
"""Deviations of the length from the median, for pairs of about the same length."""
LEAST_RATIO = 1.8
"""Factor between a length and the expected length, at least, to be reported."""
SPARE = 8
"""Characters added to both lengths: a word more or less says little of a short text."""
EXAMINE_BINS = 12


def misaligned_below(scores: Floats, of_strangers: Floats) -> float:
    """Score below which most pairs are as strangers are.

    scores: of a sample.  of_strangers: of its sources with targets of other pairs.  The sample is a
    mixture of both kinds, and nowhere below a score has it fewer pairs than its share of strangers.
    """
    scores, of_strangers = (part[~np.isnan(part)] for part in (scores, of_strangers))
    if not len(scores) or not len(of_strangers):  # nan: too long to be scored
        return -np.inf
    limits = np.quantile(of_strangers, QUANTILES)
    below = np.searchsorted(np.sort(scores), limits) / len(scores)
    share = float((below / QUANTILES).min())
    precise = np.flatnonzero(share * QUANTILES >= PRECISION * below)
    if share < MIN_SHARE or not len(precise):
        return float(np.quantile(of_strangers, 0.02))
    return float(limits[precise[-1]])


class LengthLimits:
    """Median and spread of the log ratio of lengths, by length."""

    def __init__(self, sample: list[Pair]) -> None:
        if not sample:
            sample = [("", "")]
        both = np.array([_lengths(pair) for pair in sample])
        means, ratios = both.sum(axis=1) / 2, both[:, 1] - both[:, 0]
        self._edges = np.quantile(means, np.linspace(0, 1, EXAMINE_BINS + 1)[1:-1])
        bins = np.searchsorted(self._edges, means)
        every = float(np.median(ratios))
        inside = [ratios[bins == number] for number in range(EXAMINE_BINS)]
        self._medians = [float(np.median(r)) if len(r) else every for r in inside]
        spreads = [
            float(np.median(np.abs(r - m))) if len(r) else 0.0
            for r, m in zip(inside, self._medians, strict=True)
        ]
        least = float(np.log(LEAST_RATIO))
        self._limits = [max(DEVIATIONS * 1.4826 * spread, least) for spread in spreads]

    def fault(self, pair: Pair) -> str | None:
        """Lengths that do not fit each other."""
        source, target = _lengths(pair)
        number = int(np.searchsorted(self._edges, (source + target) / 2))
        if abs(target - source - self._medians[number]) <= self._limits[number]:
            return None
        return f"{len(pair[0])} characters for {len(pair[1])}"


def _lengths(pair: Pair) -> tuple[float, float]:
    return float(np.log(len(pair[0].strip()) + SPARE)), float(np.log(len(pair[1].strip()) + SPARE))


logger = logging.getLogger("transduce")

SCORED = 4_000
"""Pairs of the sample whose scores set the limit of alignment."""
LETTERS = 300
"""Characters of each side in the sample: 60 MB at most."""
AGAINST = -0.5
"""Nats of the lexicon, at most, to report a pair: something speaks against it."""
TOGETHER = 512
"""Pairs examined at a time."""
OTHER_REASONS = ("untranslated", "encoding", "spreadsheet")
"""Checks of texts that no misaligned pair fails by that."""
OF_CORPUS: Mapping[str, str] = {
    "duplicate": "The same pair stands before.",
    "near-duplicate": "A pair that differs in case, punctuation and blanks alone stands before.",
    "leak": "The source, but for case and punctuation, is in held-out data.",
    "length": "The ratio of lengths is far from that of other pairs of this length.",
    "language": "A side is in another language or script than most lines of it.",
    "alignment": "The sides have no more to do with each other than those of different pairs.",
}
"""Checks against the corpus, and their meaning."""
KINDS: Mapping[str, str] = {
    **OF_CORPUS,
    **{kind: str(check.__doc__).partition("\n")[0] for kind, check in CHECKS.items()},
}
"""Meaning of all kinds of faults."""

Scorer = Callable[[Sequence[Pair]], Sequence[float]]
"""Scores of pairs, higher for better translations."""


class Examined(NamedTuple):
    """A pair, its place and its faults, by kind."""

    corpus: ExaminedCorpus
    line: int
    pair: Pair
    faults: Mapping[str, str]


def kinds_of_task(kinds: Sequence[str], sample: Sequence[Pair]) -> list[str]:
    """Kinds of faults to look for, without untranslated pairs, and with a warning, for a task that
    copies: an export of texts without their translations looks like one."""
    if "untranslated" not in kinds or not (copied := copied_pairs(sample)):
        return list(kinds)
    logger.warning(
        f"{copied:,} of {len(sample):,} pairs share most words of their sides: equal sides are not "
        "looked for; if these were to be translated, export them with their translations, or leave "
        "them out"
    )
    return [kind for kind in kinds if kind != "untranslated"]


def examined(
    corpora: Sequence[ExaminedCorpus],
    kinds: Sequence[str],
    scorer: Scorer | None = None,
    learn: Callable[[list[Pair]], list[Pair]] = list,
    processes: int = 1,
) -> Iterator[Examined]:
    """Every pair of the corpora, those held out first, with its faults of some kinds.

    scorer: of alignment; by default a lexicon of the corpus.  learn: called with the sample of the
    corpora; gives the sample to learn limits from.  processes: for the work without a scorer; they
    change no answer.  Raises DataError.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="doctor-")))
        repeated = stack.enter_context(closing(_Repeated(corpora, directory)))
        sample = Sample[Pair]()
        for number, corpus in enumerate(corpora):
            for line, pair in corpus.pairs():
                repeated.add(number, line, pair)
                if corpus.split == "train" and all(text.strip() for text in pair):
                    sample.add((pair[0][:LETTERS], pair[1][:LETTERS]))
        repeated.sort()
        usual = _Usual(learn(sample.rows), kinds, scorer)
        del sample
        work = functools.partial(_faults, usual, [kind for kind in kinds if kind in CHECKS])
        under_way: deque[tuple[ExaminedCorpus, list[tuple[int, Pair]]]] = deque()

        def batches() -> Iterator[list[Pair]]:
            for corpus in corpora:
                for batch in chunks(corpus.pairs(), TOGETHER):
                    under_way.append((corpus, batch))
                    yield [pair for _, pair in batch]

        positions = itertools.count()
        workers = in_workers(work, batches(), 1 if scorer else processes)
        for of_batch in stack.enter_context(closing(workers)):
            corpus, batch = under_way.popleft()
            for (line, pair), alone in zip(batch, of_batch, strict=True):
                before = repeated.faults(next(positions))
                faults = {**(before if has_text(pair) else {}), **alone}
                ordered = {kind: faults[kind] for kind in kinds if kind in faults}
                yield Examined(corpus, line, pair, ordered)


def _faults(usual: "_Usual", kinds: Sequence[str], pairs: Sequence[Pair]) -> list[dict[str, str]]:
    """Faults of each pair but that it repeats another; those of a blank one are its blanks."""
    of_corpus = zip(pairs, usual.faults(pairs), strict=True)
    return [
        {**learned, **checked(pair, kinds)}
        if has_text(pair)
        else checked(pair, [kind for kind in kinds if kind == "empty"])
        for pair, learned in of_corpus
    ]


class _Repeated:
    """Duplicates and leaks among all lines, numbered through all corpora."""

    def __init__(self, corpora: Sequence[ExaminedCorpus], directory: Path) -> None:
        self._corpora = corpora
        names = ("pair", "folded", "source")
        self._keys = {name: Repeats(directory, name) for name in names}
        self._counts, self._ends = [0] * len(corpora), [0]
        self._lines = (directory / "lines").open("w+b", buffering=1 << 20)
        self._numbers: NDArray[np.int64] = np.empty(0, np.int64)
        self._firsts: dict[str, NDArray[np.int64]] = {}

    def add(self, corpus: int, line: int, pair: Pair) -> None:
        """Next line, of a corpus by its number."""
        self._counts[corpus] += 1
        self._lines.write(line.to_bytes(8, "little"))
        source, target = pair[0].strip(), pair[1].strip()
        plain = folded(source), folded(target)
        blank = not source or not target
        self._keys["pair"].add(NO_KEY if blank else hash_of((source, target)))
        self._keys["folded"].add(NO_KEY if blank else hash_of(plain))
        self._keys["source"].add(NO_KEY if blank else hash_of((plain[0], "")))

    def sort(self) -> None:
        """End of the lines."""
        self._lines.close()
        self._ends = list(itertools.accumulate(self._counts))
        if any(self._counts):
            self._numbers = np.memmap(self._lines.name, np.int64, "r")
        self._firsts = {name: keys.firsts() for name, keys in self._keys.items()}

    def close(self) -> None:
        """Close the file of line numbers."""
        self._lines.close()

    def faults(self, position: int) -> dict[str, str]:
        """Faults of a line by its number."""
        corpus = self._corpora[self._corpus_of(position)]
        faults = {}
        same, alike, source = (int(self._firsts[n][position]) for n in ("pair", "folded", "source"))
        if same != position and self._corpora[self._corpus_of(same)].split == corpus.split:
            faults["duplicate"] = f"as {self._named(same)}"
        elif alike != position and self._corpora[self._corpus_of(alike)].split == corpus.split:
            faults["near-duplicate"] = f"as {self._named(alike)}"
        if source != position and self._corpora[self._corpus_of(source)].split != corpus.split:
            faults["leak"] = f"source of {self._named(source)}"
        return faults

    def _corpus_of(self, position: int) -> int:
        return bisect.bisect(self._ends, position)

    def _named(self, position: int) -> str:
        return f"{self._corpora[self._corpus_of(position)].name}:{self._numbers[position]}"


class _Usual:
    """Lengths, languages and alignment of a sample."""

    def __init__(self, sample: list[Pair], kinds: Sequence[str], scorer: Scorer | None) -> None:
        self._lengths = LengthLimits(sample) if "length" in kinds else None
        self._sides: list[CorpusSide] = []
        self._scorer: Scorer | None = None
        self._least = -np.inf
        if "language" in kinds:
            detector = _detector()
            self._sides = [CorpusSide([pair[side] for pair in sample], detector) for side in (0, 1)]
        if "alignment" in kinds:
            # Pairs that are faulty for other reasons would pass for misaligned ones.
            sound = [
                pair
                for pair in sample
                if not checked(pair, OTHER_REASONS) and "language" not in self._plain(pair)
            ]
            support = Support(sound) if scorer is None else None
            self._scorer = scorer if support is None else support.of_all
            pairs = sound[:: max(1, len(sound) // SCORED)]
            strangers = [
                (source, pairs[(number * 7919 + 13) % len(pairs)][1])
                for number, (source, _) in enumerate(pairs)
            ]
            apart = scorer if support is None else support.of_strangers
            assert self._scorer is not None and apart is not None
            scores = np.array(self._scorer(pairs), float), np.array(apart(strangers), float)
            self._least = misaligned_below(*scores)
            if support is not None:
                self._least = min(self._least, AGAINST)

    def faults(self, pairs: Sequence[Pair]) -> Iterator[dict[str, str]]:
        """Faults of each pair."""
        scores = [np.inf] * len(pairs) if self._scorer is None else self._scorer(pairs)
        for pair, score in zip(pairs, scores, strict=True):
            faults = self._plain(pair)
            if self._scorer is not None and score < self._least:
                faults["alignment"] = f"score {score:.2f}, below {self._least:.2f}"
            yield faults

    def _plain(self, pair: Pair) -> dict[str, str]:
        """Faults of length and language."""
        faults: dict[str, str] = {}
        if self._lengths is not None and (fault := self._lengths.fault(pair)):
            faults["length"] = fault
        for side, text in zip(self._sides, pair, strict=False):
            if fault := side.foreign(text):
                faults["language"] = fault
        if (
            pair[0].strip() == pair[1].strip()
            and self._sides
            and is_of_a_side(pair[0], self._sides)
        ):
            faults["untranslated"] = "target equals source"
        return faults


def _detector() -> Detector | None:
    """Detector of the server; None without its extra."""
    try:
        return loaded_detector()
    except TransduceError as error:
        logger.warning("%s; the script of each side is checked, the language is not", error)
        return None
