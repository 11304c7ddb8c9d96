"""Pictures and commands of the book: as the script draws them, and parsed."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.cli.main import build_app
from transduce.explain.live import stack_facts
from transduce.nn.stack_configs import TransformerConfig

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHAPTERS = sorted(DOCS.glob("book/*.md"))


def commands() -> list[str]:
    """Commands of all chapters, in the text and in blocks of the shell."""
    lines = set()
    for chapter in CHAPTERS:
        text = chapter.read_text(encoding="utf-8")
        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        lines |= set(re.findall(r"`([^`\n]+)`", text)) | set("\n".join(blocks).splitlines())
    parts = {part.strip() for line in lines for part in line.replace("\\|", "|").split("|")}
    return sorted(part for part in parts if re.match(r"transduce \w+ \S", part))


def pictures(chinese: bool) -> set[str]:
    """Pictures that the chapters of the book show."""
    pages = [path for path in DOCS.glob("book/*.md") if path.name.endswith(".zh.md") == chinese]
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    return set(re.findall(r"\]\(\.\./see/([\w.-]+\.svg)\)", text))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pictures as the script draws them now; two of them by the code of a page."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    directory = tmp_path_factory.mktemp("see")
    script = DOCS / "see" / "pictures.py"
    subprocess.run([sys.executable, str(script), str(directory)], check=True)
    return {path.name: path.read_text(encoding="utf-8") for path in directory.iterdir()}


def figures(picture: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", picture)]


@pytest.mark.system
def test_committed_pictures_are_what_the_script_draws(drawn: dict[str, str]) -> None:
    committed = {path.name for path in (DOCS / "see").glob("*.svg")}
    assert committed == set(drawn), "run `python docs/see/pictures.py`"
    for name, picture in drawn.items():
        kept = (DOCS / "see" / name).read_text(encoding="utf-8")
        assert re.sub(r"[-\d.]+", "0", kept) == re.sub(r"[-\d.]+", "0", picture), name
        assert figures(kept) == pytest.approx(figures(picture), abs=0.02), name


@pytest.mark.system
@pytest.mark.parametrize("chinese", [False, True])
def test_every_picture_is_in_the_book(chinese: bool, drawn: dict[str, str]) -> None:
    assert pictures(chinese) == {name for name in drawn if name.endswith(".zh.svg") == chinese}


NAMES = {"RNN", "CNN", "Concat", "Dropout", "LayerNorm", "Softmax", "Transformer", "base"}
NAMES |= {"Concat", "MatMul", "softmax", "d_model", "d_v", "d_k"}


@pytest.mark.system
def test_pictures_of_the_chinese_book_are_in_chinese(drawn: dict[str, str]) -> None:
    """English words are names, or tokens of the models, which stand alone."""
    for name, picture in drawn.items():
        texts = re.findall(r"(?<=>)[^<>]+(?=</(?:text|title)>)", picture)
        phrases = [text for text in texts if len(re.findall(r"[A-Za-z_]{3,}", text)) > 1]
        if name.endswith(".zh.svg"):
            words = {word for text in phrases for word in re.findall(r"[A-Za-z_]{3,}", text)}
            assert words <= NAMES | {"student"}, name


def test_plots_of_why_attention_are_in_both_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "see"))
    from chinese import in_chinese  # a script, not a package

    plots = DOCS / "measurements" / "why-attention"
    for path in plots.glob("*.zh.svg"):
        english = (plots / path.name.replace(".zh", "")).read_text(encoding="utf-8")
        assert path.read_text(encoding="utf-8") == in_chinese(english) != english
    assert len(list(plots.glob("*.zh.svg"))) == len(list(plots.glob("*.svg"))) / 2


@pytest.mark.system
def test_pictures_are_small(drawn: dict[str, str]) -> None:
    assert sum(len(picture.encode()) for picture in drawn.values()) < 1_200_000


@pytest.mark.parametrize("command", commands())
def test_commands_can_be_parsed(command: str) -> None:
    command = command.replace("$R", "recipes/translation/tatoeba-ancestors.toml").replace("$S", "")
    command = command.partition(" < ")[0]
    words = shlex.split(command)[1:]
    build_app(words[0]).parse_args(words, exit_on_error=False, print_error=False)
    recipes = [word for word in words if word.startswith("recipes/")]
    assert [recipe for recipe in recipes if not (ROOT / recipe).is_file()] == []


@pytest.mark.system
def test_committed_pages_are_what_the_script_makes(tmp_path: Path) -> None:
    script = DOCS / "see" / "pages.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {path.name for path in (DOCS / "see").glob("*.html")}
    for name in made:
        kept = (DOCS / "see" / name).read_text(encoding="utf-8")
        assert kept == (tmp_path / name).read_text(encoding="utf-8"), "run docs/see/pages.py"


@pytest.mark.parametrize(
    "name",
    [f"{name}.html" for name in ("music", "copy", "paper", "speller", "gpt", "zh-en", "en-zh")],
)
def test_models_of_committed_pages_state_the_facts_of_their_stacks(name: str) -> None:
    """The script keeps the model of a page: a new fact is written into it, or it is made anew."""
    page = (DOCS / "see" / name).read_text(encoding="utf-8")
    (model,) = re.findall(r'<script id="model" type="application/json">(.*?)</script>', page)
    facts = stack_facts("encoder", TransformerConfig(), 128)
    assert facts["kind"] == "transformer"
    for stack in json.loads(model)["stacks"].values():
        assert stack.keys() == facts.keys() and stack["kind"] == facts["kind"]


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("music.html", 4_000_000),
        ("copy.html", 1_750_000),
        ("paper.html", 4_000_000),
        ("zh-en.html", 8_000_000),
        ("en-zh.html", 8_000_000),
        ("speller.html", 2_500_000),
        ("rnn.html", 800_000),
        ("vit.html", 600_000),
        ("bert.html", 1_100_000),
        ("gpt.html", 1_500_000),
        ("vector.html", 900_000),
    ],
)
def test_finished_pages_are_small_and_need_nothing_else(name: str, limit: int) -> None:
    page = (DOCS / "see" / name).read_text(encoding="utf-8")
    assert len(page.encode()) < limit
    assert re.findall(r"(?:src|href)=[\"']?(?!#|data:)\w+|@import|url\((?!data:)", page) == []
