"""Site of the documentation: it builds without a warning, links included."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.live_page import needs_node
from helpers.node import run_node

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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="the extra docs is not installed")
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", DOCS, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    api = (tmp_path / "api.html").read_text(encoding="utf-8")
    assert "transduce.Run.translate" in api and "<strong>precision</strong>" in api
    for name in ("paper", "music", "copy"):
        assert (tmp_path / "see" / f"{name}.html").is_file()
    large = [
        f"{page.name}: {page.stat().st_size}"
        for page in tmp_path.rglob("*.html")
        if page.stat().st_size > 600_000 and page.parent.name != "see"
    ]
    assert large == []
    chapter = (tmp_path / "book" / "03-self-attention.html").read_text(encoding="utf-8")
    assert 'role="heading" aria-level=' in chapter and 'role="heading">' not in chapter
    assert '<p tabindex="0"><img' in chapter and "<p><img" not in chapter
    displays = re.findall(r'<math[^>]*display="block"', chapter)
    assert displays and all("tabindex" in display for display in displays)
    for name in ("index", "index.zh"):
        front = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert front.index('<div class="sentence"><script') < front.index("<pre")
        doors = re.findall(r'href="([^"]+)"', front.partition('class="doors"')[2][:700])[:3]
        assert len(doors) == 3 and all((tmp_path / door).is_file() for door in doors)
        assert re.search(r'<p class="commit">\d{4}-\d\d-\d\d · [0-9a-f]{8}</p>', front)
    words = (tmp_path / "book" / "00-numbers.zh.html").read_text(encoding="utf-8")
    terms = re.findall(r'popovertarget="(term-\d+)"', words)
    assert len(terms) > 10 and len(terms) == len(set(terms))
    assert all(f'popover id="{term}"' in words for term in terms)
    assert "search.zh.html" in words and "点积" in words
    assert "sphinx.js" in (tmp_path / "search.zh.html").read_text(encoding="utf-8")
    english, chinese = (
        (tmp_path / "book" / f"04-heads{suffix}.html").read_text(encoding="utf-8")
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
    chapter = (tmp_path / "book" / "06-positions.zh.html").read_text(encoding="utf-8")
    side_bar, _, text = chapter.partition("<article")
    prose = re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL)
    assert re.search(r"[。，\u4e00-\u9fff]\n[\u4e00-\u9fff]", prose) is None
    assert "搜索" in side_bar and "活的教程" in side_bar and "Positions" not in side_bar
    twin = (tmp_path / "book" / "06-positions.html").read_text(encoding="utf-8")
    assert "搜索" not in twin and ">Next<" in twin
    assert "下一页" in text and "上一页" in text and ">Next<" not in text
    assert "<math" in text and "<mfrac>" in text and len(chapter) < 300_000
    assert re.findall(r'(?:src|href)="https?:[^"]*\.(?:js|css)"', chapter) == []
    assert (tmp_path / "book" / "train.html").is_file()
    assert 'href="train.html#lang=zh&amp;tab=dials&amp;without=positions"' in text
