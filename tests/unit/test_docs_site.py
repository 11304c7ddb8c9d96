"""Site of the documentation: it builds without a warning, links included."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    api = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "transduce.Run.translate" in api and "<strong>precision</strong>" in api
    for name in ("paper", "music", "copy"):
        assert (tmp_path / "see" / f"{name}.html").is_file()
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
    prose = re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL)
    assert re.search(r"[。，\u4e00-\u9fff]\n[\u4e00-\u9fff]", prose) is None
    assert "搜索" in side_bar and "活的教程" in side_bar and "Positions" not in side_bar
    twin = (tmp_path / "book" / "06-positions.html").read_text(encoding="utf-8")
    assert "搜索" not in twin and ">Next<" in twin
    assert "下一页" in text and "上一页" in text and ">Next<" not in text
    assert "<math" in text and "<mfrac>" in text and len(chapter) < 300_000
    assert re.findall(r'(?:src|href)="https?:[^"]*\.(?:js|css)"', chapter) == []
    assert (tmp_path / "book" / "train.html").is_file()
    assert 'href="train.html#lang=zh&amp;tab=dials&amp;without=positions"' in text
