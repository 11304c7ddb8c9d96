"""Imported Whispers write what `transformers` writes with the same weights."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import transduce
from helpers.answers import close
from helpers.audio import encoded, noise, saved, spoken, tone
from helpers.hugging_face import byte_level, change_json, largest_difference, ours, save
from helpers.whisper import timed
from transduce import DataError, SettingError
from transduce.decoding.options import DecodingOptions
from transduce.runs.importing import import_run
from transduce.sequence import Padded
from transduce.serve.worker import ToTranscribe, Worker
from transduce.speech import guards
from transduce.speech.guards import loops
from transduce.speech.prompt import prompt_with
from transduce.speech.recogniser import Recogniser
from transduce.speech.segments import Segment
from transduce.speech.transcriber import Transcriber
from transduce.text import BOS, EOS, PAD, UNK, HuggingFaceTokenizer

TOLERANCE = 1e-5
MARKS = ("<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>")
SPECIAL = ("<|endoftext|>", "<|startoftranscript|>", *MARKS)
SIZE = 300
SHAPES = [
    {"d_model": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 4},
    {"d_model": 24, "encoder_layers": 3, "decoder_layers": 2, "num_mel_bins": 128},
    {"d_model": 12, "encoder_ffn_dim": 7, "decoder_ffn_dim": 30, "activation_function": "relu"},
    {"d_model": 16, "scale_embedding": True, "max_target_positions": 40},
]


def whisper(directory: Path, **changes: Any) -> Any:
    shape = {
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 20,
        "decoder_ffn_dim": 20,
        "num_mel_bins": 80,
        "max_target_positions": 64,
        **changes,
    }
    ids = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 1}
    none = {"suppress_tokens": None, "begin_suppress_tokens": None}
    config = transformers.WhisperConfig(vocab_size=SIZE, **shape, **ids, **none)
    model = transformers.WhisperForConditionalGeneration(config)
    save(model, directory)
    byte_level(directory, SIZE - 4, SPECIAL)  # some rows of the matrix stay without a token
    return model


def imported(directory: Path, *overrides: str) -> Recogniser:
    run = import_run(directory, directory / "run", overrides=overrides)
    found: Recogniser = transduce.load(run, "cpu", engine="pytorch").predictor  # type: ignore[assignment]
    return found


def recording(directory: Path, seconds: float = 1.3, seed: int = 0) -> Path:
    samples = tone(seconds, frequency=300.0 + 100 * seed) + noise(seconds, seed=seed)
    return saved(directory / f"{seed}.wav", encoded(samples, subtype="FLOAT"))


@pytest.mark.parametrize("shape", SHAPES)
def test_features_and_logits(shape: dict[str, Any], tmp_path: Path) -> None:
    reference = whisper(tmp_path, **shape)
    recogniser = imported(tmp_path)
    bins = shape.get("num_mel_bins", 80)
    features = transformers.WhisperFeatureExtractor(feature_size=bins)
    samples = [tone(1.0) + noise(1.0), noise(3.2, seed=4)]
    expected = features(samples, sampling_rate=16_000, return_tensors="pt").input_features
    found = torch.tensor(np.stack([recogniser.extractor(one) for one in samples]))
    assert largest_difference(found.transpose(1, 2), expected) < 1e-4
    tokenizer = recogniser.tokenizer
    assert isinstance(tokenizer, HuggingFaceTokenizer)
    numbering = tokenizer.numbering
    ids = torch.randint(len(SPECIAL), SIZE, (2, 20), generator=torch.Generator().manual_seed(1))
    ids[:, 0] = 1
    with torch.no_grad():
        wanted = reference(input_features=expected, decoder_input_ids=ids).logits
        target = Padded.unpadded(ours(ids, numbering))
        logits = recogniser.model(Padded.unpadded(expected.transpose(1, 2)), target)
    in_our_order = wanted[..., list(numbering.rows)]
    theirs = [BOS, *range(EOS, tokenizer.size)]
    assert largest_difference(logits[..., theirs], in_our_order[..., theirs]) < TOLERANCE
    assert logits.softmax(-1)[..., [PAD, UNK]].max() == 0.0


def test_a_run_answers_a_line_for_each_path(tmp_path: Path) -> None:
    whisper(tmp_path)
    recogniser = imported(tmp_path)
    file = str(recording(tmp_path))
    answers = recogniser.predict([(file,), ("",), (file,)], DecodingOptions(beam_size=2))
    assert close(answers[0].fields(), answers[2].fields()) and answers[1].text == ""
    long = saved(tmp_path / "long.wav", encoded(noise(31.0, 8000), 8000))
    with pytest.raises(DataError, match=r"lasts 31\.0 s, but the model reads 30 s at a time"):
        recogniser.predict([(str(long),)])
    explained = transduce.load(tmp_path / "run", "cpu").explain(file)
    assert explained.attention and not explained.ctc


def test_a_long_recording_is_read_in_windows(tmp_path: Path) -> None:
    whisper(tmp_path)
    imported(tmp_path)
    syllable = np.concatenate([tone(0.3) + noise(0.3), np.zeros(3200, np.float32)])
    samples = np.concatenate([np.zeros(16_000, np.float32), np.tile(syllable, 72)])
    file = saved(tmp_path / "long.wav", encoded(samples))
    run = transduce.load(tmp_path / "run", "cpu")
    found = list(run.transcribe(file, DecodingOptions(beam_size=1)))
    assert found and all(0 <= one.start < one.end <= 37.1 and not one.words for one in found)


def test_a_language_that_the_model_lacks(tmp_path: Path) -> None:
    whisper(tmp_path)
    with pytest.raises(SettingError, match=r"'xx' is not a language of this model.*en, de"):
        imported(tmp_path, "prompt.language=xx")


@pytest.mark.parametrize("language", ["DE", "de-AT", "de_CH", "German", "<|de|>", " de "])
def test_a_language_in_any_spelling(language: str, tmp_path: Path) -> None:
    _, ids = timed(tmp_path)
    whole = imported(tmp_path)
    rows = whole.tokenizer.numbering.rows  # type: ignore[attr-defined]
    asked = whole.prompted(prompt_with(whole.recipe.prompt, language)).prompt
    assert rows[asked.ids[1]] == ids["<|de|>"] and asked.language == "de"
    assert whole.prompted(prompt_with(whole.recipe.prompt, "Auto")).prompt.languages


@pytest.mark.parametrize(
    ("declared", "language", "task"),
    [
        ({"language": "german", "task": "translate"}, "de", "translate"),
        ({"language": "<|yue|>"}, "yue", "transcribe"),
        ({"forced_decoder_ids": [[1, "<|de|>"], [2, "<|translate|>"]]}, "de", "translate"),
        ({"forced_decoder_ids": [[1, None], [2, "<|transcribe|>"]]}, "auto", "transcribe"),
        ({"language": None, "forced_decoder_ids": None}, "auto", "transcribe"),
    ],
)
def test_the_language_of_a_fine_tuned_model(
    declared: dict[str, Any], language: str, task: str, tmp_path: Path
) -> None:
    _, ids = timed(tmp_path)
    pairs = declared.get("forced_decoder_ids")
    if pairs:
        pairs = [[at, ids.get(mark)] for at, mark in pairs]
    change_json(tmp_path / "generation_config.json", **{**declared, "forced_decoder_ids": pairs})
    prompt = imported(tmp_path).recipe.prompt
    assert prompt is not None and (prompt.language, prompt.task) == (language, task)


def test_the_search_ends_with_the_text(tmp_path: Path) -> None:
    """Not with a repetition of it, whose mean is better: the exact rule waits for that."""
    whisper(tmp_path)
    recogniser = imported(tmp_path)
    decoding = recogniser.options
    assert (decoding.stop, decoding.length_penalty) == ("first", "mean")
    with pytest.raises(SettingError, match=r'decoding\.stop = "exact" needs a length penalty'):
        import_run(tmp_path, tmp_path / "exact", overrides=["decoding.stop=exact"])
    exact = DecodingOptions(stop="exact", length_penalty="mean")
    with pytest.raises(SettingError, match=r'set decoding\.stop = "first"'):
        recogniser.predict([(str(recording(tmp_path)),)], exact)


def test_another_window_is_refused(tmp_path: Path) -> None:
    whisper(tmp_path, max_source_positions=100)
    with pytest.raises(DataError, match="max_source_positions = 100 is not supported"):
        imported(tmp_path)


@pytest.mark.parametrize("timestamps", [True, False])
def test_both_generate_alike(timestamps: bool, tmp_path: Path) -> None:
    """Greedily, with times in pairs or none, a language given or detected, and text before."""
    reference, ids = timed(tmp_path)
    times = list(range(ids["<|notimestamps|>"] + 1, reference.config.vocab_size))
    if not timestamps:  # transformers lets a model write them all the same
        reference.generation_config.suppress_tokens += times
    whole = imported(tmp_path)
    rows = whole.tokenizer.numbering.rows  # type: ignore[attr-defined]
    files = [str(recording(tmp_path, 1.3, i)) for i in range(2)]
    frames = torch.from_numpy(np.stack([whole.read_file(file) for file in files]))
    options = DecodingOptions(beam_size=1, length_penalty="none")
    for language, task, text in [
        ("de", "transcribe", ""),
        ("yue", "translate", "Abe, Cob and others"),
        ("auto", "transcribe", ""),
    ]:
        prompt = prompt_with(whole.recipe.prompt, language, task, text)  # type: ignore[attr-defined]
        recogniser = whole.prompted(prompt, timed=timestamps)
        found = list(recogniser.each(frames, options, 0, lambda _, results: results[0]))
        before = [rows[i] for i in recogniser.prompt.ids]
        for mel, decoded in zip(frames, found, strict=True):
            more: dict[str, Any] = {} if language == "auto" else {"language": language}
            if text:
                more["prompt_ids"] = torch.tensor(before[: before.index(ids["<|endoftext|>"] + 1)])
            expected = reference.generate(
                mel.T[None],
                task=task,
                return_timestamps=timestamps,
                force_unique_generate_call=True,
                **more,
            )[0].tolist()
            place = before.index(ids["<|startoftranscript|>"]) + 1
            before[place] = ids[f"<|{decoded.language}|>"]
            written = [rows[token] for token in decoded.hypotheses[0].tokens]
            assert len(expected) > len(before) + 10
            both = min(len(expected), len(before) + len(written))
            assert [*before, *written][:both] == expected[:both]
            assert both == len(expected) or loops(
                [token for token in written if token not in times]
            )
            assert timestamps == bool({*times} & {*written})


def test_times_divide_a_piece(tmp_path: Path) -> None:
    timed(tmp_path)
    imported(tmp_path)
    run = transduce.load(tmp_path / "run", "cpu")
    samples = np.concatenate([spoken(3.0), np.zeros(16_000, np.float32), spoken(2.0, seed=1)])
    file = saved(tmp_path / "a.wav", encoded(samples))
    options = DecodingOptions(beam_size=1)
    found = list(run.transcribe(file, options, language="auto", task="translate", prompt="Abe"))
    assert found and {one.language for one in found} <= {"en", "de", "yue"}
    assert all(0 <= one.start < one.end <= 6 and "|" not in one.text for one in found)
    assert found == sorted(found, key=lambda one: one.start)
    asked = ToTranscribe(file.read_bytes(), "translate", "auto", "Abe")
    *served, _ = Worker(transduce.load(tmp_path / "run", "cpu")).transcribe(asked, lambda: False)
    assert [one.text for one in served if isinstance(one, Segment)]
    plain = list(run.transcriber(options, "de").transcribe_file(file))
    assert {one.language for one in plain} == {"de"}
    (answer,) = run.predict([str(file)])
    assert answer.fields()["language"] == answer.language


def test_a_prompt_of_a_call(tmp_path: Path) -> None:
    """The last of a long text is read, as many tokens as half of the positions hold."""
    timed(tmp_path)
    whole = imported(tmp_path)
    prompt = prompt_with(whole.recipe.prompt, text="word " * 90)
    ids = whole.prompted(prompt).prompt.ids
    tokens = whole.tokenizer.encode(" word" * 90)
    assert ids[1:32] == tuple(tokens[-31:]) and ids[32] == BOS
    for wrong, said in [({"language": "xx"}, "'xx' is not a language"), ({"task": "x"}, "task")]:
        with pytest.raises(SettingError, match=said):
            whole.prompted(prompt_with(whole.recipe.prompt, **wrong))
    change_json(tmp_path / "generation_config.json", is_multilingual=False)
    english = import_run(tmp_path, tmp_path / "english")
    recipe = transduce.load(english, "cpu").recipe
    assert recipe.prompt.language == ""  # type: ignore[attr-defined]
    with pytest.raises(SettingError, match="needs a model of many languages"):
        transduce.load(english, "cpu").transcriber(task="translate")
    with pytest.raises(SettingError, match="language applies only to imported Whisper models"):
        prompt_with(None, "de")


def test_words_and_no_speech(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of a window have times in it, and each window is encoded once, and the faint noise that
    its text is compared with; detection reads the beginning of each piece."""
    monkeypatch.setattr(guards, "GAIN", -math.inf)  # random weights make everything up
    timed(tmp_path)
    generation = {"alignment_heads": [[1, 0]], "is_multilingual": True}
    change_json(tmp_path / "generation_config.json", **generation)
    whole = imported(tmp_path)
    assert whole.recipe.prompt is not None and whole.recipe.prompt.alignment_heads == ((1, 0),)
    passes: list[int] = []
    encoder: Any = whole.model.encoder
    encoder.register_forward_hook(lambda module, given, out: passes.append(len(out.values)))
    pauses = np.zeros(16_000, np.float32)
    samples = np.concatenate(
        [pauses, *[x for i in range(3) for x in (spoken(2.0, seed=i), pauses)]]
    )
    options = DecodingOptions(beam_size=1, method="sample", temperature=1.0)  # no second attempt
    found = list(Transcriber(whole, options, "de", words=True).transcribe([samples]))
    assert 2 <= sum(passes) <= 2 + len(found)  # and for sound after the last segment
    before = sum(passes)
    found = list(Transcriber(whole, options, words=True).transcribe([samples]))
    assert sum(passes) - before <= 3 + 3 + len(found)  # three pieces, in at most three windows
    for segment in found:
        assert segment.no_speech is None  # the vocabulary has no token for it
        times = [(word.start, word.end) for word in segment.words]
        assert all(1 <= start <= end <= 10 for start, end in times)
        assert times == sorted(times)


