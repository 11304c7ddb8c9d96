"""Tokenizers kept in a run directory, and warnings of characters and tokens that they lack."""

import hashlib
import itertools
import logging
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path

from transduce.errors import RunError, UnknownTextError
from transduce.text import Tokenizer, load_tokenizer
from transduce.text.offsets import token_spans
from transduce.text.tokenizer import UNK, ListedTokenizer


def saved_tokenizer(run: Path, name: str = "tokenizer") -> Tokenizer | None:
    """Tokenizer of that name in a run directory, or None."""
    files = sorted(run.glob(f"{name}.*"))
    return load_tokenizer(files[0]) if files else None


def saved_vocabularies(run: Path) -> tuple[Tokenizer, Tokenizer]:
    """Vocabularies of a run directory; identical objects if joint.

    Raises RunError if a vocabulary is missing.
    """
    if (saved := saved_tokenizers(run)) is None:
        raise missing_tokenizers(run)
    return saved


def saved_tokenizers(run: Path) -> tuple[Tokenizer, Tokenizer] | None:
    """Vocabularies of the run directory, or None if a vocabulary is missing, as after a kill."""
    if (joint := saved_tokenizer(run)) is not None:
        return joint, joint
    source, target = (saved_tokenizer(run, f"{side}_tokenizer") for side in ("source", "target"))
    return None if source is None or target is None else (source, target)


def digest_of_tokenizer(tokenizer: Tokenizer) -> str:
    """SHA-256 of a tokenizer, a fact behind data encoded with it."""
    return hashlib.sha256(tokenizer.to_bytes()).hexdigest()


def missing_tokenizers(run: Path) -> RunError:
    """The error of a run directory without its tokenizers."""
    return RunError(f"{run} has no tokenizer files; is it a complete run directory?")


logger = logging.getLogger("transduce")

MAX_TEXTS = 100_000
MAX_CHARACTERS = 20_000_000
"""Limit on the training text checked."""


class UnknownTokens:
    """Warns once if inputs of a run have unknown tokens, e.g. of another case or script.

    These are still read, as the unknown token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._told = False

    def check(
        self,
        inputs: Iterable[Sequence[str]],
        rows: Iterable[Container[int]],
        names: Iterable[str],
    ) -> None:
        """Check inputs of several texts; the warning uses their names."""
        if self._told:
            return
        for texts, ids, name in zip(inputs, rows, names, strict=False):
            if UNK in ids and (units := _unknown_in(self._tokenizer, texts)):
                unknown, count, first = units
                message = "%s: %d of %d tokens are unknown to the model, such as %r (reported once)"
                logger.warning(message, name, unknown, count, first)
                self._told = True
                return


def check_known(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> None:
    """Raises UnknownTextError for a text all of whose letters are unknown.

    tokenizer: of the model.  text: to read.  ids: its tokens.
    """
    if UNK not in ids:
        return
    known = tokenizer.tokens([token for token in ids if token != UNK])
    if not any(map(str.isalpha, "".join(known))) and any(map(str.isalpha, text)):
        raise UnknownTextError("all of its words are unknown to the model")


def tell_of_training_texts(tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """Warn of training texts with tokens outside the vocabulary of the base run.

    Only the first texts are checked if there are many.
    """
    with_unknown, first, read, room = 0, "", 0, MAX_CHARACTERS
    for text in itertools.islice(texts, MAX_TEXTS):
        text = text[:room]
        read, room = read + 1, room - len(text)
        if UNK in tokenizer.encode(text) and (unknown := _unknown_in(tokenizer, [text])):
            with_unknown, first = with_unknown + 1, first or unknown[2]
        if not room:
            break
    if with_unknown:
        message = (
            "%d of %d training texts have tokens outside the vocabulary of the base run, such as "
            "%r; the model cannot learn them"
        )
        logger.warning(message, with_unknown, read, first)


def _unknown_in(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[int, int, str] | None:
    """Number of unknown tokens, number of tokens, and the first unknown token; blank texts have
    none."""
    filled = [text for text in texts if text.strip()]
    rows = [tokenizer.encode(text) for text in filled]
    pairs = zip(filled, rows, strict=True)
    first = next((part for pair in pairs for part in unknown_parts(tokenizer, *pair)), None)
    if first is None:
        return None
    return sum(ids.count(UNK) for ids in rows), sum(map(len, rows)), first


def unknown_parts(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> Iterator[str]:
    """Parts of a text that become the unknown token, in order.

    tokenizer: of the model.  text: to read.  ids: its tokens.
    """
    if UNK not in ids:
        return
    if isinstance(tokenizer, ListedTokenizer):
        yield from tokenizer.unknown_units(text)
        return
    for token, (start, end) in zip(ids, token_spans(tokenizer, text, ids), strict=True):
        if token == UNK:
            yield text[start:end]
