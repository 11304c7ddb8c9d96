"""Items that are too long for metrics with quadratic cost are left out, with a warning."""

from __future__ import annotations

import pytest

from transduce.metrics import metric as metric_module
from transduce.metrics.measure import measure
from transduce.metrics.metric import MAX_COMPARISONS


@pytest.mark.parametrize(
    ("name", "language"), [("cer", ""), ("per", ""), ("rouge-l", "de"), ("f1", "zh")]
)
def test_items_too_long_to_compare(
    name: str, language: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pair = ["a b " * 50], [["b c " * 50]]
    assert name in measure([name], *pair, language)
    assert MAX_COMPARISONS > 100**2
    monkeypatch.setattr(metric_module, "MAX_COMPARISONS", 100**2 - 1)
    assert name not in measure([name], *pair, language)
    assert "would take too much time: " in caplog.text and "skipping it" in caplog.text
