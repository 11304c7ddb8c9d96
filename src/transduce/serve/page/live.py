"""Translation as the page shows it: sentence by sentence, as parts are certain."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from transduce.errors import TransduceError
from transduce.serve.calls import Call
from transduce.serve.errors import invalid
from transduce.serve.limits import bounded
from transduce.serve.page.glossary import Entries, required_by
from transduce.serve.queue import check_answers
from transduce.serve.service import Service
from transduce.serve.untranslated import left_of_records

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
    """Events: {"text"} with the next part, {"sentence"} at the end of each, and at the end
    {"done"}, with what is left "untranslated".

    A sentence has its "source" and its "output", except where the text goes through a pivot; for
    one that was not translated its source stands, and "withdrawn" is the text to take back.  The
    glossary applies to sentences with its terms, in a direct translation only.
    """
    records = []
    direct = len(service.path(pair.source, pair.target)) == 1
    glossary = functools.partial(required_by, pair.terms)
    async for part in service.stream(text, pair.source, pair.target, call, glossary):
        if part.text:
            yield {"text": part.text}
        if part.record is not None:
            records.append(part.record)
            sentence = {"source": part.record.source, "output": part.record.target}
            if direct:
                yield {"sentence": sentence, "withdrawn": part.withdrawn}
    left = left_of_records(records)
    yield {"done": True, **({"untranslated": left} if left else {})}


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
