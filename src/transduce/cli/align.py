"""`transduce align`: word alignments of sources and their targets."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from transduce.cli.inputs import split_input
from transduce.cli.lines import STDIN, LineReader
from transduce.cli.options import THIS_MACHINE, Flag, Machine
from transduce.cli.output import STDOUT, check_not_read, open_output, print_lines
from transduce.errors import SettingError

if TYPE_CHECKING:
    from transduce.tasks.translation.alignment import AlignmentOptions, PairLinks
    from transduce.text.pharaoh import GoldLinks, Link

Share = Annotated[float, Parameter(validator=validators.Number(gte=0, lt=1))]


def align(
    run: Path,
    file: Annotated[str, Parameter(show_default=False)] = STDIN,
    /,
    *,
    source: Path | None = None,
    target: Path | None = None,
    reverse: Path | None = None,
    method: Literal["intersection", "union", "grow-diag"] | None = None,
    layer: int | None = None,
    heads: Annotated[str | None, Parameter(show_default=False)] = None,
    threshold: Share | None = None,
    shifted: Flag = False,
    unit: Literal["words", "characters", "tokens"] = "words",
    against: Path | None = None,
    output: Annotated[str, Parameter(show_default=False)] = STDOUT,
    json: Flag = False,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Print which words of each source and target belong together.

    One line for each pair in the format of Pharaoh, `0-0 1-2`: source word, target word, both
    counted from 0.

    Parameters
    ----------
    run
        A run directory; or, with --against, a file of links to score, one line for each pair.
    file
        One pair a line, source and target between a tab, plain or compressed; without it, or
        with -, stdin.
    source
        File with one source text a line, to use with --target instead of FILE.
    target
        File with one target text a line.
    reverse
        A run of the other direction, whose links are joined with this one's as --method says.
    method
        How to join two directions; by default grow-diag.
    layer
        Layer of the decoder, from 0, or from the last on -1; by default the one that guided
        alignment trained, else the last.
    heads
        `mean` of all heads, or the number of one; by default the one that guided alignment
        trained, else the mean.
    threshold
        Link all that is looked at with more than this weight, instead of what each target token
        looks at most.
    shifted
        Look at the step that reads a target token, not the one that predicts it; often better
        where nothing was trained to align.
    unit
        What is counted: words between blanks; characters, which is the same with each Chinese,
        Japanese or Thai character a word by itself; or the tokenizer's tokens.
    against
        File with the right links of each pair, sure ones as 1-2 or 1-2S, possible ones as 1-2P.
        Prints the alignment error rate instead of the links.
    output
        File to write the links to instead of stdout; it appears when it is complete.
    json
        With --against, print one JSON object.
    """
    if (source is None) != (target is None):
        raise SettingError("--source and --target go together; give both")
    if source is not None and file != STDIN:
        raise SettingError(f"--source and {file} both name the pairs; give one of them")
    if method is not None and reverse is None:
        raise SettingError("--method joins two directions; give --reverse too")
    if json and against is None:
        raise SettingError("--json is for the scores of --against; add that")
    check_not_read(output, file, source, target, against)
    if run.is_file():
        if against is None:
            raise SettingError(f"{run} is a file; to score its links, give --against too")
        of_pairs = source is not None or reverse is not None or (file, output) != (STDIN, STDOUT)
        made = shifted or unit != "words" or (layer, heads, threshold) != (None, None, None)
        if of_pairs or made:
            raise SettingError(f"{run} is a file of links; leave out what says how to make them")
        _print_scores(_read_links(run), _read_gold(against), json)
        return
    gold = None if against is None else _read_gold(against)
    from transduce.tasks.translation.alignment import AlignmentOptions

    head, mean = _heads(heads)
    options = AlignmentOptions(layer, head, mean, threshold, unit, shifted)
    pairs = _files(source, target) if source is not None and target is not None else _lines(file)
    links = _links(run, reverse, method or "grow-diag", pairs, options, machine)
    if gold is None:
        _write(output, links)
        return
    found = list(_checked(links, gold, str(against)))
    _print_scores([of_pair.links for of_pair in found], gold, json)  # or that the numbers differ
    if output != STDOUT:
        _write(output, found)


def _heads(text: str | None) -> tuple[int | None, bool]:
    """The number of a head or None, and whether the mean was asked for."""
    if text is None or text == "mean":
        return None, text is not None
    if not text.isdecimal():
        raise SettingError(f"--heads {text}: write mean, or the number of a head from 0")
    return int(text), False


def _links(
    run: Path,
    reverse: Path | None,
    method: Literal["intersection", "union", "grow-diag"],
    pairs: Iterable[tuple[str, str]],
    options: AlignmentOptions,
    machine: Machine,
) -> Iterator[PairLinks]:
    from transduce.tasks.translation.alignment import align_both_ways, align_pairs

    machine.check_no_engine("align")
    forward = machine.load(run).translator
    if reverse is None:
        return align_pairs(forward, pairs, options)
    backward = machine.load(reverse).translator
    return align_both_ways(forward, backward, pairs, method, options)


def _files(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    from transduce.data.pairs import ParallelFiles, read_pairs

    return read_pairs(ParallelFiles(source=source, target=target), Path())


def _lines(file: str) -> Iterator[tuple[str, str]]:
    reader = LineReader(file)
    for batch in reader:
        for number, line in enumerate(batch.lines, batch.first + 1):
            place = f"{reader.name}: line {number}"
            source, target = split_input(line, ("source", "target"), place)
            yield source, target


def _write(output: str, found: Iterable[PairLinks]) -> None:
    from transduce.text.pharaoh import format_links

    with open_output(output) as out:
        for of_pair in found:
            out.write([format_links(of_pair.links)])


def _read_links(file: Path) -> list[frozenset[Link]]:
    return [links.possible for links in _read_gold(file)]


def _read_gold(file: Path) -> list[GoldLinks]:
    from transduce.data.lines import read_lines
    from transduce.text.pharaoh import parse_gold

    lines = enumerate(read_lines(file), 1)
    return [parse_gold(line, f"{file}: line {number}") for number, line in lines]


def _checked(found: Iterable[PairLinks], gold: list[GoldLinks], file: str) -> Iterator[PairLinks]:
    """The same, while no gold link leads outside its pair, as one counted from 1 would."""
    from transduce.text.pharaoh import check_inside

    for number, of_pair in enumerate(found, 1):
        if number <= len(gold):
            place = f"{file}: line {number}"
            check_inside(gold[number - 1].possible, of_pair.n_source, of_pair.n_target, place)
        yield of_pair


def _print_scores(found: list[frozenset[Link]], gold: list[GoldLinks], json: bool) -> None:
    from transduce.metrics.alignment import alignment_scores, alignment_statistics

    scores = alignment_scores(alignment_statistics(found, gold).sum(0))
    if json:
        print_lines(json_format.dumps({**scores, "pairs": len(gold)}))
        return
    print_lines(*(f"{name:<9}  {value:6.2f}" for name, value in scores.items()))
    print_lines(f"{'pairs':<9}  {len(gold):6d}")
