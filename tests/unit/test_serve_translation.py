"""Translation over queues of made-up runs: nothing is left as it was in silence."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from helpers.waiting import wait_for
from transduce import DecodingOptions
from transduce.errors import DataError, TransduceError, UnknownTextError
from transduce.localise.document import Span
from transduce.serve import translator
from transduce.serve.calls import Call, RequestError
from transduce.serve.metrics import Metrics
from transduce.serve.processes import DocumentProcesses
from transduce.serve.queue import Queue
from transduce.serve.translator import (
    MOST_UNKNOWN,
    Hop,
    Part,
    ServedTranslation,
    Translated,
    headers,
    is_finished,
    lasting,
    left_fields,
    left_of_texts,
)

pytest.importorskip("sentencex")

T = TypeVar("T")

ENGLISH = {
    "Ich sehe den Hund.": "I see the dog.",
    "Das kostet fünf Prozent.": "It costs 5 %.",
    "Ja.": "Yes.",
    "Nein.": "",
    "Datei nicht offen.": "File %s not open.",
    "Ich sehe den alten Baum.": "I see the old tree.",
}
FRENCH = {
    "I see the dog.": "Je vois le chien.",
    "I see the old tree.": "Je vois le vieil arbre.",
    "Yes.": "Oui.",
    "It costs 5 %.": "Cela coûte {0}.",
}


class Table:
    """A run that knows some sentences; placeholders stay where it is told to keep them."""

    inputs = ("source",)

    def __init__(self, sentences: Mapping[str, str], keeps: bool = True) -> None:
        self.options = DecodingOptions()
        self.asked: list[str] = []
        self._sentences = sentences
        self._keeps = keeps

    def _of(self, text: str, options: DecodingOptions | None) -> str:
        assert options is not None
        if options.constraints and not self._keeps:
            return "nonsense"
        names = re.findall("%[sd]", text) if self._keeps else []
        plain = re.sub(" %[sd]", "", text)
        output = self._sentences.get(plain, plain)
        return " ".join([output[:-1], *names]) + output[-1:]

    def attempt(
        self,
        inputs: Sequence[Any],
        options: Sequence[DecodingOptions | None],
        first: int,
        cancelled: Callable[[int], bool],
    ) -> list[Any]:
        self.asked += inputs
        answers = []
        for text, option in zip(inputs, options, strict=True):
            finished = "endlos" not in text
            best = SimpleNamespace(text=self._of(text, option), score=-1.0, finished=finished)
            others = [SimpleNamespace(text=f"{best.text} {i}", score=-2.0 - i) for i in range(2)]
            others.append(SimpleNamespace(text=f"{best.text} %d", score=-5.0))
            answers.append(SimpleNamespace(**vars(best), candidates=[best, *others]))
        return answers

    def stream(
        self, text: Any, options: DecodingOptions | None, number: int, over: Callable[[], bool]
    ) -> Iterator[str]:
        yield from re.findall(r"\s*\S+", self._of(text, options))

    def inspect(self, text: str, name: str = "") -> Iterator[str]:
        if not text.isascii() and text not in self._sentences:
            raise UnknownTextError("all of its words are unknown to the model")
        return iter(re.findall("[Xx]+|\t", text))

    def align(self, source: str, output: str) -> list[Any]:
        """The last words of both linked."""
        if not self._keeps:
            raise DataError("no alignment")
        ends = re.search(r"\S+$", source), re.search(r"\S+$", output)
        return [tuple(Span(*end.span()) for end in ends if end)] if all(ends) else []

    def n_tokens(self, inputs: Sequence[Any], answers: Sequence[Any]) -> tuple[int, int]:
        return 0, 0


def with_runs(
    runs: Sequence[Table], scenario: Callable[[ServedTranslation], Awaitable[T]], reason: str = ""
) -> T:
    """The result of a scenario over loaded runs: German to English, then to French."""

    async def play() -> T:
        queues = [Queue(str(i), lambda run=run: run, Metrics()) for i, run in enumerate(runs)]
        for queue in queues:
            queue.start()
        try:
            await asyncio.to_thread(wait_for, lambda: all(queue.run for queue in queues))
            hops = [Hop(queue, code) for queue, code in zip(queues, ("de", "en"), strict=False)]
            return await scenario(ServedTranslation(hops, reason))
        finally:
            for queue in queues:
                queue.close()

    return asyncio.run(play())


def texts(runs: Sequence[Table], *given: str, alternatives: int = 0) -> list[Translated]:
    return with_runs(runs, lambda one: one.texts(given, Call(60), alternatives))


def parts(runs: Sequence[Table], text: str) -> list[Part]:
    async def scenario(translation: ServedTranslation) -> list[Part]:
        return [part async for part in translation.stream(text, Call(60))]

    return with_runs(runs, scenario)


def test_a_text_of_unknown_words_stays_and_is_named() -> None:
    (translated,) = texts([Table(ENGLISH)], "Ja.\n打开 %s。\n打开。")
    assert translated.text == "Yes.\n打开 %s。\n打开。"
    reason = "all of its words are unknown to the model"
    assert [(r.key, r.reason) for r in translated.left] == [("line 2", reason), ("line 3", reason)]
    *_, last = (part.record for part in parts([Table(ENGLISH)], "Ja. 打开。") if part.record)
    assert (last.source, last.state, last.reason) == ("打开。", "needs-translation", reason)


def test_unknown_parts_of_the_first_run_end_an_answer() -> None:
    text = "Xx Ja.\nIch sehe %s\tx Ja. Xx"
    for runs in ([Table(ENGLISH)], [Table(ENGLISH), Table(FRENCH)]):
        (translated,) = texts(runs, text)
        *_, last = parts(runs, text)
        assert set(translated.unknown) == set(last.unknown) == {"Xx", "x", "▁"}
    (many,) = texts([Table(ENGLISH)], "a".join("x" * n for n in range(1, 99)))
    assert len(many.unknown) == MOST_UNKNOWN


def test_a_cut_off_line_is_named() -> None:
    good, cut = texts([Table(ENGLISH), Table(FRENCH)], "Ja.", "Ja.\nendlos")
    assert good == Translated("Oui.") and cut.text == "Oui.\nendlos"
    left = left_of_texts([good, cut])
    row = {"index": 1, "reason": "line 2: cut off at the greatest length"}
    assert left_fields(left) == {"unfinished": [row]} and not headers(left)
    assert left_fields(()) == {} and not is_finished(left) and is_finished(())


def test_a_line_that_stays_is_named() -> None:
    lost, good = texts([Table(ENGLISH, keeps=False)], "Ja.\n Ich sehe %s den Hund.\n", "Ja.")
    assert lost.text == "Yes.\n Ich sehe %s den Hund.\n" and good == Translated("Yes.")
    (record,) = lost.left
    assert (record.key, record.source) == ("line 2", "Ich sehe %s den Hund.")
    assert record.reason.startswith("placeholders are not kept: ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Datei nicht offen.", "placeholders are not kept: the translation has a placeholder"),
        ("Ja. Nein.", "the translation is empty"),
    ],
)
def test_a_text_without_placeholders_is_checked_too(text: str, reason: str) -> None:
    (translated,) = texts([Table(ENGLISH)], text)
    assert translated.text == text and translated.left[0].reason.startswith(reason)


def test_a_sign_that_is_no_placeholder_may_come() -> None:
    assert texts([Table(ENGLISH)], "Das kostet fünf Prozent.") == [Translated("It costs 5 %.")]


def test_alternatives_are_checked_too() -> None:
    text = "Ich sehe den Hund.\nJa."
    (translated,) = texts([Table(ENGLISH)], text, alternatives=8)
    assert translated.text == "I see the dog.\nYes."
    assert translated.alternatives == (
        "I see the dog. 0\nYes.",
        "I see the dog.\nYes. 0",
        "I see the dog. 1\nYes.",
        "I see the dog.\nYes. 1",
    )


def test_alternatives_beyond_those_asked_for_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def with_lines(*arguments: Any) -> str:
        built.append(_with_lines(*arguments))
        return built[-1]

    _with_lines = translator._with_lines
    monkeypatch.setattr(translator, "_with_lines", with_lines)
    texts([Table(ENGLISH)], "Ja.\n" * 50, alternatives=2)
    assert len(built) == 3


def test_equal_sentences_are_translated_once() -> None:
    run = Table(ENGLISH)
    texts([run], "Ja. Ich sehe den Hund.", "Ich sehe den Hund.\nJa.", "Ja.")
    assert sorted(run.asked) == ["Ich sehe den Hund.", "Ja."]


PAGE = (
    "<p>Ich sehe <b>den alten</b> Baum.</p><p>Ich sehe %s den Hund.</p><p>Ja.</p>"
    "<p>Das kostet fünf Prozent.</p>"
)


@pytest.mark.parametrize("is_short", [True, False])
def test_long_texts_alone_take_threads(monkeypatch: pytest.MonkeyPatch, is_short: bool) -> None:
    works: list[Any] = []
    to_thread = asyncio.to_thread

    async def counted(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        works.append(work)
        return await to_thread(work, *args, **kwargs)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    text = "Ich sehe den Hund." if is_short else "\n".join(["Ich sehe den Hund."] * 50)
    (translated,) = texts([Table(ENGLISH)], text)
    assert translated.text == text.replace("Ich sehe den Hund.", "I see the dog.")
    assert all(work is wait_for for work in works) == is_short


def test_a_failing_hop_gives_the_original_back() -> None:
    """Never the pivot's language: not in texts, HTML, documents or streams."""
    runs = [Table(ENGLISH), Table(FRENCH, keeps=False)]
    assert texts([runs[0]], "Ich sehe %s den Hund.")[0].text != "Ich sehe %s den Hund."
    lost, failing, good = texts(
        runs, "Ich sehe %s den Hund.", "Das kostet fünf Prozent.", "Ich sehe den Hund."
    )
    assert lost.text == "Ich sehe %s den Hund." and lost.left[0].cause == "placeholders"
    assert failing.text == "Das kostet fünf Prozent." and "{0}" in failing.left[0].reason
    assert good == Translated("Je vois le chien.")

    (page,) = with_runs(runs, lambda one: one.html([PAGE], Call(60)))
    assert page.text == PAGE.replace("Ja.", "Oui.")
    assert [record.source for record in page.left] == [
        "Ich sehe <b>den alten</b> Baum.",
        "Ich sehe %s den Hund.",
        "Das kostet fünf Prozent.",
    ]


