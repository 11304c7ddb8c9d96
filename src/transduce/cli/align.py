"""`transduce align`: word alignments of sources and their targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from transduce.cli.inputs import STDIN, LineReader, numbered_inputs, pairs_of_files
from transduce.cli.options import Flag, Machine
from transduce.cli.output import STDOUT, check_not_read, open_output, print_json, print_lines
from transduce.errors import SettingError

if TYPE_CHECKING:
    from transduce.tasks.translation.alignment import AlignmentOptions, PairLinks
    from transduce.text.alignment import GoldLinks, Link


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
    machine: Machine = Machine(),
) -> None:
    """Extract word alignments from attention.

    Writes one line of links per sentence pair in Pharaoh format: `0-0 1-2`, source and target
    positions counted from 0. With --against, prints the alignment error rate (AER) instead.

    Parameters
    ----------
    run
        Run directory; with --against, also a file of links to evaluate, a line per pair.
    file
        Input file with a tab-separated sentence pair per line, plain or compressed. Default:
        stdin (also -).
    source
        File with a source text per line; requires --target and replaces FILE.
    target
        File with a target text per line.
    reverse
        Run of the opposite direction, for symmetrised alignment.
    method
        Symmetrisation of the two directions. Default: grow-diag.
    layer
        Decoder layer, counted from 0, or from -1 for the last. Default: the layer of guided
        alignment, else the last.
    heads
        Attention head, counted from 0, or `mean` of all heads. Default: the head of guided
        alignment, else mean.
    threshold
        Link every source token with more attention than this, instead of only the most attended
        one.
    shifted
        Use the attention of the step that reads a target token instead of the step that predicts
        it; often better without guided alignment.
    unit
        Unit of the links: words (separated by spaces), characters (words, but single Chinese,
        Japanese and Thai characters) or the tokenizer's tokens.
    against
        File with reference links per pair: sure links as 1-2 or 1-2S, possible links as 1-2P.
        Prints the alignment error rate.
    output
        Output file, written atomically. Default: stdout.
    json
        With --against, print a JSON object.
    """
    if (source is None) != (target is None):
        raise SettingError("--source and --target must be given together")
    if source is not None and file != STDIN:
        raise SettingError(f"--source cannot be combined with FILE ({file}); give one of them")
    if method is not None and reverse is None:
        raise SettingError("--method requires --reverse")
    if json and against is None:
        raise SettingError("--json requires --against")
    check_not_read(output, file, source, target, against)
    if run.is_file():
        if against is None:
            raise SettingError(
                f"{run} is a file, not a run directory; to evaluate its links, add --against"
            )
        of_pairs = source is not None or reverse is not None or (file, output) != (STDIN, STDOUT)
        made = shifted or unit != "words" or (layer, heads, threshold) != (None, None, None)
        if of_pairs or made:
            raise SettingError(f"{run} is a file of links; only --against and --json apply to it")
        links_of_file = [links.possible for links in _read_gold(run)]
        _print_error_rate(links_of_file, _read_gold(against), json)
        return
    gold = None if against is None else _read_gold(against)
    from transduce.tasks.translation.alignment import AlignmentOptions

    head, mean = _heads(heads)
    options = AlignmentOptions(layer, head, mean, threshold, unit, shifted)
    pairs = _lines(file)
    if source is not None and target is not None:
        pairs = pairs_of_files(source, target)
    links = _links(run, reverse, method or "grow-diag", pairs, options, machine)
    if gold is None:
        _write(output, links)
        return
    checked = list(_checked(links, gold, str(against)))
    _print_error_rate(
        [of_pair.links for of_pair in checked], gold, json
    )  # checks the number of pairs
    if output != STDOUT:
        _write(output, checked)


def _heads(text: str | None) -> tuple[int | None, bool]:
    """Number of the head, or None; True to take the mean of all heads."""
    if text is None or text == "mean":
        return None, text is not None
    if not text.isdecimal():
        raise SettingError(f"--heads: expected mean or the number of a head from 0, got {text!r}")
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

    machine = machine.without_engine("align")
    forward = machine.load(run).translator
    if reverse is None:
        return align_pairs(forward, pairs, options)
    backward = machine.load(reverse).translator
    return align_both_ways(forward, backward, pairs, method, options)


def _lines(file: str) -> Iterator[tuple[str, str]]:
    for _, (source, target) in numbered_inputs(LineReader(file), ("source", "target")):
        yield source, target


def _write(output: str, links: Iterable[PairLinks]) -> None:
    from transduce.text.alignment import format_links

    with open_output(output) as out:
        for of_pair in links:
            out.write([format_links(of_pair.links)])


def _read_gold(file: Path) -> list[GoldLinks]:
    from transduce.data.text_files import read_lines
    from transduce.text.alignment import parse_gold

    lines = enumerate(read_lines(file), 1)
    return [parse_gold(line, f"{file}: line {number}") for number, line in lines]


def _checked(links: Iterable[PairLinks], gold: list[GoldLinks], file: str) -> Iterator[PairLinks]:
    """Yield the links; raise for gold links outside their pair, such as links counted from 1."""
    from transduce.text.alignment import check_inside

    for number, of_pair in enumerate(links, 1):
        if number <= len(gold):
            where = f"{file}: line {number}"
            check_inside(gold[number - 1].possible, of_pair.n_source, of_pair.n_target, where)
        yield of_pair


def _print_error_rate(links: list[frozenset[Link]], gold: list[GoldLinks], json: bool) -> None:
    from transduce.metrics.alignment import alignment_scores, alignment_statistics

    scores = alignment_scores(alignment_statistics(links, gold).sum(0))
    if json:
        print_json({**scores, "pairs": len(gold)})
        return
    print_lines(*(f"{name:<9}  {value:6.2f}" for name, value in scores.items()))
    print_lines(f"{'pairs':<9}  {len(gold):6d}")
