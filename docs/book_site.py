"""Additions of the site to pages: explained words, the commit of a page, a search in Chinese."""

import html
import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.search import SearchLanguage, languages

DOCS = Path(__file__).parent
ENTRY = re.compile(
    r"^- \*\*(?P<name>.+?)\*\*(?: ?[(（](?P<forms>.+?)[)）])?[:：] ?(?P<text>.+)$", re.M
)
UNEXPLAINED = (nodes.title, nodes.literal, nodes.reference, nodes.raw, nodes.math, nodes.math_block)
UNEXPLAINED += (nodes.literal_block, nodes.doctest_block)
SCRIPTS = ("numbers.js", "book.js", "widgets.js")

Entry = tuple[str, str, re.Pattern[str]]


@cache
def glossary(suffix: str) -> list[Entry]:
    """Name, explanation and pattern of each term.  suffix: ".zh" or nothing."""
    text = (DOCS / "book" / f"glossary{suffix}.md").read_text(encoding="utf-8")
    entries = []
    for match in ENTRY.finditer(text):
        forms = [match["name"], *re.split(r"[,，、;；] ?", match["forms"] or "")]
        longest = sorted((form for form in forms if len(form) > 1), key=len, reverse=True)
        bounded = [  # a capital at the beginning of a sentence; MASK is no mask
            rf"(?<![A-Za-z])(?i:{re.escape(form[0])}){re.escape(form[1:])}(?![A-Za-z])"
            for form in longest
        ]
        pattern = re.compile("|".join(bounded) or r"(?!)")
        entries.append((match["name"], match["text"], pattern))
    return entries


def is_explained(name: str) -> bool:
    """True for pages whose terms are explained in place: chapters of the book."""
    return re.match(r"book/\d", name) is not None


def explain_words(app: Any, doctree: Any, name: str) -> None:
    """Turn the first occurrence of each term into a button, in place."""
    if not is_explained(name) or app.builder.format != "html":
        return
    left = dict(enumerate(glossary(".zh" if name.endswith(".zh") else "")))
    for text in list(doctree.findall(nodes.Text)):
        parents: list[Any] = []
        node = text.parent
        while node is not None:
            parents.append(node)
            node = node.parent
        if any(isinstance(parent, UNEXPLAINED) for parent in parents):
            continue
        found = [
            (match.start(), -len(match[0]), number, match)
            for number, (_, _, pattern) in left.items()
            if (match := pattern.search(text.astext()))
        ]
        pieces, end = [], 0
        for start, _, number, match in sorted(found, key=lambda each: each[:3]):
            if start < end:
                continue
            del left[number]
            word = html.escape(match[0])
            button = (
                f'<button type="button" class="term" popovertarget="term-{number}">{word}</button>'
            )
            pieces += [nodes.Text(text[end:start]), nodes.raw("", button, format="html")]
            end = match.end()
        if pieces:
            text.parent.replace(text, [*pieces, nodes.Text(text[end:])])


@cache
def sentences() -> Any:
    """Sentences of the front page with their weights."""
    return json.loads((DOCS / "book" / "sentences.json").read_text(encoding="utf-8"))


