"""The command `transduce`: run a verb, and report an error in one line.

    exit code   0  done
                1  error in the input, the run or training
                2  error in the command, an option or a setting
                3  faults in the data, by `doctor`
              130  interrupted (128 + the signal number; 143 for SIGTERM)
              141  output pipe closed, as by `head`

No import of torch here, so that `--help` answers at once.
"""

import keyword
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from cyclopts import App, CycloptsError, Group, MissingArgumentError, Parameter, UnknownOptionError

import transduce
from transduce.cli.console import log_to_stderr, print_error
from transduce.errors import (
    NEEDS_TORCH,
    OUT_OF_MEMORY,
    SettingError,
    TransduceError,
    is_out_of_memory,
    lacks_evaluation,
    lacks_torch,
    needs_extra,
)

VERB_GROUPS = {
    "Training": {
        "make": "Make the best model for some files within some minutes, and an account of it.",
        "page": "Write a page that learns two columns in a browser, and saves itself as a page.",
        "doctor": "Find the faults of parallel data, and write it without them.",
        "recipes": "List the recipes that come with the package, or print one.",
        "prepare": "Read, tokenise and encode the data of a recipe, without training.",
        "train": "Train a model from a recipe.",
        "distil": "Train a student by sequence-level knowledge distillation.",
        "backtranslate": "Train with back-translated monolingual text.",
        "sweep": "Train a recipe over a grid or search of hyperparameters.",
        "demo": "Train a small model within minutes and show its attention.",
    },
    "Prediction": {
        "translate": "Translate lines of text.",
        "localise": "Translate documents and keep their form.",
        "predict": "Predict an output for each input line, for any task.",
        "generate": "Continue a prompt with a language model.",
        "chat": "Chat with a dialogue model.",
        "serve": "Serve runs over HTTP, for clients of LibreTranslate, OpenAI and DeepL.",
        "transcribe": "Transcribe recordings of any length, with times.",
        "speak": "Synthesise lines of text as WAV files.",
    },
    "Evaluation": {
        "evaluate": "Evaluate a run on held-out data.",
        "compare": "Compare the settings, scores and learning curves of runs.",
        "score": "Score sentence pairs or rerank an n-best list.",
        "align": "Extract word alignments from attention.",
        "explain": "Explain a prediction: steps, attention heads, search and layers.",
    },
    "Runs": {
        "info": "Show the model size, settings, scores and checkpoints of a run.",
        "average": "Average the weights of runs or checkpoints.",
        "merge": "Merge a LoRA adapter into its base run.",
        "import": (
            "Import a model of Hugging Face (BERT, GPT-2, NLLB, …), CTranslate2, Marian or "
            "OpenNMT-py."
        ),
        "export": (
            "Export a run for CTranslate2, Argos Translate, transformers, ONNX Runtime or a web "
            "page."
        ),
        "publish": "Write the files of a run that others need, as the Hub expects them.",
        "shortlist": "Learn a vocabulary shortlist for faster translation.",
        "calibrate": "Fit reference-free quality estimation for a translation run.",
    },
}
"""Verbs by group; each is the function of that name in its module."""
MODULES = {
    **dict.fromkeys(("average", "export", "import", "info", "merge", "publish", "recipes"), "runs"),
    **dict.fromkeys(("distil", "backtranslate"), "synthetic"),
    **dict.fromkeys(("generate", "chat"), "predict"),
    **dict.fromkeys(("transcribe", "speak"), "speech"),
    **dict.fromkeys(("prepare", "sweep"), "train"),
    "score": "evaluate",
    "shortlist": "calibrate",
    "doctor": "make",
}
"""Modules of the verbs that share one; those of others have the names of their verbs."""
BROKEN_PIPE = 128 + 13
"""Exit code if the reader of stdout has ended, as after SIGPIPE, which Windows lacks."""
VERBS = {verb: purpose for verbs in VERB_GROUPS.values() for verb, purpose in verbs.items()}


