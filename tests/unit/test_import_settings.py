"""Settings of imported models: followed, or named in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.hugging_face import write_json
from transduce.errors import DataError
from transduce.interop.bert import read_sentence_settings
from transduce.interop.read import Config, decoding
from transduce.interop.vit import read_pixels

MARIAN = {"pad_token_id": 9, "eos_token_id": 0, "max_position_embeddings": 512}
GENERATION = {
    "num_beams": 4,
    "max_length": 512,
    "bad_words_ids": [[9]],
    "forced_eos_token_id": 0,
    "decoder_start_token_id": 9,
    "renormalize_logits": True,
    "eos_token_id": 0,
    "pad_token_id": 9,
    "suppress_tokens": [],
    "do_sample": False,
    "temperature": 0.7,
}


def searched(**said: Any) -> dict[str, Any]:
    path = Path("generation_config.json")
    return decoding(Config({**GENERATION, **said}, path), Config(MARIAN, Path("config.json")))


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    assert not any("\n" in line for line in lines)
    return lines


# the search of a Marian


def test_what_a_usual_marian_says_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    result = searched()
    assert not warned(caplog)
    assert (result["beam_size"], result["max_length_extra"], result["min_length"]) == (4, 510, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("do_sample", True),
        ("forced_bos_token_id", 5),
        ("forced_eos_token_id", None),
        ("forced_eos_token_id", 3),
        ("bad_words_ids", [[9], [4, 5]]),
        ("suppress_tokens", [4]),
        ("begin_suppress_tokens", [4]),
        ("encoder_no_repeat_ngram_size", 2),
        ("encoder_repetition_penalty", 1.5),
        ("exponential_decay_length_penalty", [3, 1.5]),
        ("sequence_bias", [[[4], 2.0]]),
        ("guidance_scale", 2.0),
        ("num_beam_groups", 2),
        ("num_return_sequences", 3),
        ("length_penalty", 0.6),
        ("repetition_penalty", 0.5),
        ("decoder_start_token_id", 4),
        ("eos_token_id", [0, 4]),
        ("stop_strings", ["."]),
    ],
)
def test_what_is_not_followed_in_decoding_is_named(
    name: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    searched(renormalize_logits=False, **{name: value})
    (line,) = warned(caplog)
    assert line.startswith(f"generation_config.json: ignoring {name} = ")


def test_probabilities_among_what_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    searched(min_length=5)
    (line,) = warned(caplog)
    assert "renormalize_logits = True" in line


def test_a_long_setting_is_shown_in_part(caplog: pytest.LogCaptureFixture) -> None:
    searched(suppress_tokens=list(range(10_000)))
    assert len(warned(caplog)[0]) < 120


def test_greedy_search_has_no_lengths_to_weigh(caplog: pytest.LogCaptureFixture) -> None:
    result = searched(num_beams=None, length_penalty=0.6, forced_eos_token_id=None)
    assert result["stop"] == "first" and not warned(caplog)


def test_an_unsaid_length_is_that_of_transformers(caplog: pytest.LogCaptureFixture) -> None:
    assert searched(max_length=None)["max_length_extra"] == 19
    (line,) = warned(caplog)
    assert "limiting outputs to 20 tokens" in line and "decoding.max_length_extra" in line


@pytest.mark.parametrize("name", ["num_beams", "max_length", "max_new_tokens", "min_length"])
def test_a_setting_of_the_search_that_is_no_number(name: str) -> None:
    with pytest.raises(DataError, match=f"{name} must be a whole number above 0, not 'x'"):
        searched(**{name: "x"})


# the images of a ViT


def images(directory: Path, **said: Any) -> dict[str, Any]:
    write_json(directory / "preprocessor_config.json", said)
    return read_pixels(directory, 224)


def test_pixels_without_a_file_or_a_word(tmp_path: Path) -> None:
    assert read_pixels(tmp_path, 224) == {}
    assert images(tmp_path) == {"fit": "squash", "mean": [0.5], "std": [0.5]}


def test_a_factor_that_differs_in_its_last_digits(tmp_path: Path) -> None:
    result = images(tmp_path, rescale_factor=0.003921568859368563, image_mean=[0.1, 0.2, 0.3])
    assert result["mean"] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("message", "fit"),
    [
        ({"size": 224, "resample": 2}, "squash"),
        ({"size": {"height": 224, "width": 224}, "do_center_crop": True}, "squash"),
        ({"size": {"shortest_edge": 224}, "do_center_crop": True, "crop_size": 224}, "crop"),
    ],
)
def test_images_are_fitted_as_there(
    message: dict[str, Any], fit: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert images(tmp_path, **message)["fit"] == fit
    assert not warned(caplog)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"resample": 3}, "ignoring resample = 3; images are resized bilinearly (2)"),
        ({"do_resize": False}, "ignoring do_resize = false; images are resized to 224"),
        ({"size": 384}, "ignoring a size of 384 pixels; images are resized to 224 x 224"),
        (
            {"size": {"shortest_edge": 224}},
            "ignoring size.shortest_edge without do_center_crop; images are cropped to the middle",
        ),
        (
            {"size": 256, "do_center_crop": True, "crop_size": 224},
            "ignoring crop_size = 224 after a size of 256; the model gets the whole image",
        ),
        (
            {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224},
            "; the model gets all of the middle square",
        ),
        (
            {"image_processor_type": "ConvNextImageProcessor"},
            "'ConvNextImageProcessor' as 'ViTImageProcessor'",
        ),
    ],
)
def test_images_that_differ_a_little_are_said(
    message: dict[str, Any], expected: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images(tmp_path, **message)
    (line,) = warned(caplog)
    assert expected in line and "preprocessor_config.json" in line


def test_a_deit_has_defaults_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    images(tmp_path, feature_extractor_type="DeiTFeatureExtractor")
    assert ["resample = 3" in line for line in warned(caplog)] == [True, False]
    assert "crop_size = 224 after a size of 256" in warned(caplog)[1]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"do_resize": False, "do_center_crop": True}, "without do_resize is not supported"),
        ({"size": 448, "do_center_crop": True, "crop_size": 224}, "crop_size = 224 after a size"),
        ({"size": 224, "do_center_crop": True, "crop_size": 256}, "crop_size = 256 after a size"),
        ({"size": {"height": 224, "width": 448}}, "use equal height and width, or shortest_edge"),
        ({"size": {"shortest_edge": "x"}}, "shortest_edge must be a whole number"),
        ({"rescale_factor": 0}, "rescale_factor must be a number above 0"),
        ({"rescale_factor": float("nan")}, "rescale_factor must be a number above 0"),
        ({"rescale_factor": 10**400}, "rescale_factor must be a number"),
        ({"image_std": [10**400]}, "image_std must be numbers"),
        ({"image_mean": "x"}, "image_mean must be numbers, not 'x'"),
        ({"do_normalize": "no"}, "do_normalize must be true or false"),
    ],
)
def test_other_images_are_refused(message: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=expected) as refusal:
        images(tmp_path, **message)
    assert "preprocessor_config.json" in str(refusal.value)


# the vectors of sentence-transformers


def sentence_files(directory: Path, pooling: Any, *kinds: str, path: Any = "1_Pooling") -> Path:
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind in kinds]
    transformer = {"type": "sentence_transformers.models.Transformer", "path": ""}
    write_json(directory / "modules.json", [transformer, *modules])
    (directory / "1_Pooling").mkdir()
    write_json(directory / "1_Pooling" / "config.json", pooling)
    return directory


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode": ["max"]}, "max"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
    ],
)
def test_ways_of_pooling(pooling: Any, expected: str, tmp_path: Path) -> None:
    sentence_files(tmp_path, pooling, "Pooling")
    assert read_sentence_settings(tmp_path).pooling == expected


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode": "lasttoken"}, "pooling by 'lasttoken' is not supported; use one of"),
        ({"pooling_mode": ["cls", "max"]}, "pooling by 'cls' and 'max' is not supported"),
        ({"pooling_mode": [["cls"]]}, "is not supported"),
        ({"word_embedding_dimension": 16}, "pooling by nothing is not supported"),
    ],
)
def test_other_ways_of_pooling_are_refused(pooling: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=expected):
        read_sentence_settings(sentence_files(tmp_path, pooling, "Pooling"))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["Normalize"], "lists 0 Pooling modules instead of one"),
        (["Pooling", "Pooling"], "lists 2 Pooling modules instead of one"),
        (["Pooling", "Dense"], "module 'Dense' is not supported"),
    ],
)
def test_other_modules_are_refused(kinds: list[str], expected: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=expected):
        read_sentence_settings(sentence_files(tmp_path, {"pooling_mode": "cls"}, *kinds))


@pytest.mark.parametrize("path", ["../1_Pooling", "/tmp", "", ".", "a//b", "a\\b", 7])
def test_a_pooling_elsewhere_is_refused(path: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a directory beside this file"):
        read_sentence_settings(sentence_files(tmp_path, {}, "Pooling", path=path))


def test_a_pooling_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2_Pooling/config.json cannot be read"):
        read_sentence_settings(sentence_files(tmp_path, {}, "Pooling", path="2_Pooling"))


BOTH = "'passage: ', 'query: '"


@pytest.mark.parametrize(
    ("name", "prefix", "others"),
    [("query", "query: ", "'passage: '"), (None, "", BOTH), ("plain", "", BOTH)],
)
def test_the_default_prompt_is_a_prefix(
    name: str | None, prefix: str, others: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sentence_files(tmp_path, {"pooling_mode": "cls"}, "Pooling")
    prompts = {"query": "query: ", "passage": "passage: ", "plain": ""}
    settings = {"prompts": prompts, "default_prompt_name": name}
    write_json(tmp_path / "config_sentence_transformers.json", settings)
    assert read_sentence_settings(tmp_path).prefix == prefix
    assert [line.split("(")[1].split(")")[0] for line in warned(caplog)] == [others]


def test_a_prompt_outside_the_pooling_is_refused(tmp_path: Path) -> None:
    settings = {"pooling_mode": "mean", "include_prompt": False}
    with pytest.raises(DataError, match="include_prompt = false is not supported"):
        read_sentence_settings(sentence_files(tmp_path, settings, "Pooling"))


# labels


def test_labels_of_one_name_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    names = {"0": "crane", "1": "owl", "2": "crane"}
    labels = Config({"id2label": names}, Path("config.json")).labels()
    assert labels == ("crane (0)", "owl", "crane (2)")
    (line,) = warned(caplog)
    assert "id2label repeats 'crane'" in line and "'crane (0)'" in line


@pytest.mark.parametrize("name", ["", " \n"])
def test_a_blank_label_is_refused(name: str) -> None:
    with pytest.raises(DataError, match="label 1 of id2label is blank; name it"):
        Config({"id2label": {"0": "crane", "1": name, "2": name}}, Path("config.json")).labels()


def test_labels_that_cannot_be_told_apart() -> None:
    names = {"0": "crane", "1": "crane (0)", "2": "crane"}
    with pytest.raises(DataError, match="all different"):
        Config({"id2label": names}, Path("config.json")).labels()