def test_the_faint_noise_does_not_depend_on_who_asks_first(tmp_path: Path) -> None:
    timed(tmp_path)
    whole = imported(tmp_path)
    (source,) = whole.sources([spoken(2.0)])
    options = DecodingOptions(beam_size=1)
    (decoded,) = whole.each([source], options, 0, lambda prepared, decoded: decoded[0])
    memories = []
    for is_open in (False, True):
        recogniser = dataclasses.replace(whole, is_open=is_open, faint_noise=[])
        recogniser.gains(decoded, source)
        (noise_source,) = recogniser.faint_noise
        memories.append(noise_source.memory)
    torch.testing.assert_close(*memories)


def test_the_probability_of_no_speech(tmp_path: Path) -> None:
    reference, ids = timed(tmp_path)
    whole = imported(tmp_path)
    prompt = dataclasses.replace(whole.prompt, no_speech=40)
    recogniser = dataclasses.replace(
        whole, backend=dataclasses.replace(whole.backend, prompt=prompt)
    )
    frames = torch.from_numpy(whole.read_file(str(recording(tmp_path))))
    options = DecodingOptions(beam_size=1)
    (decoded,) = recogniser.each([frames], options, 0, lambda _, results: results[0])
    start = torch.tensor([[ids["<|startoftranscript|>"]]])
    with torch.no_grad():
        logits = reference(input_features=frames.T[None], decoder_input_ids=start).logits[0, 0]
    rows = list(whole.tokenizer.numbering.rows)  # type: ignore[attr-defined]
    assert decoded.no_speech == pytest.approx(float(logits.softmax(0)[rows[40]]), rel=1e-4)


