"""`transduce publish`: the files of a run that others need, for the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

from transduce.cli.output import print_lines


def publish(run: Path, directory: Path, /, *, licence: str = "") -> None:
    """Write the files of a run that others need, as the Hub expects them.

    Model card with metadata, weights, tokenizers, and the recipe without paths of this machine.
    Nothing is uploaded. `transduce import DIRECTORY RUN` makes a run of it again.

    Parameters
    ----------
    run
        Run directory of a trained model.
    directory
        Directory to create.
    licence
        Licence of the model, as an identifier of the Hub: apache-2.0, mit, cc-by-4.0.
    """
    from transduce.runs.publishing import publish_run

    print_lines(str(publish_run(run, directory, licence)))
