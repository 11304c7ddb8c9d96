"""Refusals of published translations by `transduce localise --check`, and faults that it names.

    python benchmarks/published_checks.py [DIRECTORY] [-v]

Downloads the packages of Debian (`apt-get download`, needs dpkg-deb and msgunfmt) into DIRECTORY,
if they are not there, reads their catalogues, and counts for each language the translations whose
source holds a placeholder, tag or accelerator, those that are refused (exit code 1), and those with
warnings alone.  Then plants 500 faults by rule into translations without any, the same in each run,
and counts those that are named.  With -v it prints the refused ones.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from transduce.errors import DataError
from transduce.localise.checks import PLURAL, checked, faults_by, no_glossary
from transduce.localise.document import Record, Segment, Written
from transduce.localise.formats import read_document
from transduce.localise.placeholders import protect

PACKAGES = (
    *("git", "bash", "coreutils", "wget", "dpkg", "apt", "nano", "tar", "libgtk-3-common"),
    *("libglib2.0-data", "gedit-common", "nautilus-data", "evince-common", "caja-common"),
    *("pluma-common", "vlc-l10n", "thunar-data", "geany-common", "filezilla-common"),
)
LANGUAGES = ("de", "fr", "es", "it", "ru", "uk", "zh_CN", "ja", "ko", "ar", "he", "tr")
N_FAULTS = 500
SEED = 1


def extract(directory: Path) -> None:
    """Download and unpack the packages that are not there."""
    directory.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if not (directory / package).exists():
            subprocess.run(["apt-get", "download", package], cwd=directory, check=True)
            (archive,) = directory.glob(f"{package}_*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, directory / package], check=True)


def segments_in(directory: Path, language: str) -> Iterator[Sequence[Segment]]:
    """Segments of each catalogue of a language."""
    for path in sorted(directory.glob(f"*/**/locale/{language}/LC_MESSAGES/*.mo")):
        content = subprocess.run(["msgunfmt", path], check=True, capture_output=True).stdout
        yield read_document("a.po", content, target_language=language).segments


def holds(segment: Segment) -> bool:
    """True for a source with a placeholder, tag or accelerator."""
    try:
        return bool(protect(segment.source, segment.tags, segment.markup, segment.flags).marks)
    except DataError:
        return True


def refusals(directory: Path, language: str) -> tuple[int, list[Record], int]:
    """Number of pairs with placeholders, those that are refused, and the number with warnings."""
    count = n_warned = 0
    refused: list[Record] = []
    for segments in segments_in(directory, language):
        keys = {segment.key.removesuffix(PLURAL) for segment in segments if holds(segment)}
        chosen = [s for s in segments if s.target and s.key.removesuffix(PLURAL) in keys]
        records = checked(chosen, faults_by(no_glossary))
        count += len(records)
        refused += [record for record in records if not record.is_done]
        n_warned += sum(record.is_done and bool(record.reason) for record in records)
    return count, refused, n_warned


def without_first(pattern: str, text: str, new: str = "") -> str:
    """A text with a replacement for the first match of a pattern."""
    return re.sub(pattern, lambda _: new, text, count=1)


LEAST_LETTERS = 12
"""Letters of a source into which a translation of another length is planted."""
ACCELERATOR = re.compile(r"^[^&_]*[&_](?=[^\W_])[^&_]*$")
PLACEHOLDER = r"%[0-9]*\$?[-+#0]*[0-9.]*l?[sdux]"
TAG = r"</?(?:b|i|u|tt|big|small|span|a)\b[^>]*>"
FAULTS: dict[str, Callable[[str], str]] = {
    "placeholder lost": lambda text: without_first(PLACEHOLDER, text),
    "placeholder doubled": lambda text: re.sub(f"({PLACEHOLDER})", r"\1 \1", text, count=1),
    "placeholder renamed": lambda text: re.sub(r"(%\(|\{)(\w+)([)}])", r"\1x\2\3", text, count=1),
    "placeholder retyped": lambda text: re.sub(
        r"(%[0-9]*\$?)([sd])", lambda m: m[1] + ("d" if m[2] == "s" else "s"), text, count=1
    ),
    "placeholder added": lambda text: f"{text} %s",
    "tag lost": lambda text: without_first(TAG, text),
    "tag unbalanced": lambda text: without_first(r"</[a-z]+>", text),
    "tags reversed": lambda text: re.sub(r"<([a-z]+)>(.*?)</\1>", r"</\1>\2<\1>", text, count=1),
    "accelerator lost": lambda text: without_first(r"[&_](?=\w)", text),
    "accelerator doubled": lambda text: re.sub(r"([&_])(\w)(\w)", r"\1\2\1\3", text, count=1),
    "newline at the end": lambda text: text.rstrip("\n") if text[-1:] == "\n" else f"{text}\n",
    "blank at the beginning": lambda text: f" {text}",
    "blank at the end": lambda text: f"{text} ",
    "end punctuation": lambda text: re.sub(r"[.:!?。：！？](\s*)$", r"\1", text),
    "end punctuation changed": lambda text: re.sub(r"[.。](\s*)$", r"!\1", text),
    "ellipsis": lambda text: re.sub(r"(\.\.\.|…)(\s*)$", r"\2", text),
    "bracket lost": lambda text: without_first(r"[)）]", text),
    "bracket added": lambda text: f"({text}",
    "quote lost": lambda text: without_first('["«»„“”「」]', text),
    "word doubled": lambda text: re.sub(r"\b([^\W\d_]{4,})\b", r"\1 \1", text, count=1),
    "blank doubled": lambda text: text.replace(" ", "  ", 1),
    "copy of the source": lambda text: "",
    "far too short": lambda text: text[: max(len(text) // 20, 1)],
    "far too long": lambda text: " ".join([text] * 8),
    "number lost": lambda text: without_first(r"(?<![\w%])[0-9]{2,}(?![\w$])", text),
    "address changed": lambda text: re.sub(r"(https?://)(\w)", r"\1x\2", text, count=1),
    "mail changed": lambda text: re.sub(r"(\w)@(\w+\.)", r"\1@x\2", text, count=1),
    "option lost": lambda text: without_first(r"--[a-z][a-z-]+", text),
    "escape lost": lambda text: without_first(r"\\[nt]", text),
    "tab lost": lambda text: without_first("\t", text),
    "capital": lambda text: text[:1].lower() + text[1:],
}
"""A fault by rule in a translation; one that changes nothing cannot be planted there."""


def planted(directory: Path) -> tuple[Counter[str], Counter[str]]:
    """Planted faults by kind, and those that are named."""
    pool: list[Segment] = []
    for language in LANGUAGES:
        for segments in segments_in(directory, language):
            pool += [s for s in segments if s.target and not s.key.endswith(PLURAL) and not s.flags]
    choice = random.Random(SEED)
    choice.shuffle(pool)
    faults = faults_by(no_glossary)
    n_planted: Counter[str] = Counter()
    n_named: Counter[str] = Counter()
    kinds = list(FAULTS)
    for segment in pool:
        if n_planted.total() == N_FAULTS:
            break
        whole = segment.translations[0].text
        if len(segment.written) > 1 or any(faults(segment, Written(whole))):
            continue
        fewest = -(-N_FAULTS // len(kinds))
        for kind in sorted(kinds, key=lambda kind: n_planted[kind]):
            text = FAULTS[kind](whole)
            if kind == "copy of the source" and segment.source.count(" ") > 1:
                text = segment.source
            if kind.startswith("far too") and sum(map(str.isalpha, segment.source)) < LEAST_LETTERS:
                continue
            if kind.startswith("accelerator") and not ACCELERATOR.search(segment.source):
                continue
            if n_planted[kind] < fewest and text != whole and text.strip():
                n_planted[kind] += 1
                found = list(faults(segment, Written(text)))
                n_named[kind] += bool(found)
                if not found:
                    print(f"  not named, {kind}: {segment.source!r} | {text!r}")
                break
    return n_planted, n_named


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", nargs="?", type=Path, default=Path("/tmp/published"))
    parser.add_argument("-v", action="store_true", help="print the refused translations")
    asked = parser.parse_args()
    directory = asked.directory
    extract(directory)
    print("language", "pairs", "refused", "with warnings", sep="\t")
    for language in LANGUAGES:
        count, refused, n_warned = refusals(directory, language)
        shares = (f"{100 * n / count:.2f} %" for n in (len(refused), n_warned))
        print(language, count, *shares, sep="\t", flush=True)
        if asked.v:
            for record in refused:
                print("   ", record.reason, "|", repr(record.source), "|", repr(record.target))
    n_planted, n_named = planted(directory)
    for kind in FAULTS:
        print(f"{kind}: {n_named[kind]} of {n_planted[kind]}")
    print(f"named: {n_named.total()} of {n_planted.total()}")


if __name__ == "__main__":
    main()
