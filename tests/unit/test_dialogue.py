"""Dialogue: roles that no text can imitate, what is learnt of turns, and replies."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import transduce
from helpers.tiny_run import stack, training, write_jsonl
from transduce.data.batches import DataState
from transduce.data.documents import EncodedDocuments, cached_documents
from transduce.data.packing import PackedBatches
from transduce.errors import DataError, SettingError
from transduce.sequence import Padded
from transduce.settings.sections import apply_overrides
from transduce.tasks.language_model.dialogue import (
    ChatTemplate,
    Conversation,
    DialogueRecipe,
    DialoguesConfig,
    TrainedDialogue,
    Turn,
    read_dialogues,
)
from transduce.tasks.language_model.task import text_scores
from transduce.text import BOS, EOS, SubwordConfig, train_tokenizer
from transduce.text.tokenizer import CharactersConfig
from transduce.training.weights import read_tensors

LETTERS = "abcdefgh [/user]<|>012:"
CHARACTERS = train_tokenizer(CharactersConfig(), [LETTERS])
ROLES = ("user", "model")


def turns(*texts: str) -> list[Turn]:
    return [Turn(i % 2, text) for i, text in enumerate(texts)]


# --- reading -------------------------------------------------------------------------------------


def test_texts_alternate_and_objects_name_their_role(tmp_path: Path) -> None:
    rows = [{"d": {"en": ["hi", " hello\n", "", "bye"]}}, {"d": {"en": [""]}}]
    write_jsonl(tmp_path / "a.jsonl", rows)
    asked = {"role": "user", "content": "one\ntwo"}
    told = {"role": "system", "content": "be kind"}
    write_jsonl(tmp_path / "b.jsonl.gz", [{"d": {"en": [told, asked, "three"]}}])
    config = DialoguesConfig(path=(Path("a.jsonl"), Path("b.jsonl.gz")), turns="d.en")
    found = list(read_dialogues(config, tmp_path, ("system", *ROLES)))
    assert found == [
        [Turn(1, "hi"), Turn(2, "hello"), Turn(2, "bye")],
        [Turn(0, "be kind"), Turn(1, "one\ntwo"), Turn(1, "three")],
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"turn": ["a"]}, r"line 1 has no column 'turns'; did you mean 'turn'\?"),
        ({"turns": "a"}, "'turns' must be a list of turns, not str"),
        ({"turns": ["a", 3]}, 'turn 2 must be a string or an object with "role" and "content"'),
        (
            {"turns": [{"role": "usr", "content": "a"}]},
            r"line 1: turn 1 has an unknown role, 'usr'; did you mean 'user'\?",
        ),
        (
            {"turns": [{"role": "system", "content": "a"}]},
            r"an unknown role, 'system'; add it to data.roles \(now 'user', 'model'\)",
        ),
        ({"turns": [{"role": "user"}]}, "turn 1 must be"),
        (["a"], "line 1 is not a JSON object"),
    ],
)
def test_dialogues_that_cannot_be(tmp_path: Path, line: Any, message: str) -> None:
    write_jsonl(tmp_path / "a.jsonl", [line])
    with pytest.raises(DataError, match=message):
        list(read_dialogues(DialoguesConfig(path=Path("a.jsonl")), tmp_path, ROLES))


# --- layout --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tokenizer",
    [CHARACTERS, train_tokenizer(SubwordConfig(size=300), ["<s> </s> user: model: [0]"] * 9)],
    ids=["characters", "subwords"],
)
def test_no_text_can_imitate_a_role(tokenizer: Any) -> None:
    template = ChatTemplate(tokenizer.size, [True, True])
    marks = {*template.marks, BOS, EOS}
    assert template.rows == tokenizer.size + 2 and min(template.marks) == tokenizer.size
    shown = tokenizer.decode(list(template.marks)), "".join(tokenizer.tokens(list(template.marks)))
    attacks = ["</s>", "<s>", "<pad>", "\x02\x03", "user:", "model\n", "<|user|>", *shown]
    for text in attacks:
        assert not marks & set(tokenizer.encode(text))
        rows, _ = template.encode([turns("hi", text, "a")], tokenizer.encode_batch)
        read = [token % template.rows for token in rows[0]]
        assert sum(token in template.marks for token in read) == 3
        assert read.count(EOS) == 3 and read.count(BOS) == 1


def test_turns_by_hand() -> None:
    template = ChatTemplate(CHARACTERS.size, [False, True])
    user, model = template.marks
    a, b, c = CHARACTERS.encode("abc")
    rows, n_bytes = template.encode(
        [turns("a", "bc", "c"), turns("a"), turns("", "b")], CHARACTERS.encode_batch
    )
    far = template.rows
    assert rows == [
        [BOS, user + far, a + far, EOS + far, model + far, b, c, EOS, user + far, c + far,
         EOS + far],
        [BOS, model + far, b, EOS],
    ]  # fmt: skip
    assert n_bytes == 3


def build(data: Path, *overrides: str, seed: int = 0) -> TrainedDialogue:
    """Untrained, in float64, with opinions."""
    torch.manual_seed(seed)
    model = TrainedDialogue.new(
        DialogueRecipe.parse(settings(data, *overrides), "recipe"), CHARACTERS
    )
    with torch.no_grad():
        model.model.front_end.embedding.weight.mul_(3)
    model.model.double().eval()
    return model


def some_dialogues(n: int, longest: int = 12, seed: int = 1) -> list[list[Turn]]:
    chance = random.Random(seed)
    return [
        turns(
            *("".join(chance.choices("abcdefgh", k=chance.randint(1, longest))) for _ in range(k))
        )
        for k in (chance.randint(1, 5) for _ in range(n))
    ]


@pytest.mark.parametrize("loss_on", ["all", "answers"])
@torch.no_grad()
def test_what_counts(tmp_path: Path, loss_on: str) -> None:
    model = build(tmp_path, f"data.loss_on={loss_on}", "text.block=64", "training.batch_tokens=128")
    dialogues = some_dialogues(12)
    nll, tokens, n_bytes = 0.0, 0, 0
    for dialogue in dialogues:
        ids, learned = [BOS], [False]
        for turn in dialogue:
            said = model.template.turn(turn.role, CHARACTERS.encode(turn.text))
            counts = loss_on == "all" or turn.role == 1
            ids += said
            learned += [False] + [counts] * (len(said) - 1)
            n_bytes += counts * len(turn.text)
        logits = model.model(Padded.unpadded(torch.tensor([ids[:-1]])))[0]
        losses = -logits.log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
        nll += losses[torch.tensor(learned[1:])].sum().item()
        tokens += sum(learned)
    data = EncodedDocuments.of_rows(*model.coding.encode(dialogues))
    assert max(data.offsets[1:] - data.offsets[:-1]) <= 64, "none is cut"
    batches = PackedBatches(data, 64, 128, 0, model.template.rows)
    assert sum(batch.target_tokens for batch in batches.in_order()) == tokens
    cut = PackedBatches(data, 16, 32, 0, model.template.rows)
    for stride in (0, 5):
        assert sum(batch.target_tokens for batch in cut.in_order(stride)) == tokens
    scores = text_scores(model.model, batches)
    assert scores["loss"] == pytest.approx(nll / tokens)
    assert scores["perplexity"] == pytest.approx(math.exp(nll / tokens))
    assert scores["bits_per_byte"] == pytest.approx(nll / math.log(2) / n_bytes)
    examples = [
        ("\n".join(turn.text for turn in dialogue[:-1]), dialogue[-1].text)
        for dialogue in dialogues
        if len(dialogue) % 2 == 0
    ]
    found = model.evaluate("test", [((history,), answer) for history, answer in examples])
    assert len(found.sources) == len(examples) > 2 and float(found.scores["loss"]) > 0


def test_batches_without_anything_to_learn_are_passed_over() -> None:
    template = ChatTemplate(CHARACTERS.size, [False, True])
    dialogues = [turns("a" * 30, "b"), turns("abc", "d" * 25), turns("a" * 40, "b" * 3)]
    data = EncodedDocuments.of_rows(*template.encode(dialogues, CHARACTERS.encode_batch))
    batches = PackedBatches(data, 8, 8, 3, template.rows)
    found, state = [], DataState()
    for batch, after in batches.iterate():
        if after.epoch == 2:
            break
        found.append((batch, after))
    assert all(batch.target_tokens for batch, _ in found)
    assert sum(batch.target_tokens for batch, _ in found if _.epoch == 0) <= 2 + 26 + 4
    learned = sum(batch.target_tokens for batch in batches.in_order())
    assert learned == 2 + 26 + 4 < len(data.tokens) - len(data)
    assert all(int(batch.inputs.values.max()) < template.rows for batch, _ in found)
    for (batch, state), (again, after) in zip(
        found[5:], batches.iterate(found[4][1]), strict=False
    ):
        assert batch.inputs.values.equal(again.inputs.values) and state == after


def test_encoded_once(tmp_path: Path) -> None:
    coding = build(tmp_path, "data.loss_on=answers").coding
    dialogues = some_dialogues(2500)
    unread = [dialogues]  # the second time nobody asks
    known = EncodedDocuments.of_rows(*coding.encode(dialogues))
    for _ in range(2):
        found = cached_documents(unread.pop, coding, tmp_path / "c", "f")
        assert found.tokens.tolist() == known.tokens.tolist()
        assert found.offsets.tolist() == known.offsets.tolist() and found.n_bytes == known.n_bytes


# --- replies -------------------------------------------------------------------------------------

WAYS: list[dict[str, Any]] = [
    {"method": "beam", "beam_size": 2},
    {"method": "sample", "seed": 3},
    {"method": "sample", "stop_strings": ("a", "d ")},
]


def optioned(model: TrainedDialogue, way: dict[str, Any]) -> Any:
    return transduce.DecodingOptions(**{"max_tokens": 12, **way})


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_streams_is_what_predict_says(tmp_path: Path, way: dict[str, Any]) -> None:
    model = build(tmp_path)
    options = optioned(model, way)
    histories = ["abc", "abc\ndef\ngh", "", "h" * 30]
    together = model.predict([(history,) for history in histories], options, 4)
    for i, history in enumerate(histories):
        parts = list(model.stream(history, options, 4 + i))
        assert "".join(parts) == together[i].continuation
        assert together[i].fields()["reply"] == together[i].continuation
        assert "continuation" not in together[i].fields()
    (first,) = model.predict([("abc",)], options)
    assert "".join(Conversation(model, options).reply("abc")) == first.continuation


def test_a_reply_never_takes_another_role(tmp_path: Path) -> None:
    model = build(tmp_path)
    with torch.no_grad():
        model.model.head.weight[list(model.template.marks)] *= 20
        model.model.head.weight[EOS] = 0
    options = transduce.DecodingOptions(method="sample", max_tokens=40, n_best=6)
    (found,) = model.predict([("abc",)], options)
    assert "\ufffd" not in found.continuation + "".join(o.continuation for o in found.others)


def test_a_history_counts_from_its_end(tmp_path: Path) -> None:
    model = build(tmp_path)
    user, answer = model.template.marks
    a, b, c = CHARACTERS.encode("abc")
    assert model.to_answer(model.turns("a\n\n b \nc"))[0] == [
        BOS, user, a, EOS, answer, b, EOS, user, c, EOS, answer,
    ]  # fmt: skip
    assert [turn.role for turn in model.turns("a\nb")] == [1, 0]
    assert model.to_answer([]) == ([BOS, answer], 0)


def test_what_has_no_room_is_left_out_oldest_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = build(tmp_path, "text.block=32")
    answer = model.template.marks[1]
    ids, dropped = model.to_answer(turns("a", "bbbbbb", "cccc", "dddd", "e"))
    assert dropped == 2 and len(ids) <= 24
    assert ids == [
        BOS, *model.template.turn(0, CHARACTERS.encode("cccc")),
        *model.template.turn(1, CHARACTERS.encode("dddd")),
        *model.template.turn(0, CHARACTERS.encode("e")), answer,
    ]  # fmt: skip
    long = "abcdefgh" * 9
    ids, dropped = model.to_answer(turns("a", "b", long))
    assert dropped == 2 and len(ids) == 24
    assert CHARACTERS.decode(ids[2:-2]) == long[-20:]
    model.predict([("a",), ("\n".join(["abcdefgh"] * 4),)], optioned(model, WAYS[1]), 6)
    (record,) = caplog.records
    assert record.getMessage().startswith("history 8: dropping the oldest 2 of 4 turns")


def test_a_conversation_remembers(tmp_path: Path) -> None:
    model = build(tmp_path)
    options = optioned(model, {"method": "sample", "min_length": 5})
    talk = Conversation(model, options)
    first = "".join(talk.reply(" abc "))
    assert talk.turns == [Turn(0, "abc"), Turn(1, first.strip())]
    second = "".join(talk.reply("def"))
    (known,) = model.predict([(f"abc\n{first.strip()}\ndef",)], options, 1)
    assert known.continuation == second and talk.forgotten == 0
    assert talk.history()[0] == "user: abc" and talk.history()[3] == f"model: {second.strip()}"
    stream = talk.reply("gh")
    begun = next(part for part in stream if part.strip())
    stream.close()
    assert talk.turns[4] == Turn(0, "gh") and talk.turns[5].text.startswith(begun.strip())
    assert len(talk.turns) == 6
    talk.reset()
    assert talk.turns == talk.history() == []
    talk.reply("never asked for").close()
    assert talk.turns == []
    for _ in range(9):
        "".join(talk.reply("abcdefgh"))
    assert talk.forgotten > 0 and len(talk.turns) == 18


# --- training ------------------------------------------------------------------------------------

ANSWERS = {"ab": "ba", "cd": "dc", "ef": "fe", "gh": "hg"}


def write_questions(path: Path, n: int = 300, seed: int = 0) -> Path:
    """Each question has its answer; which question comes next, nobody knows."""
    chance = random.Random(seed)
    lines = []
    for _ in range(n):
        asked = chance.choices(sorted(ANSWERS), k=chance.randint(1, 3))
        lines.append({"turns": [text for q in asked for text in (q, ANSWERS[q])]})
    return write_jsonl(path, lines)


def settings(data: Path, *overrides: str) -> dict[str, Any]:
    given = {
        "task": "dialogue",
        "data": {
            "root": str(data),
            "train": {"path": "train.jsonl"},
            "valid": {"path": "valid.jsonl"},
        },
        "text": {"tokenizer": {"kind": "characters"}, "block": 40},
        "model": {"d_model": 32, "decoder": stack(d_ff=64, positions="rotary", dropout=0.0)},
        "training": training(
            6, 160, 1e-2, warmup=10, validate_every=3, log_every=100,
            label_smoothing=0.0, optimizer={"epsilon": 1e-8},
        ),
    }  # fmt: skip
    return apply_overrides(given, overrides)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dialogues")
    write_questions(path / "train.jsonl")
    write_questions(path / "valid.jsonl", 30, 1)
    return path


def test_learns_to_answer(data: Path) -> None:
    steps = "training.steps=70", "training.validate_every=70", "training.schedule.peak=2e-2"
    path, outcome = transduce.train(
        settings(data, "data.loss_on=answers", *steps), data / "runs" / "learnt"
    )
    assert outcome.scores["perplexity"] < 1.1
    run = transduce.load(path)
    found = run.predict(["ab", "cd\ndc\ngh", "ab\nba\ncd\ndc\nef"])
    assert [one.text for one in found] == ["ba", "hg", "fe"]
    valid = run.evaluate("valid")
    assert valid.scores["loss"] == pytest.approx(outcome.scores["loss"], abs=1e-4)
    right = run.evaluate(examples=[("ab", "ba"), ("ab\nba\ncd", "dc")])
    wrong = run.evaluate(examples=[("ab", "dc")])
    assert float(right.scores["perplexity"]) < 1.1 < 5 < float(wrong.scores["perplexity"])
    talk = run.conversation()
    assert ["".join(talk.reply(asked)) for asked in ("ef", "ab", "gh")] == ["fe", "ba", "hg"]
    assert run.info()["roles"] == ["user", "model"]


def test_recurrent_model_talks_by_its_state(data: Path) -> None:
    recipe = settings(data, "data.loss_on=answers", "decoding.method=beam", "training.steps=40")
    recipe["model"]["decoder"] = {"kind": "recurrent", "dropout": 0.0}
    path, _ = transduce.train(recipe, data / "runs" / "recurrent")
    run = transduce.load(path)
    talk = run.conversation()
    first = "".join(talk.reply("ab"))
    second = "".join(talk.reply("cd"))
    assert [one.text for one in run.predict(["ab", f"ab\n{first}\ncd"])] == [first, second]


@pytest.mark.system
@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("task", ["dialogue", "language-model"])
def test_starts_from_another_run(data: Path, tmp_path: Path, task: str, tie: bool) -> None:
    """From dialogues as they are; from a language model with marks beside what it knows."""
    train = {"path": "train.jsonl"}
    if task == "language-model":
        (tmp_path / "a.txt").write_text("\n".join([*ANSWERS, *ANSWERS.values()] * 9) + "\n")
        train = {"kind": "text", "path": str(tmp_path / "a.txt"), "documents": "line"}
    tied = f"model.tie={str(tie).lower()}", "model.output_bias=true", "training.steps=1"
    whole = settings(data, *tied, f"task={task}")
    whole["data"] = {"root": str(data), "train": train, "hold_out": 0.3}
    base, _ = transduce.train(whole, tmp_path / "runs" / "base")
    tuned = settings(data, f"fine_tune.run='{base}'", "training.steps=1")
    tuned["training"]["schedule"]["peak"] = 1e-9
    del tuned["model"]
    path, _ = transduce.train(tuned, tmp_path / "runs" / "tuned")
    assert (path / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()
    before, after = (read_tensors(run / "weights.safetensors") for run in (base, path))
    assert before.keys() == after.keys()
    marks = 0 if task == "dialogue" else 2
    for name, tensor in before.items():
        more = marks if name.startswith(("front_end.", "head.")) else 0
        assert len(after[name]) == len(tensor) + more, name
        torch.testing.assert_close(after[name][: len(tensor)], tensor, atol=1e-6, rtol=0)
    assert transduce.load(path).predict(["ab"])


def test_mistakes(data: Path, tmp_path: Path) -> None:
    for override, message in [
        ("data.roles=['one']", "data.roles"),
        ("training.select_by=perplexty", "select_by = 'perplexty', but validation measures"),
        ("data.roles=['a','b','a']", "data.roles contains a role twice"),
        ("data.loss_on=answer", "data.loss_on"),
        ("data.train.turn='en'", "data.train.turn is not a setting; did you mean 'turns'"),
        ("data.train.path=[]", "data.train.path"),
        ("training.batch_tokens=8", "is less than one row of text.block = 40"),
        ("evaluation.stride=41", "evaluation.stride = 41 would skip tokens"),
        ("training.r_drop=1", "training.r_drop needs dropout"),
    ]:
        with pytest.raises(SettingError, match=message):
            DialogueRecipe.parse(settings(data, override), "recipe")
    write_jsonl(tmp_path / "train.jsonl", [{"turns": ["a"]}, {"turns": ["b"]}])
    recipe = settings(tmp_path, "data.loss_on=answers")
    with pytest.raises(DataError, match=r"data.train has no dialogue with a turn"):
        transduce.train(recipe, tmp_path / "runs" / "r")
    write_jsonl(tmp_path / "valid.jsonl", [{"turns": [""]}])
    with pytest.raises(DataError, match=r"data.valid has no dialogue"):
        transduce.train(settings(tmp_path), tmp_path / "runs" / "v")
    with pytest.raises(DataError, match=r"no test data"):
        build(data).evaluate("test")
