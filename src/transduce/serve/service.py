"""Service: all that the dialects share, over the queues of the runs.

A dialect turns requests into calls of a `Service` and its results and errors into answers; it does
not depend on queues, runs or limits.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from transduce.errors import DataError, SettingError
from transduce.localise.checks import Glossary, no_glossary
from transduce.localise.document import LocalisedDocument, Record
from transduce.localise.pivoting import Round, sample_of
from transduce.serve.calls import Call, RequestError, bounded, busy, invalid, unavailable
from transduce.serve.metrics import Metrics
from transduce.serve.processes import DocumentProcesses
from transduce.serve.queue import Queue
from transduce.serve.runs import CODE, MOST_OF_A_CODE, Languages, RunSpec, make_run, run_bytes
from transduce.serve.settings import ServeSettings, read_api_keys
from transduce.serve.storage import Glossaries, Stores
from transduce.serve.translator import Hop, Part, ServedTranslation, Translated
from transduce.serve.worker import AUDIO, Answer, Input, ToTranscribe, Worker
from transduce.text.languages import MAX_CHARACTERS, Detected, Detector, canonical, name_of

if TYPE_CHECKING:
    from transduce.loading import Run
    from transduce.speech.segments import Segment


MOST_RESERVED = 200_000_000
"""Bytes of all large requests in progress, which are in memory."""
LOADING_POLL = 0.05
"""Seconds between two looks at runs that are loading."""


@dataclass(frozen=True, eq=False)
class Reserved:
    """Memory of a request, until nothing refers to it any more."""

    n_bytes: int


@dataclass(frozen=True)
class Model:
    """A served run: name, task, language pairs, and the names of the texts of an input."""

    name: str
    task: str
    pairs: tuple[tuple[str, str], ...]
    inputs: tuple[str, ...]
    ready: bool
    decodes: bool


class Service:
    """Translation, prediction, detection and operations of a server.

    specs: the runs.  load: makes a run of its directory, in a worker thread.  settings: limits.
    stores: state shared with other workers, of which this one has a number.  is_replacement: of a
    worker that died.  Every method that takes a `Call` raises RequestError, with status 503 while
    the run is loading.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        load: Callable[[Path], Run],
        settings: ServeSettings,
        stores: Stores | None = None,
        number: int = 0,
        is_replacement: bool = False,
    ) -> None:
        self.settings = settings
        self.is_replacement = self._were_ready = is_replacement
        self.stores = stores or Stores(Glossaries(settings.glossaries))
        self.number = number
        self.metrics = Metrics()
        self.specs = {spec.name: spec for spec in specs}
        pairs = {pair: spec.name for spec in specs for pair in spec.pairs}
        self._run_of = pairs
        self.languages = Languages(pairs, settings.pivot)
        self.detector = Detector(self.languages.sources)
        self.stopping = False
        self._loading = threading.Lock()
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self._processes = DocumentProcesses()
        self._reserved: WeakSet[Reserved] = WeakSet()
        keys = () if settings.api_keys is None else read_api_keys(settings.api_keys)
        self._keys = {_digest(key) for key in keys}
        self._queues = {
            spec.name: Queue(
                spec.name,
                functools.partial(self._load, load, spec),
                self.metrics,
                settings.max_waiting,
                self._failed,
                spec.in_folder or settings.memory is not None,
                self._loading,
            )
            for spec in specs
        }

    def start(self) -> None:
        """Begin to load the runs."""
        self.detector.start(self._failed)
        for queue in self._queues.values():
            queue.start()

    def close(self) -> None:
        """End the worker threads."""
        self.stopping = True
        self._processes.close()
        for queue in self._queues.values():
            queue.close()

    @property
    def ready(self) -> bool:
        """True once all runs are loaded, until the server stops."""
        loaded = all(queue.run or queue.is_lazy for queue in self._queues.values())
        return loaded and self.detector.ready and not self.stopping

    @property
    def all_ready(self) -> bool:
        """True once all workers were ready, while this one is."""
        if not self._were_ready:
            self._were_ready = _are_ready(self.stores.status)
        return self.ready and self._were_ready

    def health(self) -> dict[str, str | int]:
        """Status, with several workers their number and that of those ready: "degraded" while some
        start again.  Raises RequestError where this one cannot answer, or some never could."""
        if not self.all_ready:
            raise unavailable("stopping" if self.stopping else "loading")
        workers = self.stores.status.copy()
        return {"status": "ok" if _are_ready(workers) else "degraded", **workers}

    def post_metrics(self) -> None:
        """Tell the other workers the metrics of this one."""
        self.stores.metrics.update({self.number: self.metrics.state()})

    def metrics_text(self) -> str:
        """Metrics of all workers, of the others a second old."""
        self.post_metrics()
        total = Metrics()
        for state in self.stores.metrics.copy().values():
            total.add(state)
        return total.text()

    async def loaded_all(self) -> None:
        """Wait until all runs are loaded, for as long as a request may take."""
        until = time.monotonic() + self.settings.timeout
        while not (self.ready or self.stopping or self.failure) and time.monotonic() < until:
            await asyncio.sleep(LOADING_POLL)

    def models(self) -> list[Model]:
        """The served runs, in the order of the command line."""
        models = []
        for spec in self.specs.values():
            queue = self._queues[spec.name]
            inputs, decodes = queue.inputs or (), queue.options is not None
            ready = queue.run is not None or queue.is_lazy
            models.append(Model(spec.name, spec.task, spec.pairs, inputs, ready, decodes))
        return models

    def check_key(self, key: object) -> None:
        """Raise RequestError 403 for an unknown key, 401 for a missing key that is needed."""
        if not self._keys:
            return
        if key is None or key == "":
            raise RequestError(
                401, "Please contact the server operator to get an API key", "no_key"
            )
        if not isinstance(key, str) or _digest(key) not in self._keys:
            raise RequestError(403, "Invalid API key", "invalid_key")

    def reserve(self, length: str, most: int) -> Reserved:
        """Memory for a request of a declared length.  Raises RequestError 429 for too much."""
        size = min(most, int(length)) if length.isascii() and length.isdigit() else most
        if sum(reserved.n_bytes for reserved in self._reserved) + size > MOST_RESERVED:
            raise busy("too many files are waiting")
        reserved = Reserved(size)
        self._reserved.add(reserved)
        return reserved

    def check_size(self, texts: Sequence[str]) -> None:
        """Raise RequestError 400 for more texts or characters than a request may have."""
        settings = self.settings
        characters = sum(map(len, texts))
        for size, limit in ((len(texts), settings.max_texts), (characters, settings.max_chars)):
            if size > limit:
                raise invalid(
                    f"Invalid request: request ({size}) exceeds text limit ({limit})", "too_large"
                )

    def detect(self, texts: Sequence[str]) -> list[Detected]:
        """Languages of some texts as a whole, best first."""
        if not self.detector.ready:
            raise unavailable("the server is loading")
        return self.detector.detect("\n".join(texts))

    def check_suggestions(self) -> Path:
        """The file of suggested translations.  Raises RequestError 403 if there is none."""
        if self.settings.suggestions is None:
            raise RequestError(403, "Suggestions are disabled on this server.", "disabled")
        return self.settings.suggestions

    def suggest(self, source_text: str, target_text: str, source: str, target: str) -> None:
        """Add a suggested translation to the file of the settings.

        source_text, target_text: the text and its translation.  source, target: codes of their
        languages.

        Raises as `check_suggestions`.
        """
        file = self.check_suggestions()
        self.check_size([source_text, target_text])
        languages = {"source_language": source, "target_language": target}
        record = {"source": source_text, "target": target_text, **languages}
        with file.open("ab", buffering=0) as lines:  # one write: whole, also beside other workers
            lines.write((json.dumps(record, ensure_ascii=False) + "\n").encode())

    def language(self, code: str) -> str:
        """The served language of a code.  Raises RequestError 400 for others."""
        language = self.languages.resolve(code)
        if language is None and self.settings.pass_through and CODE.fullmatch(code):
            return canonical(code)
        if language is None:
            raise invalid(f"{code[:MOST_OF_A_CODE]} is not supported", "unsupported_language")
        return language

    def path(self, source: str, target: str) -> list[tuple[str, str]]:
        """Pairs to translate by.

        Raises RequestError 400 where there is no path, unless texts are passed through.
        """
        path = self.languages.path(source, target)
        if path is None and self.settings.pass_through:
            return []
        if path is None:
            raise invalid(
                f"{name_of(target)} ({target}) is not available as a target language from "
                f"{name_of(source)} ({source})",
                "unsupported_pair",
            )
        return path

    def via(self, source: str, target: str) -> dict[str, list[str]]:
        """Field `via` of an answer: the languages of the pivots between two; none without one."""
        between = [language for _, language in self.path(source, target)[:-1]]
        return {"via": between} if between else {}

    async def translate(
        self,
        texts: Sequence[str],
        source: str,
        target: str,
        call: Call,
        alternatives: int = 0,
        html: bool = False,
        glossary: Glossary = no_glossary,
    ) -> list[Translated]:
        """Translation of each text, in order.

        Placeholders, and tags with `html`, come out once each, or a line or block of the text comes
        back as it is, with a record.  source, target: served languages (`language`).  Equal ones
        give the texts back.  alternatives: maximum number of others per text.  html: texts are
        fragments of HTML.  glossary: for a direct pair.
        """
        self.check_size(texts)
        translation = await self._translation(source, target, call, glossary)
        if html:
            translated = await translation.html(texts, call)
        else:
            translated = await translation.texts(texts, call, alternatives)
        self._count([record for text in translated for record in text.left])
        return translated

    async def translate_document(
        self,
        name: str,
        content: bytes,
        source: str,
        target: str,
        call: Call,
        glossary: Glossary = no_glossary,
    ) -> LocalisedDocument:
        """Translation of a file in the format of its suffix (`FORMATS`).

        name: of the file.  content: its bytes.  source, target: codes of the languages.  call: of
        the request.  glossary: terms of a sentence.

        Raises RequestError 400 for an unknown format, a damaged file, and a file of which nothing
        can be translated.
        """
        translation = await self._translation(source, target, call, glossary)
        try:
            translated = await translation.document(name, content, target, call, self._processes)
            self._count(translated.records)
            translated.check()
        except DataError as error:
            raise invalid(str(error), "document") from None
        return translated

    async def sample(self, name: str, content: bytes, target: str, call: Call) -> str:
        """The beginning of the text of a file, by which its language is detected.

        name: of the file, for its suffix.  content: its bytes.  target: code of the target
        language.  call: of the request.  Raises RequestError 400 for a damaged file.
        """
        length = MAX_CHARACTERS
        try:
            return await self._processes.run(
                call, len(content), _unanswered, sample_of, name, content, target, length
            )
        except DataError as error:
            raise invalid(str(error), "document") from None

    async def stream(
        self,
        text: str,
        source: str,
        target: str,
        call: Call,
        glossary: Glossary = no_glossary,
    ) -> AsyncIterator[Part]:
        """The translation of a text in parts; joined, they equal the text of `translate`, but for a
        part that is withdrawn.

        source, target: codes of the languages.  call: of the request.  glossary: terms of a
        sentence.
        """
        self.check_size([text])
        translation = await self._translation(source, target, call, glossary)
        async for part in translation.stream(text, call):
            if part.record is not None:
                self._count([part.record])
            yield part

    async def predict(
        self,
        name: str,
        inputs: Sequence[Input],
        call: Call,
        options: Mapping[str, Any] | None = None,
    ) -> list[Answer]:
        """The `Prediction` for each input, or the TransduceError in it, whatever the task.

        name: of the run.  inputs: texts, or tuples of texts.  call: of the request.  options:
        settings of decoding that differ from the recipe's.
        """
        queue = await self.present(name, call)
        parts = [[text] if isinstance(text, str) else list(text) for text in inputs]
        self.check_size(list(itertools.chain.from_iterable(parts)))
        names = queue.inputs or ()
        for number, texts in enumerate(parts, 1):
            if len(texts) != len(names):
                raise invalid(
                    f"input {number} has {len(texts)} texts; this model takes {len(names)}: "
                    f"{', '.join(names)}"
                )
        return await queue.submit(inputs, bounded(queue.options, options or {}), call)

    async def stream_prediction(
        self, name: str, text: str, call: Call, options: Mapping[str, Any] | None = None
    ) -> AsyncIterator[str]:
        """The answer of a run to a text in parts.

        name: of the run.  call: of the request.  options: settings of decoding that differ from the
        recipe's.
        """
        queue = await self.present(name, call)
        self.check_size([text])
        asked = bounded(queue.options, options or {})
        async for _, part in queue.stream([text], asked, call):
            if part:
                yield part

    async def speak(
        self, name: str, text: str, speed: float | None, voice: str, call: Call
    ) -> Answer:
        """The speech of a text, or the TransduceError in it; the rest as of `Worker.speak`.

        name: of the run.  speed: divisor of the durations; None for the recipe's.  voice: speaker
        of a run with several; of a single voice it is ignored.  call: of the request.
        """
        queue = await self.present(name, call)
        self.check_size([text])
        (answer,) = await queue.observe([text], lambda run, t: run.speak(t, speed, voice), call)
        return answer

    async def transcribe(
        self, name: str, recording: ToTranscribe, call: Call
    ) -> AsyncIterator[Segment | float]:
        """Segments of a recording, with times, as they come; then its length in seconds.

        name: of the run.  call: of the request, whose time counts from each segment.

        Raises RequestError 400 for a run that takes none, for options that its model lacks, and for
        bytes that are not a recording.
        """
        queue = await self.present(name, call)
        if queue.inputs != AUDIO:
            raise invalid(f"model {name!r} takes no recordings")
        chosen = {"hotwords": recording.hotwords} if recording.hotwords else {}
        options = bounded(queue.options, chosen)
        try:
            async for _, part in queue.transcribe(recording, options, call):
                if part is not None:
                    call.go_on()
                    yield part
        except (DataError, SettingError) as error:
            raise invalid(str(error)) from None

    def count_tokens(self, name: str, texts: Sequence[str], written: bool = False) -> int:
        """Tokens of some texts, as a run reads them, or as it has written them; in a thread."""
        return self.queue(name).loaded_run().count_tokens(texts, written)

    def max_tokens(self, name: str, options: Mapping[str, Any]) -> int:
        """Maximum number of tokens of a continuation with the options of a request."""
        asked = bounded(self.queue(name).options, options)
        assert asked is not None
        return asked.max_tokens

    def queue(self, name: str) -> Queue:
        """Queue of a run.  Raises RequestError 404 for an unknown run."""
        queue = self._queues.get(name)
        if queue is None:
            known = ", ".join(self._queues)
            raise RequestError(
                404, f"there is no model {name[:100]!r}; use {known}", "model_not_found"
            )
        return queue

    async def present(self, name: str, call: Call) -> Queue:
        """Queue of a run that was loaded.  call: of the request.  Raises RequestError 404 for an
        unknown run, 503 for one that is loading or cannot be loaded."""
        queue = self.queue(name)
        await queue.present(call)
        return queue

    def direct(self, source: str, target: str) -> tuple[str, str]:
        """The run that translates a pair, by name, and the text before its sources.

        Raises RequestError 400 for a pair that no single run translates.
        """
        path = self.path(source, target)
        if len(path) != 1:
            raise invalid(f"no run translates {source} to {target} directly", "no_single_run")
        name = self._run_of[source, target]
        return name, self.specs[name].tag(source, target)

    async def _translation(
        self, source: str, target: str, call: Call, glossary: Glossary
    ) -> ServedTranslation:
        """Translation by the runs of a path; a glossary applies to a direct translation."""
        path = self.path(source, target)
        glossary = glossary if len(path) == 1 else no_glossary
        hops = []
        for near, far in path:
            name, tag = self.direct(near, far)
            hops.append(Hop(await self.present(name, call), near, tag, glossary, far))
        unserved = not path and source != target
        return ServedTranslation(
            hops, f"no run translates {source} to {target}" if unserved else ""
        )

    def _count(self, records: Sequence[Record]) -> None:
        for record in records:
            if not record.is_done:
                self.metrics.count("untranslated_total", reason=record.cause)

    def _load(self, load: Callable[[Path], Run], spec: RunSpec) -> Worker:
        """The worker of a run; called in turn, since `ast.parse`, which reading a recipe needs, may
        fail in two threads at once (CPython 3.11).  Others leave until the bound of memory has room
        for it."""
        if spec.origin is not None:
            make_run(spec.origin, spec.path)
        most, size = self.settings.memory, run_bytes(spec.path)
        while most is not None and (loaded := [q for q in self._queues.values() if q.run]):
            sizes = [run_bytes(self.specs[queue.name].path) for queue in loaded]
            if sum(sizes) + size <= most * 1_000_000:
                break
            min(loaded, key=lambda queue: queue.used).leave()
        return Worker(load(spec.path))

    def _failed(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.on_failure()


async def _unanswered(orders: Round) -> list[Answer]:
    raise AssertionError("work without orders")


def _are_ready(status: Mapping[str, int]) -> bool:
    """True if all workers are ready.  status: as of `Stores`; empty for a single process."""
    return status.get("ready", 0) >= status.get("workers", 0)


def _digest(key: str) -> bytes:
    """A digest, so that comparing keys takes no longer for a better guess."""
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()