@pytest.mark.system
def test_a_document_is_translated_as_a_page() -> None:
    runs = [Table(ENGLISH), Table(FRENCH, keeps=False)]
    (page,) = with_runs(runs, lambda one: one.html([PAGE], Call(60)))
    processes = DocumentProcesses()
    document = ("a.html", PAGE.encode(), "fr", Call(60), processes)
    made = with_runs(runs, lambda one: one.document(*document))
    processes.close()
    assert made.content.decode() == page.text
    assert [record.is_done for record in made.records] == [False, False, True, False]


def test_a_stream_through_a_failing_hop_gives_the_original_back() -> None:
    runs = [Table(ENGLISH), Table(FRENCH, keeps=False)]
    streamed = parts(runs, "Ja.\nIch sehe %s den Hund.")
    assert "".join(part.text for part in streamed) == "Oui.\nIch sehe %s den Hund."
    assert [part.record.source for part in streamed if part.record] == ["Ich sehe %s den Hund."]


def test_tags_go_through_both_hops() -> None:
    runs = [Table(ENGLISH), Table(FRENCH)]
    text = "<p>Ich sehe den Hund <b>%s</b>.</p>"
    (page,) = with_runs(runs, lambda one: one.html([text], Call(60)))
    assert page.left or sorted(re.findall(r"</?b>|%s", page.text)) == ["%s", "</b>", "<b>"]


