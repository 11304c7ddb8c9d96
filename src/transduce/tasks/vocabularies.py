"""Tokenizers kept in a run directory."""

from __future__ import annotations

import hashlib
from pathlib import Path

from transduce.errors import RunError
from transduce.text import Tokenizer, load_tokenizer


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