def name_in_python(verb: str) -> str:
    """Name of a verb's function, with an underscore after a Python keyword."""
    return f"{verb}_" if keyword.iskeyword(verb) else verb


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the given command line, by default `sys.argv`; return the exit code."""
    # Threads spinning at OpenMP barriers slow a busy machine down up to four times.  The variable
    # has an effect only before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Looking for plugins of pydantic reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    log_to_stderr()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with _ended_by_sigterm():
            app = build_app(arguments[0] if arguments else None)
            result = app(with_plain_hyphens(app, arguments))
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        print_error(usage_message(error))
        return SettingError.exit_code
    except TransduceError as error:
        print_error(str(error))
        return error.exit_code
    except BrokenPipeError:
        return BROKEN_PIPE
    except OSError as error:  # no space left, no permission
        where = f"{error.filename}: " if error.filename else ""
        print_error(f"{where}{error.strerror or error}")
        return TransduceError.exit_code
    except ImportError as error:
        verb = f"`transduce {arguments[0]}`"
        if lacks_torch(error):
            print_error(f"{verb} {NEEDS_TORCH}")
        elif lacks_evaluation(error):
            print_error(needs_extra(verb, "evaluate"))
        else:
            raise
        return TransduceError.exit_code
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        print_error(OUT_OF_MEMORY)
        return TransduceError.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except SystemExit as end:  # rich ends --help so, when the pipe is closed
        if isinstance(end.__context__, BrokenPipeError):
            return BROKEN_PIPE
        raise
    except _interrupted_training() as stop:
        print_error(str(stop))
        return 128 + int(getattr(stop, "number", signal.SIGINT))
    finally:
        _settle_stdout()


def build_app(described: str | None = None) -> App:
    """Command line with every verb registered, none of them imported.

    described: verb whose help shows its whole docstring, not only the first line.
    """
    options = Group("Options", sort_key=len(VERB_GROUPS))
    app = App(
        name="transduce",
        help="Train, evaluate and run Transformer models for translation and related tasks.",
        version=transduce.__version__,
        help_format="markdown",
        default_parameter=Parameter(negative=()),
        group_parameters=options,
        result_action="return_value",
        print_error=False,
        exit_on_error=False,
    )
    for number, (title, verbs) in enumerate(VERB_GROUPS.items()):
        group = Group(title, sort_key=number)
        for rank, (verb, purpose) in enumerate(verbs.items()):
            app.command(
                f"transduce.cli.{MODULES.get(verb, verb)}:{name_in_python(verb)}",
                name=verb,
                help=None if verb == described else purpose,
                group=group,
                sort_key=rank,
            )
    for flag in ("--help", "--version"):
        app[flag].group = options
    return app


def with_plain_hyphens(app: App, arguments: Sequence[str]) -> list[str]:
    """Arguments without a lone `-`, which cyclopts would parse as an option.

    After an option, it is attached as that option's value.  Elsewhere it stands for stdin, the
    default of FILE, and is dropped.
    """
    if "-" not in arguments or arguments[0] not in VERBS:
        return list(arguments)
    known = app[arguments[0]].assemble_argument_collection()
    flags = {name for argument in known if argument.hint is bool for name in argument.names}
    takes_file = any("FILE" in argument.names for argument in known)
    plain: list[str] = []
    for index, argument in enumerate(arguments):
        before = plain[-1] if plain else ""
        if argument == "--":
            return [*plain, *arguments[index:]]
        if argument == "-" and before.startswith("-") and not ("=" in before or before in flags):
            plain[-1] = f"{before}=-"
        elif argument != "-" or not takes_file:
            plain.append(argument)
    return plain


def usage_message(error: CycloptsError) -> str:
    """Usage error as one line."""
    error.verbose = False
    command = " ".join(["transduce", *(error.command_chain or ())])
    message = _missing(error) if isinstance(error, MissingArgumentError) else str(error)
    if isinstance(error, UnknownOptionError):
        message = _with_longer_name(message, error)
    return f"{' '.join(message.split())} See `{command} --help`."


def _with_longer_name(message: str, error: UnknownOptionError) -> str:
    """Message that suggests an option of which the unknown one is the beginning."""
    begun = (error.token.keyword or error.token.value).partition("=")[0]
    names = (name for argument in error.argument_collection for name in argument.names)
    longer = next((name for name in sorted(names, key=len) if name.startswith(f"{begun}-")), None)
    return f"Unknown option: {begun}. Did you mean {longer}?" if longer else message


def _missing(error: MissingArgumentError) -> str:
    """Name and meaning of a required argument that is missing, or an option without its value."""
    argument, app = error.argument, error.app
    assert argument is not None and app is not None
    option = error.keyword or next((token.keyword for token in argument.tokens), None)
    if option:
        return f"{option} needs a value."
    described = app.assemble_argument_collection(parse_docstring=True)
    texts = (known.parameter.help or "" for known in described if argument.name in known.names)
    meaning = next(texts, "").partition(". ")[0].rstrip(".")
    kind = "option" if argument.name.startswith("-") else "argument"
    return f"missing {kind} {' or '.join(argument.names)}: {meaning}."


def _interrupted_training() -> tuple[type[BaseException], ...]:
    """Exception of training stopped by a signal; none before training is imported."""
    signals = sys.modules.get("transduce.training.signals")
    return () if signals is None else (signals.InterruptedTraining,)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that incomplete files are removed."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:  # the caller handles it
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _settle_stdout() -> None:
    """Let the final flush at exit succeed, so that no error is reported twice."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # reported already
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
