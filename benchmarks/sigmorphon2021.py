"""Ten languages of SIGMORPHON 2021, medium setting, each pronounced by several models together.

    python benchmarks/sigmorphon2021.py --data $TRANSDUCE_DATA --place sigmorphon2021 \\
      --set training.precision=bf16

Two joint models of all languages by recipes/pronunciation/sigmorphon2021-medium.toml; these tuned
for a language; models of one language alone, some with words of SIGMORPHON 2020 that 2021 does not
have.  MEMBERS lists the models in the ensemble of each language, chosen by the dev words
(arithmetic mean of probabilities).  About five hours on one thread; a second call resumes the
work.  The last lines are the word error rates of each language, dev and test, and their means.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

RECIPE = Path(__file__).parents[1] / "recipes" / "pronunciation" / "sigmorphon2021-medium.toml"

# J1, J2: joint; T1, T2: these tuned; A1 to A6: alone, of which those with a + have words of 2020.
MEMBERS = {
    "arm_e": "J1 J2 T1 A2",
    "bul": "J1 J2 T1 T2 A1 A2 A6+",
    "dut": "J1 J2 T1 T2 A1 A3+ A5+ A6+",
    "fre": "J1 J2 T1 T2 A3+",
    "geo": "J1",
    "hbs_latn": "J1 A1 A4 A5 A6",
    "hun": "J1 J2 T1 T2",
    "jpn_hira": "J1 J2 T1 T2 A3+",
    "kor": "J1 T1 T2 A1",
    "vie_hanoi": "J1 J2 T1 T2",
}
JOINT = {"J1": ("seed=1",), "J2": ("seed=2", "training.steps=24000", "training.average_last=3")}
ALONE = {"A1": (1, 1), "A2": (2, 2), "A3": (1, 3), "A4": (1, 3), "A5": (2, 5), "A6": (1, 6)}
"""The seed of the joint model whose first step they begin with, and their own."""

ONE_LANGUAGE = (
    "training.batch_tokens=384",
    "training.average_last=0",
    "evaluation.validation_pairs=1000",
)
TUNING = (
    *ONE_LANGUAGE,
    "training.steps=2000",
    "training.ema=0.998",
    "training.validate_every=500",
    'training.schedule={kind="cosine",peak=1e-3,warmup_steps=100}',
    "model.encoder.dropout=0",
    "model.decoder.dropout=0",
)
NARROW = ("model.d_model=168",)
LEARNING = (
    *ONE_LANGUAGE,
    *NARROW,
    "training.steps=6000",
    "training.ema=0.999",
    "training.validate_every=1000",
    'training.schedule={kind="cosine",peak=1.4e-3,warmup_steps=300}',
)

Row = tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--data", type=Path, required=True, help="holds sigmorphon2020-g2p and sigmorphon2021-g2p"
    )
    parser.add_argument("--place", type=Path, required=True, help="for words and runs")
    parser.add_argument("--set", action="append", default=[], help="a.b=c, of every model")
    options = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    place = options.place.resolve()
    words, runs = place / "words", place / "runs"
    prepare(options.data, words)
    makers = Makers(words, runs, ["training.threads=1", *options.set])
    rates = []
    for language, names in MEMBERS.items():
        members = [makers.member(name, language) for name in names.split()]
        rates.append(makers.together(language, members))
        print(
            f"{language:10} dev {rates[-1]['dev']:6.2f}  test {rates[-1]['test']:6.2f}", flush=True
        )
    mean = {split: sum(rate[split] for rate in rates) / len(rates) for split in SPLITS}
    print(f"{'mean':10} dev {mean['dev']:6.2f}  test {mean['test']:6.2f}")
    return 0


# --- words -----------------------------------------------------------------------------------

SPLITS = ("dev", "test")


def prepare(data: Path, words: Path) -> None:
    """Files of all languages, of each, and of each with the words of 2020 besides."""
    medium = {
        split: [row for row in read(data, "2021", split) if row[0] == "medium"]
        for split in ("train", *SPLITS)
    }
    earlier = [row for split in ("train", "dev") for row in read(data, "2020", split)]
    for split, rows in medium.items():
        write(words / "all" / f"{split}.tsv.gz", rows)
    for language in MEMBERS:
        own = {split: [row for row in rows if row[1] == language] for split, rows in medium.items()}
        known = {row[2] for rows in own.values() for row in rows}
        phones = {phone for row in own["train"] for phone in row[3].split()}
        more = [
            ("medium", language, word, sound)
            for name, word, sound in earlier
            if language.startswith(name) and word not in known and phones >= set(sound.split())
        ]
        for split, rows in own.items():
            write(words / language / f"{split}.tsv.gz", rows)
            added = more if split == "train" else []
            write(words / f"{language}+" / f"{split}.tsv.gz", rows + added)
        for split in SPLITS:
            spelt = "".join(f"<{language}> {word}\n" for _, _, word, _ in own[split])
            spoken = "".join(f"{sound}\n" for _, _, _, sound in own[split])
            (words / language / f"{split}.words").write_text(spelt, encoding="utf-8")
            (words / language / f"{split}.phones").write_text(spoken, encoding="utf-8")


def read(data: Path, year: str, split: str) -> list[Row]:
    """Columns: setting, language, word, phones; in 2020 no setting."""
    path = data / f"sigmorphon{year}-g2p" / f"{split}.tsv.gz"
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return [tuple(line.rstrip("\n").split("\t")) for line in lines]
    except OSError as error:
        sys.exit(f"{path}: {error.strerror or error}; give a --data that holds it")


def write(path: Path, rows: Iterable[Row]) -> None:
    """The same bytes each time: a resumed run must find the data that it began with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join("\t".join(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


# --- models ----------------------------------------------------------------------------------


class Makers:
    """Trains each model once, by the command line."""

    def __init__(self, words: Path, runs: Path, settings: Sequence[str]) -> None:
        self.words, self.runs, self.settings = words, runs, settings

    def joint(self, name: str) -> Path:
        return self._trained(name, "all", *JOINT[name])

    def member(self, name: str, language: str) -> Path:
        """The run of that name; see MEMBERS."""
        number = int(name[1])
        if name in JOINT:
            return self.joint(name)
        if name in ("T1", "T2"):
            base = self.joint(f"J{number}")
            return self._trained(
                f"{name}-{language}", language, f"seed={number}", f"fine_tune.run={base}", *TUNING
            )
        begun, seed = ALONE[name.rstrip("+")]
        first = (f"seed={begun}", *NARROW, "training.steps=1", "training.average_last=0")
        base = self._trained(f"begun-{begun}", "all", *first)  # so that all have one vocabulary
        place = f"{language}+" if name.endswith("+") else language
        return self._trained(
            f"{name}-{language}", place, f"seed={seed}", f"fine_tune.run={base}", *LEARNING
        )

    def together(self, language: str, members: Sequence[Path]) -> dict[str, float]:
        """Word error rates, in per cent."""
        first, *others = members
        command = ["evaluate", str(first)]
        for other in others:
            command += ["--ensemble", str(other)]
        if others:
            command += ["--ensemble-mean", "arithmetic"]
        rates = {}
        for split in SPLITS:
            files = self.words / language / split
            asked = ["--source", f"{files}.words", "--reference", f"{files}.phones"]
            rates[split] = float(transduce(*command, *asked).split()[1])  # "wer 6.60 per …"
        return rates

    def _trained(self, name: str, place: str, *settings: str) -> Path:
        run = self.runs / name
        if (run / "README.md").is_file():  # is written last
            return run
        changes = [f"data.root={self.words / place}", *self.settings, *settings]
        command = ["train", str(RECIPE), "--run", str(run)]
        for change in changes:
            command += ["--set", change]
        transduce(*command, *(["--resume"] if run.is_dir() else []))
        return run


def transduce(*arguments: str) -> str:
    """Output of a command.  Exits if the command fails."""
    done = subprocess.run(
        [sys.executable, "-m", "transduce", *arguments], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
