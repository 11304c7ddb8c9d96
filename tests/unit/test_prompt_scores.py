"""benchmarks/prompt_scores.py: scores by language and of words that training has not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

PROMPTS = [
    ("en", "train", "one", "Press one."),
    ("es", "train", "one", "Marque dos"),
    ("en", "dev", "two", "Press two, press one!"),
    ("es", "dev", "two", "press dos"),
    ("es", "dev", "remark", "dos (a long remark)"),
]


def test_words_are_new_by_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import prompt_scores  # type: ignore[import-not-found]

    columns = ("lang", "split", "prompt", "text")
    rows = (json.dumps(dict(zip(columns, prompt, strict=True))) for prompt in PROMPTS)
    (tmp_path / "manifest").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "outputs").write_text("press to press one\npress dos\n", encoding="utf-8")
    files = [str(tmp_path / name) for name in ("manifest", "outputs")]
    monkeypatch.setattr(sys, "argv", ["prompt_scores.py", *files, "--without", "es/remark"])
    prompt_scores.main()
    en, es, both = (" ".join(line.split()) for line in capsys.readouterr().out.splitlines())
    assert en.startswith("en 1 recordings 4 words 25.0% new found: new 0.0 %, others 100.0 %")
    assert "word-error-rate 25.0" in en
    assert es.startswith("es 1 recordings 2 words 50.0% new found: new 100.0 %, others 100.0 %")
    assert both.startswith("all 2 recordings 6 words 33.3% new found: new 50.0 %, others 100.0 %")
