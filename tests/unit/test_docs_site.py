"""Site of the documentation: it builds without a warning, links included."""

import json
import re
import runpy
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import chromium, needs_chromium
from helpers.live_page import needs_node
from helpers.node import node_with, run_node

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = {
        (page.parent / name).relative_to(DOCS).as_posix()
        for page in DOCS.rglob("index*.md")
        for name in page.read_text(encoding="utf-8").split()
        if not name.startswith("/")
    }
    missing = {
        path.relative_to(DOCS).with_suffix("").as_posix()
        for path in DOCS.rglob("*.md")
        if "_build" not in path.parts and path not in (DOCS / "index.md", DOCS / "index.zh.md")
    }
    assert missing - listed == set()


@needs_node
@pytest.mark.system
def test_queries_are_split_as_pages_are(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    site = runpy.run_path(str(DOCS / "book_site.py"))
    words = site["ChineseAndEnglish"]({})
    queries = ["自注意力", "头", "softmax 的温度", "BLEU score", "layer_norm，残差"]
    page = words.split("多头自注意力里，softmax 的温度；BLEU score。layer_norm，残差")
    script = words.js_splitter_code + f"const queries = {json.dumps(queries)};"
    script += "process.stdout.write(JSON.stringify(queries.map(splitQuery)))"
    split = run_node(tmp_path, script)
    assert split[0] == ["自注", "注意", "意力"] and split[1] == ["头"]
    assert [word for query in split for word in query if word not in page] == []


@needs_node
@pytest.mark.system
def test_sentences_of_the_front_page_are_those_of_the_model() -> None:
    module = runpy.run_path(str(DOCS / "see" / "sentences.py"))
    kept = json.loads((DOCS / "book" / "sentences.json").read_text(encoding="utf-8"))
    for one, again in zip(kept, module["sentences"](), strict=True):
        assert one["source"] == again["source"]
        for step, new in zip(one["steps"], again["steps"], strict=True):
            assert step["token"] == new["token"]
            assert step["weights"] == pytest.approx(new["weights"], abs=0.011)


def build(directory: Path) -> Path:
    """The whole site, built without a warning."""
    pytest.importorskip("furo", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", DOCS, directory]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return directory


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site"))


def files_of(site: Path) -> dict[str, bytes]:
    """Files that are published, and what they hold; without what Sphinx keeps to build again."""
    paths = [path for path in site.rglob("*") if path.is_file() and ".doctrees" not in path.parts]
    return {path.relative_to(site).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_builds_are_equal(site: Path, tmp_path: Path) -> None:
    first, second = files_of(site), files_of(build(tmp_path))
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


SEEN_PAGES = ("index", "index.zh", "book/00-numbers.zh", "book/02-attention", "book/10-decoding")
SEEN_PAGES += ("book/11-cost.zh", "book/12-family", "book/slides", "book/teachers", "search.zh")


@needs_chromium
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_of_the_site_are_accessible(site: Path, tmp_path: Path, width: int) -> None:
    axe = node_with(tmp_path, "axe-core@4.10.3") / "node_modules" / "axe-core" / "axe.min.js"
    with chromium() as browser:
        assert faults_of(browser, site, axe.read_text(encoding="utf-8"), width) == []


def faults_of(browser: Any, site: Path, axe: str, width: int) -> list[tuple[Any, ...]]:
    """Faults of accessibility, and pages wider than the window."""
    options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "iframes": False}
    faults: list[tuple[Any, ...]] = []
    for scheme in ("light", "dark"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        page = context.new_page()
        for name in SEEN_PAGES:
            page.goto((site / f"{name}.html").as_uri())
            page.add_script_tag(content=axe)
            broken = page.evaluate("(options) => axe.run(document, options)", options)["violations"]
            faults += [(name, scheme, fault["id"], fault["nodes"][0]["target"]) for fault in broken]
            over = page.evaluate("document.documentElement.scrollWidth")
            faults += [(name, scheme, "wide", over)] if over > width else []
        context.close()
    return faults


@pytest.mark.system
def test_words_are_explained_in_prose_alone(tmp_path: Path) -> None:
    """Buttons in code would cost its colours, and stand where nobody looks for them."""
    pytest.importorskip("furo", reason="the extra docs is not installed")
    for name in ("book_site.py", "book/glossary.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((DOCS / name).read_bytes())
    (tmp_path / "conf.py").write_text(
        'import sys\nsys.path.insert(0, ".")\nextensions = ["myst_parser", "book_site"]\n'
    )
    code = "```python\nencoder = decoder(softmax)\n```\n\n```python\n>>> softmax\n1\n```\n"
    (tmp_path / "index.md").write_text("# A\n\n```{toctree}\n:glob:\n\nbook/*\n```\n")
    (tmp_path / "book" / "00-a.md").write_text(f"# A\n\n{code}\nAn encoder, then softmax.\n")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", tmp_path, tmp_path / "site"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "site" / "book" / "00-a.html").read_text(encoding="utf-8")
    assert page.count('class="term"') == 2
    assert [block for block in re.findall("<pre>.*?</pre>", page, re.S) if "button" in block] == []


def test_the_picture_of_previews_has_its_size() -> None:
    picture = (DOCS / "pictures" / "social.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n" and len(picture) < 100_000
    assert struct.unpack(">II", picture[16:24]) == (1200, 630)
    drawn = runpy.run_path(str(DOCS / "see" / "social.py"))["drawn"]()
    assert all(f">{sign}</span>" in drawn for sign in "我是个学生。")
    assert "rgb(18 84 160 / 61%)" in drawn and "class=now>student<" in drawn


@pytest.mark.parametrize("suffix", ["", ".zh"])
def test_the_front_page_opens_its_doors_on_github_too(suffix: str) -> None:
    """Links to Markdown, which the site and GitHub follow; a sentence stands there without code."""
    front = (DOCS / f"index{suffix}.md").read_text(encoding="utf-8")
    doors = re.findall(r"^\[\*\*.*?\]\(([^)]+)\)$", front.partition('class="doors"')[2], re.M)
    assert len(doors) == 3 and all((DOCS / door).is_file() for door in doors)
    assert all(door.endswith(".md") for door in doors) and "href" not in front
    assert "I'm a student." in front.partition('class="sentence"')[2].partition("</div>")[0]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_builds_without_a_warning(site: Path) -> None:
    api = (site / "api.html").read_text(encoding="utf-8")
    assert "transduce.Run.translate" in api and "<strong>precision</strong>" in api
    for name in ("paper", "music", "copy"):
        assert (site / "see" / f"{name}.html").is_file()
    large = [
        f"{page.name}: {page.stat().st_size}"
        for page in site.rglob("*.html")
        if page.stat().st_size > 600_000 and page.parent.name != "see"
    ]
    assert large == []
    chapter = (site / "book" / "03-self-attention.html").read_text(encoding="utf-8")
    assert 'role="heading" aria-level=' in chapter and 'role="heading">' not in chapter
    assert '<p tabindex="0"><img' in chapter and "<p><img" not in chapter
    displays = re.findall(r'<math[^>]*display="block"', chapter)
    assert displays and all("tabindex" in display for display in displays)
    for name in ("index", "index.zh"):
        front = (site / f"{name}.html").read_text(encoding="utf-8")
        assert front.index('<div class="sentence"><script') < front.index("<pre")
        doors = re.findall(r'href="([^"]+)"', front.partition('class="doors"')[2])[:3]
        assert len(doors) == 3 and all((site / door).is_file() for door in doors)
        assert 'property="og:image" content="_static/social.png"' in front
        assert (site / "_static" / "social.png").is_file()
        assert re.search(r'<p class="commit">\d{4}-\d\d-\d\d · [0-9a-f]{8}</p>', front)
    words = (site / "book" / "00-numbers.zh.html").read_text(encoding="utf-8")
    terms = re.findall(r'popovertarget="(term-\d+)"', words)
    assert len(terms) > 10 and len(terms) == len(set(terms))
    assert all(f'popover id="{term}"' in words for term in terms)
    assert "search.zh.html" in words and "点积" in words
    assert "sphinx.js" in (site / "search.zh.html").read_text(encoding="utf-8")
    english, chinese = (
        (site / "book" / f"04-heads{suffix}.html").read_text(encoding="utf-8")
        for suffix in ("", ".zh")
    )
    assert 'href="../see/copy.html#tab=heads&amp;film=0&amp;at=0"' in english
    assert (
        'href="../see/speller.html#tab=heads&amp;text=thought&amp;att=2&amp;head=1&amp;lang=zh"'
        in chinese
    )
    assert "download" not in "".join(re.findall(r"<a [^>]*see/[^>]*>", english + chinese))
    assert re.search(r'<html[^>]* lang="zh"', chinese)
    assert re.search(r'<html[^>]* lang="en"', english)
    for page in (site / "book").glob("[01]*.html"):
        formulas = re.findall(r"<math.*?</math>", page.read_text(encoding="utf-8"), re.DOTALL)
        assert "popovertarget" not in "".join(formulas), page.name
    chapter = (site / "book" / "06-positions.zh.html").read_text(encoding="utf-8")
    side_bar, _, text = chapter.partition("<article")
    prose = re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL)
    assert re.search(r"[。，\u4e00-\u9fff]\n[\u4e00-\u9fff]", prose) is None
    assert "搜索" in side_bar and "活的教程" in side_bar and "Positions" not in side_bar
    twin = (site / "book" / "06-positions.html").read_text(encoding="utf-8")
    assert "搜索" not in twin and ">Next<" in twin
    assert "下一页" in text and "上一页" in text and ">Next<" not in text
    assert "<math" in text and "<mfrac>" in text and len(chapter) < 300_000
    assert re.findall(r'(?:src|href)="https?:[^"]*\.(?:js|css)"', chapter) == []
    assert (site / "book" / "train.html").is_file()
    assert 'href="train.html#lang=zh&amp;tab=dials&amp;without=positions"' in text
