"""CPU of the page's thread for each key typed into the finished pages, on Steps, in milliseconds.

python benchmarks/live_page.py [DIRECTORY]     by default docs/see; needs Chromium
"""

from __future__ import annotations

import statistics
import sys
from itertools import pairwise
from pathlib import Path

from playwright.sync_api import CDPSession, sync_playwright

SEE = Path(__file__).parents[1] / "docs" / "see"
TYPED = {
    "speller": "thoughtfully",
    "paper": "我是个学生。",
    "music": "音乐课",
    "rnn": "thoughtfully",
    "bert": "He is my <mask>.",
}
ROUNDS = 5
WAIT = 150
"""Milliseconds after each key, for drawing."""


def task_time(session: CDPSession) -> float:
    """Seconds of CPU in tasks of the page's thread."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    seconds: float = next(m["value"] for m in metrics if m["name"] == "TaskDuration")
    return seconds


def main(directory: Path) -> None:
    """Print the median over rounds for each key but the first."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium")
        for name, text in TYPED.items():
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(f"{(directory / name).resolve().as_uri()}.html#tab=steps&lang=en")
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            field = page.locator("[data-k=typed0]")
            rounds = []
            for _ in range(ROUNDS):
                field.fill(text[:1])
                page.wait_for_timeout(WAIT)
                times = [task_time(session)]
                for length in range(2, len(text) + 1):
                    field.fill(text[:length])
                    page.wait_for_timeout(WAIT)
                    times.append(task_time(session))
                rounds.append([b - a for a, b in pairwise(times)])
            medians = [statistics.median(key) for key in zip(*rounds, strict=True)]
            print(name, *(f"{1000 * seconds:.0f}" for seconds in medians))
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SEE)