def joined(streamed: Sequence[Part]) -> str:
    """The text of parts, with what is withdrawn replaced."""
    text = ""
    for part in streamed:
        text += part.text
        if part.withdrawn:
            assert part.record is not None and text.endswith(part.withdrawn)
            text = text[: -len(part.withdrawn)] + part.record.target
    return text


@pytest.mark.parametrize("keeps", [True, False])
def test_a_stream_equals_the_translation(keeps: bool) -> None:
    text = "Ja. Ich sehe den Hund.\r\n\n  Ich sehe %s den Hund. Ja.\nDas kostet fünf Prozent.\n"
    streamed = parts([Table(ENGLISH, keeps)], text)
    (whole,) = texts([Table(ENGLISH, keeps)], text)
    assert joined(streamed) == whole.text and not any(part.withdrawn for part in streamed)
    records = [part.record for part in streamed if part.record is not None]
    assert [record.source for record in records if not record.is_done] == [
        one.source for one in whole.left
    ]


def test_a_streamed_placeholder_of_its_own_never_leaves() -> None:
    streamed = parts([Table(ENGLISH)], "Ja. Datei nicht offen. Ja.")
    assert not any("%" in part.text for part in streamed)
    (withdrawn,) = [part for part in streamed if part.withdrawn]
    assert withdrawn.withdrawn == "File"
    assert joined(streamed) == "Yes. Datei nicht offen. Yes."

    async def strictly(translation: ServedTranslation) -> None:
        ends: list[Part] = []
        stream: AsyncIterator[Part] = translation.stream("Datei nicht offen.", Call(60))
        with pytest.raises(RequestError, match="not translated: placeholders are not kept"):
            async for _ in lasting(stream, ends):
                pass
        assert [part.record is not None for part in ends] == [True]

    with_runs([Table(ENGLISH)], strictly)


def test_without_a_path_texts_come_back_with_the_reason() -> None:
    reason = "no run translates en to de"
    (run,) = with_runs([], lambda made: made.texts(["test"], Call(60)), reason)
    assert run.text == "test" and run.left[0].reason == reason
    (same,) = with_runs([], lambda made: made.texts(["test"], Call(60)))
    assert same == Translated("test")


def test_errors_of_the_model_are_errors_of_the_request() -> None:
    class Broken(Table):
        def attempt(self, inputs: Sequence[Any], *more: Any) -> list[TransduceError]:
            return [TransduceError("too long")] * len(inputs)

    with pytest.raises(RequestError, match="too long"):
        texts([Broken({})], "Ja.")
