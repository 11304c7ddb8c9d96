"""The front page is short, the pages behind it complete, and links lead somewhere."""

import re
import tomllib
from pathlib import Path

import pytest

from transduce.cli.main import VERBS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
READMES = ["README.md", "README.zh.md"]
PAGES = [path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]]
RECIPES = sorted((ROOT / "recipes").glob("*/*.toml"))


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    slugs = {
        "".join(c for c in heading.lower() if c.isalpha() or c.isdecimal() or c in "_- ")
        for heading in headings
    }
    return {slug.replace(" ", "-") for slug in slugs} | set(re.findall(r'<a id="([^"]+)"', text))


def assert_leads_somewhere(base: Path, link: str) -> None:
    file, _, anchor = link.partition("#")
    target = base / file
    assert target.exists(), link
    if anchor and target.suffix == ".md":  # a page of explain keeps its state there
        assert anchor in anchors(target), link


def head_of(recipe: Path) -> list[str]:
    lines = text_of(recipe).splitlines()
    return lines[: next(i for i, line in enumerate(lines) if not line.startswith("#"))]


def test_readmes_are_short() -> None:
    assert len(text_of(ROOT / "README.md").split()) <= 900
    assert len(re.findall(r"[\u4e00-\u9fff]", text_of(ROOT / "README.zh.md"))) <= 1800


@pytest.mark.parametrize("page", PAGES)
def test_links_and_anchors_lead_somewhere(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text_of(path))
    for link in (one or other for one, other in links):
        if "://" not in link:
            file = link.partition("#")[0]
            assert_leads_somewhere(path.parent, link if file else path.name + link)


def test_guides_and_references_stay_short() -> None:
    """English pages beside the book and the measurements; their tables of figures are there."""
    pages = [page for page in DOCS.rglob("*.md") if not page.name.endswith(".zh.md")]
    folders = {"measurements", "book", "_build"}
    sizes = [page.stat().st_size for page in pages if not folders & set(page.parts)]
    assert sum(sizes) <= 490_000


def test_every_command_is_on_its_page() -> None:
    page = text_of(DOCS / "commands.md")
    assert [verb for verb in VERBS if f"| `transduce {verb} " not in page] == []


def test_every_recipe_is_among_the_results() -> None:
    page = text_of(DOCS / "measurements" / "results.md")
    missing = [str(path) for path in RECIPES if path.relative_to(ROOT).as_posix() not in page]
    assert missing == []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_heads_of_recipes_are_short_and_complete(recipe: Path) -> None:
    head = head_of(recipe)
    assert len(head) <= 12
    for label in ("Data", "Time", "Score", "More"):
        assert any(line.startswith(f"# {label:<10}") for line in head), label
    for link in re.findall(r"docs/[\w/-]+\.md#[\w-]+", "\n".join(head)):
        assert_leads_somewhere(ROOT, link)


@pytest.mark.parametrize("page", ["install.md", "install.zh.md"])
def test_every_extra_is_on_the_install_page(page: str) -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    rows = re.findall(r"^\| `([a-z0-9]+)` \| .* \| [\d.]+ \|$", text_of(DOCS / page), re.MULTILINE)
    assert sorted(rows) == sorted(project["optional-dependencies"])


def test_the_same_three_lines_install_everywhere() -> None:
    pages = [ROOT / name for name in READMES]
    pages += [DOCS / name for name in ("index.md", "index.zh.md", "install.md", "install.zh.md")]
    for page in pages:
        block = re.findall(r"```sh\n(.*?)```", text_of(page), flags=re.DOTALL)[0]
        assert [re.sub(r"\s+#.*", "", line) for line in block.splitlines()] == [
            "python3 -m venv .venv && . .venv/bin/activate",
            "pip install torch --index-url https://download.pytorch.org/whl/cpu",
            "pip install '.[demo,serve]'",
        ], page
    for page in [
        *DOCS.rglob("*.md"),
        *pages,
    ]:  # without the line before it would fetch CUDA after all
        assert "-c constraints.txt '." not in text_of(page), page


def test_the_demo_installs_its_own_extra_alone() -> None:
    rules = text_of(ROOT / "Makefile").split("\n\n")
    (demo,) = [rule for rule in rules if "\n$(VENV)/demo:" in rule]
    assert "--editable '.[demo]'" in demo and "dev" not in demo


def test_programs_of_the_makefile_find_what_they_import() -> None:
    text = text_of(ROOT / "Makefile")
    imports = re.findall(r'-c "from (\S+) import ([\w, ]+);', text)
    assert imports
    for module, names in imports:
        exec(f"from {module} import {names}", {})
    for module in re.findall(r"PYTHONPATH=tests \S+ -m (\S+)", text):
        assert (ROOT / "tests" / f"{module.replace('.', '/')}.py").is_file(), module
    for script in re.findall(r"python (\S+\.py)", text):
        assert (ROOT / script).is_file(), script
