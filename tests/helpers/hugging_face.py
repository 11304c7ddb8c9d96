"""Small models with random weights, saved as Hugging Face `transformers` saves them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
import torch
from torch import Tensor, nn

from transduce.sequence import Padded
from transduce.text import Numbering

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def save(model: Any, directory: Path, seed: int = 0) -> Path:
    """Shake the model's weights, so that no norm is 1 and no bias 0, and save it."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # sinusoids are not
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    model.eval().save_pretrained(directory)
    return directory


def word_piece(directory: Path, size: int, **settings: Any) -> Path:
    """BERT's `vocab.txt` with `size` entries, its special tokens in the middle."""
    letters = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    more = [a + b for a in LETTERS for b in LETTERS]
    pieces = [*letters, *more][: size - len(SPECIAL)]
    at = len(pieces) // 2
    pieces[at:at] = SPECIAL
    (directory / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    write_json(directory / "tokenizer_config.json", settings)
    return directory


def byte_level(directory: Path, size: int, special: Sequence[str]) -> Path:
    """A byte-level BPE of at most `size` entries, in `tokenizer.json`."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        special_tokens=list(special),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(sentences(300), trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def sentence_pieces(lines: Iterable[str], size: int) -> tuple[bytes, list[str]]:
    """A SentencePiece model such as Marian's, and its pieces."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=written,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
    )
    processor = sentencepiece.SentencePieceProcessor()
    processor.load_from_serialized_proto(written.getvalue())
    return written.getvalue(), [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def sentences(count: int, seed: int = 0, letters: str = LETTERS) -> list[str]:
    """Lines of words that come again and again."""
    chance = random.Random(seed)
    words = ["".join(chance.choices(letters, k=chance.randint(1, 7))) for _ in range(40)]
    return [" ".join(chance.choices(words, k=chance.randint(2, 12))) + "." for _ in range(count)]


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def change_json(path: Path, **changes: Any) -> None:
    """Set entries of a JSON file, creating it if needed."""
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write_json(path, {**before, **changes})


def ours(ids: Tensor, numbering: Numbering) -> Tensor:
    """Their ids in our numbers, MASK last."""
    here = {there: i for i, there in reversed(list(enumerate(numbering.rows_and_mask)))}
    return ids.clone().apply_(lambda token: here[token])


def random_batch(
    numbering: Numbering, lengths: Sequence[int], padding: int, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Random ids of theirs (b, t), padded on the right, and where they are real."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(numbering.size, (len(lengths), max(lengths)), generator=generator)
    real = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    ids = ids.where(ids != padding, (padding + 1) % numbering.size)
    return ids.masked_fill(~real, padding), real


def padded(values: Tensor, real: Tensor) -> Padded:
    return Padded(values, real, "none" if bool(real.all()) else "right")


def largest_difference(a: Tensor, b: Tensor, real: Tensor | None = None) -> float:
    """The largest absolute difference, at real positions."""
    difference = (a - b).abs()
    return float(difference.max() if real is None else difference[real].max())


def loaded(model: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    """The model with these weights, in eval mode."""
    from transduce.training.weights import load_weights

    load_weights(model, weights, "the import")
    return model.eval()
