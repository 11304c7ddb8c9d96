"""`transduce page`: a page that learns a table in a browser."""

from __future__ import annotations

from pathlib import Path

from transduce.cli.options import Flag
from transduce.cli.output import STDOUT, check_page, open_output, print_lines


def page(file: Path, /, *, again: Flag = False) -> None:
    """Write a page that learns two columns in a browser, and saves itself as a page.

    One file without a server or an installation: paste a table, train, ask, and save a page that
    answers by itself, or a run for `transduce import`. A second tab trains small models with dials,
    for a class. Prints the path.

    Parameters
    ----------
    file
        File to write, such as learner.html.
    again
        Replace an existing file. Default: it is kept, and the exit status is 1.
    """
    check_page(str(file), again)
    from transduce.making.learner_page import learner_page

    content = learner_page()
    with open_output(str(file)) as output:
        output.write_text(content)
    if str(file) != STDOUT:
        print_lines(str(file))
