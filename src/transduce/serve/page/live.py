"""Translation as the page shows it: sentence by sentence, as parts are certain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from transduce.errors import TransduceError
from transduce.localise.placeholders import PLACEHOLDER
from transduce.localise.sentences import split_sentences
from transduce.serve.calls import Call
from transduce.serve.errors import invalid
from transduce.serve.joining import StreamJoiner
from transduce.serve.limits import bounded
from transduce.serve.page.glossary import Entries, required_by
from transduce.serve.queue import check_answers
from transduce.serve.service import Service

ALTERNATIVES = 5
LEAST_SHARE = 0.002
"""Probability of a token that is tried in the place of a word."""
LEAST_LOG_PROB = 7.0
"""Log-probability that an alternative may lie below the best."""


class Pair(NamedTuple):
    """Languages and glossary of a request."""

    source: str
    target: str
    terms: Entries = ()


async def live_translation(
    service: Service, text: str, pair: Pair, call: Call
) -> AsyncIterator[dict[str, Any]]:
    """Events: {"text"} with the next part, and {"sentence"} at the end of each.

    A sentence has its "source" and its "output", except where the text goes through a pivot.  The
    glossary applies to sentences with its terms, in a direct translation only.
    """
    service.check_size([text])
    path = service.path(pair.source, pair.target)
    if not path:
        yield {"text": text}
        return
    *first, last = path
    for near, far in first:
        (found,) = await service.translate([text], near, far, call)
        text = found.text
    pieces = split_sentences(text.replace("\r\n", "\n"), last[0])
    terms = () if first else pair.terms
    joiner, output = StreamJoiner(pieces), ""
    async for index, part in _parts(service, pieces.texts, last, terms, call):
        if written := joiner.add(index, part):
            yield {"text": written}
        output += part or ""
        if part is None:
            if not first:
                yield {"sentence": {"source": pieces.texts[index], "output": output}}
            output = ""
    yield {"text": joiner.rest()}


async def _parts(
    service: Service,
    sentences: Sequence[str],
    pair: tuple[str, str],
    terms: Entries,
    call: Call,
) -> AsyncIterator[tuple[int, str | None]]:
    """Parts of the output of each sentence, in order, with None at its end.

    Sentences with placeholders come whole.
    """
    whole: dict[int, str] = {}
    for i, sentence in enumerate(sentences):
        if PLACEHOLDER.search(sentence):
            found = await service.translate([sentence], *pair, call, 0, _required(terms, sentence))
            whole[i] = found[0].text
    name, tag = service.direct(*pair)
    queue = service.loaded(name)
    own = queue.loaded_run().options
    streamed = [i for i in range(len(sentences)) if i not in whole]
    options = [bounded(own, _required(terms, sentences[i])) for i in streamed]
    following = 0
    async for place, part in queue.stream([tag + sentences[i] for i in streamed], options, call):
        for i in range(following, streamed[place]):
            yield i, whole[i]
            yield i, None
        following = streamed[place] + (part is None)
        yield streamed[place], part
    for i in range(following, len(sentences)):
        yield i, whole[i]
        yield i, None


def _required(terms: Entries, sentence: str) -> Mapping[str, Any]:
    phrases = required_by(terms, sentence)
    return {"constraints": phrases} if phrases else {}


async def words_of(
    service: Service, pairs: Sequence[tuple[str, str]], pair: Pair, call: Call
) -> list[dict[str, Any] | None]:
    """Words of sentences and of their translations; None for a pair that cannot be shown."""
    for side in zip(*pairs, strict=True):
        service.check_size(side)
    name, tag = service.direct(pair.source, pair.target)
    answers = await service.loaded(name).words([(*both, tag) for both in pairs], call)
    return [None if isinstance(one, TransduceError) else _shown(one) for one in answers]


def _shown(words: Any) -> dict[str, Any]:
    return {
        "source": words.source,
        "target": words.target,
        "probabilities": words.probabilities.round(4).tolist(),
        "attention": None if words.attention is None else words.attention.round(3).tolist(),
    }


async def alternatives_of(
    service: Service, sentence: str, output: str, word: int, pair: Pair, call: Call
) -> list[str]:
    """Other translations of a sentence that equal `output` before one of its words, likeliest
    first.

    They are the n-best list after the words before, and the best output after each likely token in
    the place of the word.  Raises RequestError 400 without such a word.
    """
    service.check_size([sentence, output])
    name, tag = service.direct(pair.source, pair.target)
    queue = service.loaded(name)
    own = queue.loaded_run().options
    (words,) = await queue.words([(sentence, output, tag)], call)
    check_answers([words])
    if not 0 <= word < len(words.target):
        raise invalid(f"there is no word {word}")
    before = output[: words.target[word][0]].rstrip()
    rivals = [prefix for prefix, share in words.rivals(word) if share >= LEAST_SHARE]
    given = {**_required(pair.terms, sentence), "method": "beam", "minimum_risk": "none"}
    settings = [
        {"prefix": before, "n_best": ALTERNATIVES},
        *({"prefix": prefix, "n_best": 1} for prefix in rivals[:ALTERNATIVES]),
    ]
    options = [bounded(own, {**given, **one}) for one in settings]
    answers = await queue.submit([tag + sentence] * len(options), options, call)
    found = [one for one in answers if not isinstance(one, TransduceError)]
    return _likeliest({c.text: c.log_prob for one in found for c in one.candidates}, output)


def _likeliest(log_probs: dict[str, float], output: str) -> list[str]:
    """Texts other than the output, without very unlikely ones."""
    least = max(log_probs.values(), default=0.0) - LEAST_LOG_PROB
    ranked = sorted(log_probs, key=lambda text: -log_probs[text])
    return [text for text in ranked if text != output and log_probs[text] >= least][:ALTERNATIVES]