def test_scores_are_among_allowed_tokens(tmp_path: Path) -> None:
    """Forbidden tokens take no probability from the rest, as in Whisper."""
    reference, _ = timed(tmp_path)
    whole = imported(tmp_path, "prompt.language=de")
    frames = torch.from_numpy(whole.read_file(str(recording(tmp_path))))
    options = DecodingOptions(beam_size=1, length_penalty="none")
    (decoded,) = whole.each([frames], options, 0, lambda _, results: results[0])
    (output,) = decoded.hypotheses
    written = [*output.tokens, *[EOS] * output.finished]
    prompt, rows = whole.prompt, list(whole.tokenizer.numbering.rows)  # type: ignore[attr-defined]
    ids = torch.tensor([[rows[token] for token in [*prompt.ids, *written]]])
    with torch.no_grad():
        logits = reference(input_features=frames.T[None], decoder_input_ids=ids).logits[0, :, rows]
    logits[:, list(prompt.forbidden)] = -torch.inf
    logits[len(prompt.ids) - 1, list(prompt.forbidden_first)] = -torch.inf
    log_probs = logits[len(prompt.ids) - 1 : -1].log_softmax(1)
    total = sum(float(row[token]) for row, token in zip(log_probs, written, strict=True))
    assert output.log_prob == pytest.approx(total, abs=1e-3)
