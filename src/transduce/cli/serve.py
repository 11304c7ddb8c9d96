"""`transduce serve`: an HTTP server for runs."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter, validators

from transduce.cli.console import log_to_stderr
from transduce.cli.options import AuxiliaryModel, Machine
from transduce.errors import SettingError, needs_extra
from transduce.serve.settings import ServeSettings
from transduce.support.work import available_cores

if TYPE_CHECKING:
    from transduce.loading import Run
    from transduce.serve.runs import RunSpec
    from transduce.serve.service import Service
    from transduce.serve.storage import Stores


logger = logging.getLogger("transduce")

RECOGNITION = ("speech-recognition", "speech-translation")
SERVER = Group("Server", sort_key=10)
Settings = Annotated[
    ServeSettings, Parameter(name="*", group=SERVER, show_default=lambda default: default or None)
]
Port = Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65535))]


def serve(
    *runs: Path,
    pair: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    host: str = "127.0.0.1",
    port: Port = 5000,
    language_model: AuxiliaryModel = None,
    settings: Settings = ServeSettings(),
    machine: Machine = Machine(),
) -> None:
    """Serve runs over HTTP, for clients of LibreTranslate, OpenAI and DeepL.

    Translation runs answer under the languages that their recipes name; runs of other tasks answer
    under the name of their directory. SIGTERM ends the server after running requests. The pages
    docs/serving.md and /spec describe the routes.

    Parameters
    ----------
    runs
        Run directories, or folders of runs and of models of Firefox and Argos, which are imported
        when they are first served.
    pair
        A translation run with its languages, like de-en=RUN, where its recipe names none. May be
        repeated.
    host
        Address to listen on; 0.0.0.0 for all.
    port
        Port; 0 for a free port.
    language_model
        Run of a language model for shallow fusion in the recognition of recordings, with the weight
        of each recipe; requires the same vocabulary.
    """
    try:
        from transduce.serve.server import listening_socket, serve_forever, url_of
    except ImportError:
        raise SettingError(needs_extra("transduce serve", "serve")) from None
    from transduce.serve.runs import read_specs
    from transduce.serve.service import Service
    from transduce.serve.workers import serve_by_workers

    specs = read_specs(runs, pair)
    for spec in specs:
        _log_run(spec)
    heard = {spec.path for spec in specs if spec.task in RECOGNITION}
    if language_model is not None and not heard:
        raise SettingError("--language-model needs a run of speech recognition or translation")

    if settings.speakers is not None:
        from transduce.serve.worker import speakers_by

        speakers_by(settings.speakers)  # raises here, before a request does
    if settings.workers > 1 and machine.threads is None:
        share = max(1, available_cores() // settings.workers)
        machine = dataclasses.replace(machine, threads=share)
    load = functools.partial(_loaded, machine, language_model, frozenset(heard))
    with listening_socket(host, port) as listener:

        def ready() -> None:
            logger.info("serving at %s", url_of(listener, settings))

        if settings.workers == 1:
            serve_forever(Service(specs, load, settings), listener, ready)
        else:
            make = functools.partial(_worker_service, specs, load, settings)
            serve_by_workers(make, settings, listener, ready)


def _loaded(
    machine: Machine, language_model: Path | None, heard: Collection[Path], run: Path
) -> Run:
    """A run, with the language model where it recognises recordings."""
    return machine.load_together(run, (), language_model if run in heard else None)


def _worker_service(
    specs: Sequence[RunSpec],
    load: Callable[[Path], Run],
    settings: ServeSettings,
    stores: Stores,
    number: int,
    is_replacement: bool,
) -> Service:
    """The service of a worker, in its process."""
    from transduce.serve.service import Service

    log_to_stderr()
    return Service(specs, load, settings, stores, number, is_replacement)


def _log_run(spec: RunSpec) -> None:
    shown = ", ".join(f"{source} to {target}" for source, target in spec.pairs)
    logger.info("%s: %s%s", spec.path, spec.task, f", {shown}" if shown else f" as {spec.name!r}")
    if spec.task == "translation" and not shown:
        logger.warning(
            "%s names no languages, so that clients of translators cannot reach it; give it as "
            "--pair de-en=%s",
            spec.path,
            spec.path,
        )
