"""The command `transduce`: run a verb, and report an error in one line.

    exit code   0  done
                1  the input, the run or the training is at fault
                2  the command, an option or a setting is at fault
              130  interrupted (128 + the number of the signal; 143 for SIGTERM)
              141  nobody reads the output any more, as for `cat` or `grep` in a pipe

Nothing here imports torch: `--help` must answer at once.
"""

from __future__ import annotations

import keyword
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from cyclopts import App, CycloptsError, Parameter

import transduce
from transduce.cli.console import log_to_stderr, print_error
from transduce.errors import OUT_OF_MEMORY, SettingError, TransduceError, is_out_of_memory

VERBS = {
    "train": "Train a model by a recipe.",
    "distil": "Train a student on what a teacher makes of the training sources, or of other texts.",
    "backtranslate": "Train on monolingual text too, with sources that a reverse run makes.",
    "sweep": "Train a recipe with several values of some settings, and say which did best.",
    "translate": "Translate lines of text, from a file or as they come.",
    "predict": "Answer each line of input: a label, an answer, a continuation, a translation.",
    "generate": "Go on from a prompt, and show the text as it comes.",
    "chat": "Talk with a model that was trained on dialogues.",
    "evaluate": "Predict for held-out inputs and measure the answers.",
    "compare": "Put runs side by side: settings that differ, scores with intervals, curves.",
    "score": "Print the log-probability of each given pair.",
    "align": "Print which words of each source and target belong together.",
    "shortlist": "Learn which few target tokens a source can need, for faster translation.",
    "calibrate": "Learn to say how good a translation is, without a reference.",
    "average": "Average the weights of several runs, or of a run's last checkpoints.",
    "merge": "Make a run from a base run and an adapter that LoRA trained on top of it.",
    "import": "Make a run directory of a Hugging Face directory: BERT, GPT-2, ViT or Marian.",
    "export": "Write a run as a directory that another program loads: CTranslate2.",
    "info": "Say what a run is: sizes, scores, checkpoints, settings.",
    "demo": "Train a speller on the CMU Pronouncing Dictionary and pronounce words it never saw.",
}
"""Each verb is the function of that name in the file of that name, and is imported when used."""


def name_in_python(verb: str) -> str:
    """The name of a verb's file and function: `import` itself is a word of the language."""
    return f"{verb}_" if keyword.iskeyword(verb) else verb


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default that of `sys.argv`; returns the exit code."""
    # Threads that spin at OpenMP's barriers burn the core that another process needs: up to four
    # times slower on a busy machine.  It must be said before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    log_to_stderr()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with _ended_by_sigterm():
            app = build_app()
            result = app(with_plain_hyphens(app, arguments))
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        print_error(usage_message(error))
        return SettingError.exit_code
    except TransduceError as error:
        print_error(str(error))
        return error.exit_code
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except OSError as error:  # no space left, no permission: the machine's no, not a bug of ours
        where = f"{error.filename}: " if error.filename else ""
        print_error(f"{where}{error.strerror or error}")
        return TransduceError.exit_code
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        print_error(OUT_OF_MEMORY)
        return TransduceError.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except SystemExit as end:  # so rich ends a page of --help that nobody reads
        if isinstance(end.__context__, BrokenPipeError):
            return 128 + signal.SIGPIPE
        raise
    except _interrupted_training() as stop:
        print_error(str(stop))
        return 128 + int(getattr(stop, "number", signal.SIGINT))
    finally:
        _settle_stdout()


def build_app() -> App:
    """The command line with every verb in its place, none of them imported yet."""
    app = App(
        name="transduce",
        help="Train a Transformer on your own pairs, translate with it, measure it.",
        version=transduce.__version__,
        help_format="markdown",
        default_parameter=Parameter(negative=()),
        result_action="return_value",
        print_error=False,
        exit_on_error=False,
    )
    for place, (verb, purpose) in enumerate(VERBS.items()):
        name = name_in_python(verb)
        app.command(f"transduce.cli.{name}:{name}", name=verb, help=purpose, sort_key=place)
    return app


def with_plain_hyphens(app: App, arguments: Sequence[str]) -> list[str]:
    """The arguments without a lone `-`, which cyclopts takes for an option wherever it stands.

    After an option it is the value of that option.  Elsewhere it is FILE, where the verb has one:
    stdin, which is what its absence means too.
    """
    if "-" not in arguments or arguments[0] not in VERBS:
        return list(arguments)
    known = app[arguments[0]].assemble_argument_collection()
    flags = {name for argument in known if argument.hint is bool for name in argument.names}
    takes_file = any("FILE" in argument.names for argument in known)
    kept: list[str] = []
    for place, argument in enumerate(arguments):
        before = kept[-1] if kept else ""
        if argument == "--":
            return [*kept, *arguments[place:]]
        if argument == "-" and before.startswith("--") and not ("=" in before or before in flags):
            kept[-1] = f"{before}=-"
        elif argument != "-" or not takes_file:
            kept.append(argument)
    return kept


def usage_message(error: CycloptsError) -> str:
    """One line for a command that cannot be understood."""
    error.verbose = False
    command = " ".join(["transduce", *(error.command_chain or ())])
    return f"{' '.join(str(error).split())} See `{command} --help`."


def _interrupted_training() -> tuple[type[BaseException], ...]:
    """What training raises after a signal; no need to import torch where nothing has trained."""
    signals = sys.modules.get("transduce.training.signals")
    return () if signals is None else (signals.InterruptedTraining,)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that what is half written is taken away."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:  # whoever called us cares for it
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _settle_stdout() -> None:
    """Let Python's last flush at its exit succeed, or it would report an error once more."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # what could not be written has been complained of
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