@cache
def commits() -> dict[str, str]:
    """Date and hash of the last commit of each file below docs; empty without git."""
    options = ["--format=*%cs · %h", "--abbrev=8", "--name-only", "--relative"]
    command = ["git", "log", *options, "--", "."]
    try:
        log = subprocess.run(command, cwd=DOCS, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    made: dict[str, str] = {}
    for block in log.split("*")[1:]:
        stamp, *files = block.split("\n")
        for file in filter(None, files):
            made.setdefault(file, stamp)
    return made


DESCRIPTIONS = {
    "": "The Transformer and its family: train, look inside, serve.  A book that computes.",
    ".zh": "Transformer 及同族模型：训练，看清内部，投入使用。一本会计算的书。",
}


PICTURE = "_static/social.png"
OWN_SENTENCES = "see/zh-en.html"  # read where a reader writes a sentence on the front page


def preview(context: dict[str, Any], suffix: str) -> str:
    """Tags for a preview of the page elsewhere; pictures there need the address of the site."""
    address = os.environ.get("SITE_ADDRESS", "").rstrip("/")
    picture = f"{address}/{PICTURE}" if address else context["pathto"](PICTURE, 1)
    tags = {
        "og:title": re.sub("<.*?>", "", context.get("title", "")),
        "og:type": "article",
        "og:locale": "zh_CN" if suffix else "en_GB",
        "og:description": DESCRIPTIONS[suffix],
        "og:image": picture,
        "og:image:width": "1200",
        "og:image:height": "630",
    }
    return (
        "".join(
            f'<meta property="{name}" content="{html.escape(html.unescape(text))}">\n'
            for name, text in tags.items()
        )
        + '<meta name="twitter:card" content="summary_large_image">\n'
    )


def complete_page(app: Any, name: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Add explanations of words, scripts and the commit to a page."""
    suffix = ".zh" if name.endswith(".zh") else ""
    body = context.get("body", "")
    if is_explained(name):
        for number, (term, text, _) in enumerate(glossary(suffix)):
            if f'popovertarget="term-{number}"' in body:
                body += (
                    f'<div class="explanation" popover id="term-{number}">'
                    f"<b>{html.escape(term)}</b> {html.escape(text)}</div>\n"
                )
    if name.startswith(("book/", "index")):
        for script in SCRIPTS:
            app.add_js_file(script, loading_method="defer")
    if '<div class="sentence">' in body:  # without its model: that is read on demand
        page = f"{OWN_SENTENCES}#embed=true&lang={'zh' if suffix else 'en'}"
        size = f"{(DOCS / OWN_SENTENCES).stat().st_size / 2**20:.1f} MB"
        content = json.dumps(
            {"sentences": sentences(), "page": page, "size": size}, ensure_ascii=False
        )
        script = f'<script type="application/json">{content}</script>'
        body = body.replace('<div class="sentence">', f'<div class="sentence">{script}', 1)
    if stamp := commits().get(f"{name}.md"):
        body += f'<p class="commit">{stamp}</p>\n'
    if "body" in context:
        context["body"] = body
        context["metatags"] = context.get("metatags", "") + preview(context, suffix)
    if name == "search.zh":
        app.add_js_file("sphinx.js")  # words of its script
    if suffix:  # the search in the words of Chinese
        path_to = context["pathto"]
        context["pathto"] = lambda page, *rest: path_to(
            "search.zh" if page == "search" else page, *rest
        )


class ChineseAndEnglish(SearchLanguage):
    """Words of letters, and of Chinese each sign and each pair of neighbours."""

    lang = "zh"
    language_name = "Chinese"
    js_splitter_code = r"""
function splitQuery(query) {
  const words = query.match(/[\u4e00-\u9fff]+|[^\W\u4e00-\u9fff]+/g) ?? [];
  return words.flatMap((word) =>
    /^[\u4e00-\u9fff]{2}/.test(word)
      ? Array.from({ length: word.length - 1 }, (_, i) => word.slice(i, i + 2))
      : [word],
  );
}
"""

    def split(self, input: str) -> list[str]:
        """Words of a page."""
        words = []
        for word in re.findall(r"[\u4e00-\u9fff]+|[^\W\u4e00-\u9fff]+", input):
            if "\u4e00" <= word[0] <= "\u9fff":
                words += [*word, *(word[i : i + 2] for i in range(len(word) - 1))]
            else:
                words.append(word)
        return words

    def stem(self, word: str) -> str:
        """Lower case, as queries are."""
        return word.lower()


def setup(app: Any) -> None:
    """Connect the additions."""
    languages["zh"] = ChineseAndEnglish
    app.connect("doctree-resolved", explain_words)
    app.connect("html-page-context", complete_page, priority=200)
