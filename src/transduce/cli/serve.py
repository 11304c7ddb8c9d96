"""`transduce serve`: an HTTP server for runs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter, validators

from transduce.cli.options import THIS_MACHINE, Flag, Machine
from transduce.errors import SettingError, needs_extra

if TYPE_CHECKING:
    from transduce.serve.runs import RunSpec

logger = logging.getLogger("transduce")

LIMITS = Group("Limits", sort_key=10)
Limit = Annotated[int, Parameter(group=LIMITS, validator=validators.Number(gte=1))]
Few = Annotated[int, Parameter(group=LIMITS, validator=validators.Number(gte=0, lte=15))]
Seconds = Annotated[float, Parameter(group=LIMITS, validator=validators.Number(gt=0))]
Port = Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65535))]
Words = Annotated[tuple[str, ...], Parameter(show_default=False)]


def serve(
    *runs: Path,
    pair: Words = (),
    pivot: Words = (),
    host: str = "127.0.0.1",
    port: Port = 5000,
    url_prefix: Annotated[str, Parameter(show_default=False)] = "",
    api_keys: Path | None = None,
    allow_origin: Words = (),
    metrics: Flag = False,
    no_files: Flag = False,
    pass_through: Flag = False,
    suggestions: Path | None = None,
    max_chars: Limit = 20_000,
    max_texts: Limit = 1000,
    max_alternatives: Few = 8,
    max_waiting: Limit = 2000,
    timeout: Seconds = 120.0,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Serve runs over HTTP, for clients of LibreTranslate, OpenAI, DeepL and others.

    Translation runs answer under the languages that their recipes name; runs of other tasks answer
    under the name of their directory. SIGTERM ends the server after running requests. The pages
    docs/serving.md and /spec describe the routes.

    Parameters
    ----------
    runs
        Run directories.
    pair
        A translation run with its languages, like de-en=RUN, where its recipe names none. May be
        repeated.
    pivot
        Language through which two runs may be chained, like en for de-en and en-fr. May be
        repeated.
    host
        Address to listen on; 0.0.0.0 for all.
    port
        Port; 0 for a free one.
    url_prefix
        Path before all routes, like /mt.
    api_keys
        File with one API key per line. Without it, no key is needed.
    allow_origin
        Origin of a web page that may write, like https://tool.example: suggestions, glossaries,
        files. Without keys, pages of other origins may only translate. May be repeated.
    metrics
        Serve /metrics for Prometheus.
    no_files
        Refuse /translate_file.
    pass_through
        Answer pairs that no run translates with the text itself, named untranslated, in place of
        status 400. Weblate saves its settings only where English to German is answered.
    suggestions
        JSON Lines file that /suggest adds translations to, for training. Without it, they are
        refused.
    max_chars
        Characters of one request.
    max_texts
        Texts of one request.
    max_alternatives
        Alternative translations per text.
    max_waiting
        Sentences that may wait for a run; beyond, requests are refused with status 429.
    timeout
        Seconds for one request.
    """
    try:
        from transduce.serve.server import listening_socket, serve_forever
    except ImportError:
        raise SettingError(needs_extra("transduce serve", "serve")) from None
    from transduce.serve.runs import read_specs
    from transduce.serve.service import Service
    from transduce.serve.settings import ServeSettings, read_api_keys

    if url_prefix and (not url_prefix.startswith("/") or url_prefix.endswith("/")):
        raise SettingError(f"--url-prefix {url_prefix}: begin it with / and end it without")
    settings = ServeSettings(
        max_chars=max_chars,
        max_texts=max_texts,
        max_alternatives=max_alternatives,
        max_waiting=max_waiting,
        timeout=timeout,
        api_keys=frozenset() if api_keys is None else read_api_keys(api_keys),
        allowed_origins=frozenset(allow_origin),
        pivots=pivot,
        files=not no_files,
        pass_through=pass_through,
        suggestions=suggestions,
        url_prefix=url_prefix,
        metrics=metrics,
    )
    specs = read_specs(runs, pair)
    for spec in specs:
        _log_run(spec)
    service = Service(specs, machine.load_to_serve, settings)
    with listening_socket(host, port) as listener:
        serve_forever(service, listener, lambda url: logger.info("serving at %s", url))


def _log_run(spec: RunSpec) -> None:
    """Log the name and the languages of a run, and a missing pair."""
    shown = ", ".join(f"{source} to {target}" for source, target in spec.pairs)
    logger.info("%s: %s%s", spec.path, spec.task, f", {shown}" if shown else f" as {spec.name!r}")
    if spec.task == "translation" and not shown:
        logger.warning(
            "%s names no languages, so that clients of translators cannot reach it; give it as "
            "--pair de-en=%s",
            spec.path,
            spec.path,
        )
