"""Definitions that would end the library `tokenizers`, or never end: one line when loaded."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece.sentencepiece_model_pb2 as protocol

from helpers.hugging_face import change_json, sentence_pieces, sentences, write_json
from helpers.saved_tokenizers import saved
from transduce.cli.main import main
from transduce.errors import RunError
from transduce.text import HuggingFaceTokenizer, Numbering
from transduce.text.hugging_face import MAX_LENGTH_TARGET, check_definition, runs_away

PIECES = {"[UNK]": 0, "a": 1, "b": 2}
WORDS = {"type": "WordLevel", "unk_token": "[UNK]", "vocab": PIECES}
USUAL = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{M}]+(?i:'s|'t)?|\s+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))",
    r"(\[[^\]]+]|Br?|Cl?|N|\(|\)|\.|>>?|\*|\%[0-9]{2}|[0-9])",
    *(r" {2,}", r"\s+", r"(?:ab){2}(c|d)e*", r"[^]a]b|[\]a[^b]]+\]"),
]
ENDLESS = [
    *(r"(a+)+$", r"(a|a)*$", r"^(a|aa)+$", r"(.*)*x", r"(\w+\s?)+$", r"(.*a){12}"),
    *(r"(?:a+)+b", r"((a+))+b", r"(?i:(a*)*)b", r"a*a*a*a*b", r"((ab)*)*", r"(\p{L}+)*\d"),
    *(r"(a*)+?b", r"(?<n>a+)+b", r"(\w|\d)*", r"(a|)+", "a?" * 30 + "a" * 30),
    *("(a|a)" * 30, "(a*|b)" * 4, r"(?:A|C|G|T)+x", "a" * 20_000, r"([)a]b+)*", r"\\(a+)+"),
    *("(?x) # [\n(a+)+ # ]", r"(?<n>a|a\g<n>)b", r"(?<n>a+)\k<n>", "(?~a)", "(?#[)(a+)+(?#])"),
]


NO_UNKNOWN = r"(?i)cannot read it \(.*(unk|out of vocabulary)"


def definition(model: Any = WORDS, **parts: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("truncation", "padding", "post_processor", "decoder"))
    stages = {"normalizer": None, "pre_tokenizer": None}
    return {"version": "1.0", "added_tokens": [], **nothing, **stages, **parts, "model": model}


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def split(expression: str) -> dict[str, Any]:
    pattern = {"Regex": expression}
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


def charsmap() -> bytes:
    """The map of a new SentencePiece model, a double-array trie and its targets."""
    model = protocol.ModelProto()
    model.ParseFromString(sentence_pieces(sentences(50), 40)[0])
    result: bytes = model.normalizer_spec.precompiled_charsmap
    return result


def precompiled(data: bytes) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def refused(content: dict[str, Any], said: str) -> None:
    with pytest.raises(RunError, match=said) as caught:
        HuggingFaceTokenizer(content, Numbering(size=9, bos=1, eos=2))
    assert "\n" not in str(caught.value)


def test_whole_maps_are_read() -> None:
    check_definition(definition(normalizer=precompiled(charsmap())))


@pytest.mark.parametrize("left", [0, 3, 4, 5, 1000, 100_001, 200_000, -200])
def test_maps_that_are_cut_off(left: int, capfd: pytest.CaptureFixture[str]) -> None:
    cut = {"type": "Sequence", "normalizers": [precompiled(charsmap()[:left])]}
    refused(definition(normalizer=cut), "its map is damaged")
    assert not capfd.readouterr().err


def test_maps_that_lead_elsewhere() -> None:
    data = charsmap()
    size = int.from_bytes(data[:4], "little")
    targets = data[4 + size :]
    far = data[:4] + b"\x00\xfc\xff\x7f" + data[8:]  # the first unit's children
    within = data[: 4 + size] + b"\xe2\x82\xac" * 20_000  # places within characters
    long = data[: 4 + size] + b"x" * (MAX_LENGTH_TARGET + len(targets))
    refused(definition(normalizer=precompiled(far)), "its map is damaged")
    refused(definition(normalizer=precompiled(within)), "its map is damaged")
    refused(definition(normalizer=precompiled(long)), f"more than {MAX_LENGTH_TARGET} bytes")
    refused(definition(normalizer=precompiled(b"") | {"precompiled_charsmap": "?"}), "is damaged")


@pytest.mark.parametrize("expression", USUAL)
def test_usual_expressions(expression: str) -> None:
    assert not runs_away(expression)
    made = HuggingFaceTokenizer(definition(pre_tokenizer=split(expression)), Numbering(size=9))
    made.encode("aaaa bbbb  a1\n" * 200)


@pytest.mark.parametrize("expression", ENDLESS)
@pytest.mark.parametrize("stage", ["normalizer", "pre_tokenizer", "decoder"])
def test_endless_expressions(expression: str, stage: str) -> None:
    step = split(expression) if stage == "pre_tokenizer" else replace({"Regex": expression}, "b")
    refused(definition(**{stage: step}), "may take exponential time")


@pytest.mark.parametrize(
    "steps",
    [
        [replace({"String": "a"}, "aa")] * 30,
        [replace({"Regex": "a|b"}, "aa")] * 30,
        [{"type": "Sequence", "normalizers": [replace({"String": " "}, "a" * 100)] * 2}] * 2,
        [{"type": "Prepend", "prepend": "a" * 10_000}],
    ],
)
def test_texts_that_would_grow_without_end(steps: list[Any]) -> None:
    chain = {"type": "Sequence", "normalizers": steps}
    refused(definition(normalizer=chain), "times longer")


def test_replacing_nothing() -> None:
    refused(definition(normalizer=replace({"String": ""}, "b")), "matches the empty string")
    for expression in ("a*", r"\b", "(?=a)"):
        rule = replace({"Regex": expression}, "b")
        made = HuggingFaceTokenizer(definition(normalizer=rule), Numbering(size=9))
        assert len(made.encode("a" * 1000)) <= 1001


def test_rules_that_are_used_everywhere() -> None:
    steps = [
        replace({"String": "``"}, '"'),
        replace({"Regex": " {2,}"}, " "),
        {"type": "Prepend", "prepend": "▁"},
        replace({"String": " "}, "▁"),
    ]
    decoders = [
        replace({"String": "▁"}, " "),
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    made = HuggingFaceTokenizer(
        definition(
            normalizer={"type": "Sequence", "normalizers": steps},
            decoder={"type": "Sequence", "decoders": decoders},
        ),
        Numbering(size=9),
    )
    assert len(made.encode("a")) == 1


@pytest.mark.parametrize(
    "model",
    [
        {"type": "WordPiece", "unk_token": "<x>", "vocab": PIECES},
        {"type": "WordLevel", "unk_token": "<x>", "vocab": PIECES},
        {"type": "BPE", "unk_token": "<x>", "vocab": PIECES, "merges": []},
        {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0]]},
    ],
)
def test_no_token_for_what_is_unknown(model: dict[str, Any]) -> None:
    usual = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    refused(definition(usual | model), NO_UNKNOWN)


def test_nothing_is_unknown_to_bytes() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    letters = {letter: i for i, letter in enumerate(sorted(ByteLevel.alphabet()))}
    model = {"type": "BPE", "unk_token": "<x>", "vocab": letters, "merges": []}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    result = definition(model, pre_tokenizer=level)
    made = HuggingFaceTokenizer(result, Numbering(size=300))
    assert len(made.encode("é a")) == 4
    del model["vocab"]["a"]
    refused(result, NO_UNKNOWN)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "length above 0"),
        ({"decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 2}}, "stop = 2"),
        ({"normalizer": {"type": "Prepend", "prepend": ""}}, "needs a string"),
    ],
)
def test_steps_at_which_the_library_ends(parts: dict[str, Any], message: str) -> None:
    refused(definition(**parts), message)


def test_merges_shorter_than_their_prefix() -> None:
    model = {"type": "BPE", "continuing_subword_prefix": "##", "vocab": PIECES}
    refused(definition({**model, "merges": [["a", "b"]]}), "is shorter than")


def test_added_tokens_of_which_nothing_is_left() -> None:
    token = {"id": 3, "content": " ", "single_word": False, "lstrip": False, "rstrip": False}
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    added = [{**token, "normalized": True, "special": False}]
    refused(definition(normalizer=strip, added_tokens=added), "is empty after normalisation")


STEPS: list[dict[str, Any]] = [
    {"normalizer": precompiled(b"\xff\xff\xff")},
    {"pre_tokenizer": split("(a+)+$")},
    {"normalizer": {"type": "Sequence", "normalizers": [replace({"String": "a"}, "aa")] * 40}},
    {"normalizer": {"type": "Other"}},
    {"added_tokens": [{"content": "a"}]},
    {"model": None},
]
MORE: list[dict[str, Any]] = [
    {"model": {"type": "WordPiece", "unk_token": "<x>", "vocab": PIECES}},
    {"decoder": {"type": "Other"}},
]


@pytest.mark.parametrize(
    ("way", "change"),
    [*(("fast", change) for change in STEPS), *(("fast-alone", change) for change in STEPS + MORE)],
)
def test_imports_answer_in_one_line(
    way: str, change: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = saved("bert", way, tmp_path / "saved", [])
    path, config = directory / "tokenizer.json", directory / "tokenizer_config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    settings.pop("added_tokens_decoder", None)  # so that those of tokenizer.json count
    write_json(config, settings)
    change_json(path, **change)
    capfd.readouterr()
    assert main(["import", str(directory), str(tmp_path / "run")]) != 0
    message = capfd.readouterr()
    assert not message.out and len(message.err.splitlines()) == 1, message.err
    assert str(path) in message.err
    assert not (tmp_path / "run").exists()
