"""TS files of Qt: messages with their translations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from transduce.localise.document import DecodedText, Document, Edit, Reading, Segment, Span, State
from transduce.localise.languages import of_other_languages
from transduce.localise.plurals import number_of_forms
from transduce.localise.units import Unit, document_of
from transduce.localise.xml import Element, blank_before, text_of

LEFT = ("obsolete", "vanished")
FLAGS = frozenset(("qt-format",))


def read_qt(decoded: DecodedText, root: Element, reading: Reading) -> Document:
    """Read messages; those that the program no longer has are left.

    A translation is marked as unfinished.
    """
    references: dict[str, str] = {}
    own = root.get("language")
    if unread := of_other_languages(reading, root.get("sourcelanguage"), own):
        return document_of(decoded, [], unread=unread)
    language = own or reading.language
    units: list[Unit] = []
    messages = (e for e in root.descendants() if e.local_name == "message")
    for number, message in enumerate(messages, 1):
        reading.check()
        translation = message.child("translation")
        if translation is None or translation.get("type") not in LEFT:
            unit = _unit(decoded, message, f"message {number}", language, references)
            units += [unit] if unit else []
    names = [root.with_attribute("language", language)] if language and not own else []
    return document_of(decoded, units, names)


def _unit(
    decoded: DecodedText,
    message: Element,
    key: str,
    language: str | None,
    references: dict[str, str],
) -> Unit | None:
    source = message.child("source")
    translation = message.child("translation")
    if source is None:
        return None
    text = text_of(source, (), references)
    if not text.has_words:
        return None
    is_numerus = message.get("numerus") == "yes"
    forms = (
        [e for e in translation.children if e.local_name == "numerusform"] if translation else []
    )
    holders = forms if is_numerus else ([translation] if translation else [])
    texts = [text_of(holder, (), {}).source for holder in holders]
    is_unfinished = translation is not None and translation.get("type") == "unfinished"
    state: State = "fuzzy" if is_unfinished else "translated"
    segment = Segment(
        key,
        text.source,
        (message.span,),
        text.tags,
        True,
        flags=FLAGS,
        target=texts[0] if texts else "",
        state=state if texts and all(texts) else "missing",
    )

    def write(targets: Mapping[str, str]) -> Iterator[Edit]:
        (target,) = targets.values()
        raw = text.written(key, target, decoded)
        n_forms = number_of_forms(language)
        if is_numerus and not any(texts) and len(forms) != n_forms:
            raw = f"<numerusform>{raw}</numerusform>" * n_forms
        if translation is None:
            new = f'{blank_before(source)}<translation type="unfinished">{raw}</translation>'
            yield Edit(Span(source.span.end, source.span.end), new)
            return
        yield translation.with_attribute("type", "unfinished")
        if forms and (any(texts) or len(forms) == n_forms):
            for form, present in zip(forms, texts, strict=True):
                if not present or all(texts):
                    yield form.with_content(raw)
        else:
            yield translation.with_content(raw)

    return Unit([segment], write)
