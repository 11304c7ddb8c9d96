"""Whispers with random weights, as transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
import transformers

from helpers.hugging_face import byte_level, save

SIZE = 300
TIMES = 1501


def timed(directory: Path, **changes: Any) -> tuple[Any, dict[str, int]]:
    """A model whose vocabulary ends with marks and times, as Whisper's; and their ids."""
    byte_level(directory, SIZE, ())
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    marks = ("<|en|>", "<|de|>", "<|yue|>", "<|translate|>", "<|transcribe|>", "<|startofprev|>")
    marks = ("<|endoftext|>", "<|startoftranscript|>", *marks, "<|notimestamps|>")
    tokenizer.add_special_tokens([*marks])
    tokenizer.add_tokens([f"<|{i / 50:.2f}|>" for i in range(TIMES)])
    tokenizer.save(str(directory / "tokenizer.json"))
    ids = {name: tokenizer.token_to_id(name) for name in marks}
    end, start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
    special = {"eos_token_id": end, "pad_token_id": end, "bos_token_id": end}
    sizes = {"encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "max_target_positions": 64}
    config = transformers.WhisperConfig(
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        vocab_size=tokenizer.get_vocab_size(),
        decoder_start_token_id=start,
        **special,
        **sizes,
        **changes,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    generation = model.generation_config
    generation.lang_to_id = {f"<|{code}|>": ids[f"<|{code}|>"] for code in ("en", "de", "yue")}
    generation.task_to_id = {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")}
    generation.no_timestamps_token_id = ids["<|notimestamps|>"]
    generation.prev_sot_token_id = ids["<|startofprev|>"]
    generation.is_multilingual, generation.max_initial_timestamp_index = True, 50
    generation.update(**special, decoder_start_token_id=start)
    marked = [i for i in ids.values() if i != end]
    generation.suppress_tokens = [*marked, 20, 31, 45]
    generation.begin_suppress_tokens = [end, 60]
    save(model, directory)
    return model, ids
