"""Looks for files that make a reader fall, hang or take all memory, guided by what code they reach.

    python tests/fuzz/fuzz.py                       every entrance, a minute each
    python tests/fuzz/fuzz.py idx zip --seconds 600

Needs atheris, which the extra `dev` brings on Linux.  Each entrance is a process of its own, which
ends at the first file that makes anything of it but its content or one line of ours, takes more
than 20 seconds, or more than 2 GiB; the file is named.  Put it into `tests/fuzz/fallen/ENTRANCE/`,
where a test reads it from then on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

LOOKED_INTO = (
    *("transduce.settings.sections", "transduce.data", "transduce.vision", "transduce.text"),
    *("transduce.training.weight_files", "transduce.training.weights"),
    "transduce.training.weight_files",
)
LIMITS = ("-timeout=20", "-rss_limit_mb=2048", "-max_len=4096", "-print_final_stats=1")


def fuzz_one(name: str, directory: Path, arguments: list[str]) -> None:
    """Give files to one entrance for as long as `arguments` say; ends the process."""
    import atheris

    with atheris.instrument_imports(include=list(LOOKED_INTO)):
        from helpers.hostile import entrances
    entrance = entrances(directory)[name]
    seeds = directory / "seeds"
    seeds.mkdir()
    for number, seed in enumerate(entrance.seeds):
        (seeds / str(number)).write_bytes(seed)
    atheris.Setup(
        [sys.argv[0], *arguments, str(seeds)], lambda content: entrance.enter(content, directory)
    )
    atheris.Fuzz()


def fuzz(name: str, arguments: list[str]) -> bool:
    """Whether an entrance stood; what libFuzzer says goes to stderr."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "--one", name, directory, *LIMITS, *arguments]
        return subprocess.run(command, check=False).returncode == 0


def main() -> int:
    """Read the command line; the number of entrances that fell."""
    if sys.argv[1:2] == ["--one"]:
        name, directory, *arguments = sys.argv[2:]
        fuzz_one(name, Path(directory), arguments)
    from helpers.hostile import entrances

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("entrances", nargs="*", metavar="ENTRANCE")
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        known = entrances(Path(directory))
    if unknown := set(options.entrances) - set(known):
        parser.error(f"there is no {min(unknown)!r}; there are {', '.join(sorted(known))}")
    fallen = [
        name
        for name in options.entrances or known
        if not fuzz(name, [f"-max_total_time={options.seconds}"])
    ]
    said = " ".join([f"{len(fallen)} of {len(options.entrances or known)} fell", *fallen])
    sys.stderr.write(said + "\n")
    return len(fallen)


if __name__ == "__main__":
    sys.exit(main())
