"""The end-to-end memory network: its equations, its attention, and the stories it is for."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import transduce
from transduce.nn.attention import record_attention
from transduce.nn.memory_network import MemoryDecoder, MemoryEncoder, MemoryWindow
from transduce.nn.stack_configs import MemoryConfig
from transduce.sequence import Padded

ROOT = Path(__file__).parents[2]


def test_a_window_is_the_position_encoding_of_its_tokens() -> None:
    """l_kj = (1 - j/J) - (k/d)(1 - 2j/J) of Sukhbaatar et al., section 4.1, over √J."""
    window = MemoryWindow(4, 3)
    torch.nn.init.eye_(window.output.weight)
    x = torch.randn(1, 5, 4)
    with torch.no_grad():
        result = window(F.pad(x, (0, 0, 0, 2)))[0]
    for t in range(5):
        for k in range(1, 5):
            expected = sum(
                ((1 - j / 3) - (k / 4) * (1 - 2 * j / 3)) * x[0, t + j - 1, k - 1]
                for j in range(1, 4)
                if t + j - 1 < 5
            )
            assert float(result[t, k - 1]) == pytest.approx(float(expected) / 3**0.5, abs=1e-6)


def test_hops_are_the_equations_of_the_paper() -> None:
    torch.manual_seed(1)
    encoder = MemoryEncoder(MemoryConfig(hops=2, window=2, max_age=3), 6).eval()
    x = torch.randn(1, 5, 6)
    with torch.inference_mode(), record_attention(encoder) as maps:
        result = encoder(Padded.unpadded(x)).values[0]
    age = torch.tensor([2, 2, 2, 1, 0])  # from the end; older ones share the last vector
    windows = F.pad(x, (0, 0, 0, 1))
    m = encoder.key(windows)[0] + encoder.key_age(age)
    c = encoder.value(windows)[0] + encoder.value_age(age)
    for t in range(5):
        u = encoder.query(windows)[0, t]
        for hop in range(2):
            p = (m @ u / 6**0.5).softmax(0)
            observed = maps[f"layers.{hop}"][0][0, 0, t]
            torch.testing.assert_close(observed, p, atol=1e-6, rtol=0)
            u = encoder.norm(encoder.between(u) + p @ c)
        torch.testing.assert_close(result[t], u, atol=1e-5, rtol=0)


def test_a_language_model_reads_its_latest_memories() -> None:
    """Position t sees t, t - 1 and t - 2, each with the vectors of its age."""
    torch.manual_seed(1)
    decoder = MemoryDecoder(MemoryConfig(hops=2, window=2, max_age=3), 6).eval()
    x = torch.randn(1, 5, 6)
    with torch.inference_mode(), record_attention(decoder) as maps:
        result = decoder(Padded.unpadded(x), decoder.start()).values[0]
        state = decoder.start()
        steps = [decoder(Padded.unpadded(part), state).values for part in x.split((3, 1, 1), 1)]
    torch.testing.assert_close(torch.cat(steps, 1)[0], result, atol=1e-6, rtol=0)
    windows = F.pad(x, (0, 0, 1, 0))
    for t in range(5):
        ages = torch.arange(min(t, 2), -1, -1)
        m = decoder.key(windows)[0, t - ages] + decoder.key_age(ages)
        c = decoder.value(windows)[0, t - ages] + decoder.value_age(ages)
        u = decoder.query(windows)[0, t]
        for hop in range(2):
            p = (m @ u / 6**0.5).softmax(0)
            expected = torch.zeros(5).index_copy(0, t - ages, p)
            observed = maps[f"layers.{hop}"][0][0, 0, t]
            torch.testing.assert_close(observed, expected, atol=1e-6, rtol=0)
            u = decoder.norm(decoder.between(u) + p @ c)
        torch.testing.assert_close(result[t], u, atol=1e-5, rtol=0)


def stories(path: Path) -> Path:
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import stories;"
        "stories.SIZES = {'train': 200, 'valid': 40, 'test': 40};"
        "stories.write(pathlib.Path(sys.argv[2]) / 'stories')"
    )
    recipes = str(ROOT / "recipes")
    subprocess.run([sys.executable, "-c", code, recipes, str(path)], check=True)
    return path / "stories"


def answer_of(question: str, story: str) -> str:
    """The answer found by reading the story."""
    asked = question.split()[-2]
    at: dict[str, str] = {}
    holder: dict[str, str] = {}
    for sentence in story.removesuffix(" .").split(" . "):
        person, verb, *_, last = sentence.split()
        if verb == "took":
            holder[last] = person
        else:
            at[person] = last
    return at[holder.get(asked, asked)]


@pytest.mark.system
def test_stories_hold_their_answers(tmp_path: Path) -> None:
    files = sorted(stories(tmp_path / "a").glob("*.tsv"))
    again = sorted(stories(tmp_path / "b").glob("*.tsv"))
    assert [one.read_bytes() for one in files] == [one.read_bytes() for one in again]
    assert len(files) == 6
    observed: set[tuple[str, ...]] = set()
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            question, story, answer = line.split("\t")
            assert answer_of(question, story) == answer
            assert (question, story) not in observed
            observed.add((question, story))


@pytest.mark.system
@pytest.mark.parametrize(("name", "layers"), [("memory", 3), ("transformer", 2)])
def test_the_recipes_train_and_explain(
    name: str, layers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stories(tmp_path)
    monkeypatch.setenv("TRANSDUCE_DATA", str(tmp_path))
    recipe = ROOT / "recipes" / "classification" / f"stories-{name}.toml"
    small = ("training.steps=3", "training.schedule.warmup_steps=1", "training.film=2")
    run, _ = transduce.train(recipe, tmp_path / "run", [*small, "training.validate_every=3"])
    model = transduce.load(run, "cpu")
    lines = (tmp_path / "stories" / "two-test.tsv").read_text(encoding="utf-8").splitlines()
    question, story, _ = random.Random(1).choice(lines).split("\t")
    observed = model.explain((question, story))
    assert len(observed.attention) == layers and observed.attention[-1].rows == "text"
    assert model.film is not None and len(model.film.scenes[0].attention[0]) == layers
    assert "<!doctype html>" in observed.page()
