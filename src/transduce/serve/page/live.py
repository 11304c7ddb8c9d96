"""Translation as the page shows it: sentence by sentence, as parts are certain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from transduce.errors import TransduceError
from transduce.localise.terms import Glossary, Terms, no_glossary
from transduce.serve.calls import Call
from transduce.serve.errors import invalid
from transduce.serve.limits import bounded
from transduce.serve.queue import check_answers
from transduce.serve.requests import Fields
from transduce.serve.service import Service
from transduce.serve.untranslated import last_event

MAX_TERMS = 200
ALTERNATIVES = 5
LEAST_SHARE = 0.002
"""Probability of a token that is tried in the place of a word."""
LEAST_LOG_PROB = 7.0
"""Log-probability that an alternative may lie below the best."""


class Pair(NamedTuple):
    """Languages and glossary of a request."""

    source: str
    target: str
    glossary: Glossary = no_glossary


def glossary_of(fields: Fields) -> Glossary:
    """The glossary of a request, whose terms count in any case; blank terms are left out."""
    pairs = fields.pairs("glossary")
    if len(pairs) > MAX_TERMS:
        raise invalid(f"glossary has {len(pairs)} entries; at most {MAX_TERMS}")
    stripped = [(source.strip(), target.strip()) for source, target in pairs]
    return Terms({s: t for s, t in stripped if s and t}, str.lower).constraints


async def live_translation(
    service: Service, text: str, pair: Pair, call: Call
) -> AsyncIterator[dict[str, Any]]:
    """Events: {"text"} with the next part, {"sentence"} at the end of each, and at the end
    {"done"}, with what is left "untranslated".

    A sentence has its "source" and its "output", except where the text goes through a pivot; for
    an untranslated sentence its source stands, and "withdrawn" is the text to take back.  The
    glossary applies to sentences with its terms, in a direct translation only.
    """
    records = []
    direct = len(service.path(pair.source, pair.target)) == 1
    async for part in service.stream(text, *pair[:2], call, pair.glossary):
        if part.text:
            yield {"text": part.text}
        if part.record is not None:
            records.append(part.record)
            sentence = {"source": part.record.source, "output": part.record.target}
            if direct:
                yield {"sentence": sentence, "withdrawn": part.withdrawn}
    yield last_event(records)


async def words_of(
    service: Service, pairs: Sequence[tuple[str, str]], pair: Pair, call: Call
) -> list[dict[str, Any] | None]:
    """Words of sentences and of their translations; None for a pair that cannot be shown."""
    for side in zip(*pairs, strict=True):
        service.check_size(side)
    name, tag = service.direct(pair.source, pair.target)
    rows = [(*both, tag) for both in pairs]
    answers = await service.loaded(name).observe(rows, lambda run, row: run.words(*row), call)
    return [None if isinstance(words, TransduceError) else _shown(words) for words in answers]


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
    rows = [(sentence, output, tag)]
    (words,) = await queue.observe(rows, lambda run, row: run.words(*row), call)
    check_answers([words])
    if not 0 <= word < len(words.target):
        raise invalid(f"there is no word {word}")
    before = output[: words.target[word][0]].rstrip()
    rivals = [prefix for prefix, share in words.rivals(word) if share >= LEAST_SHARE]
    fixed: dict[str, Any] = {"method": "beam", "minimum_risk": "none"}
    if phrases := pair.glossary(sentence):
        fixed["constraints"] = phrases
    settings = [
        {"prefix": before, "n_best": ALTERNATIVES},
        *({"prefix": prefix, "n_best": 1} for prefix in rivals[:ALTERNATIVES]),
    ]
    recipe = queue.loaded_run().options
    options = [bounded(recipe, {**fixed, **setting}) for setting in settings]
    answers = await queue.submit([tag + sentence] * len(options), options, call)
    translations = [answer for answer in answers if not isinstance(answer, TransduceError)]
    candidates = [candidate for answer in translations for candidate in answer.candidates]
    return _likeliest({c.text: c.log_prob for c in candidates}, output)


def _likeliest(log_probs: dict[str, float], output: str) -> list[str]:
    least = max(log_probs.values(), default=0.0) - LEAST_LOG_PROB
    ranked = sorted(log_probs, key=lambda text: -log_probs[text])
    return [text for text in ranked if text != output and log_probs[text] >= least][:ALTERNATIVES]
