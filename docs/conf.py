"""Sphinx configuration: `make docs` builds the site from these pages and the docstrings."""

import re
import runpy
import shutil
from gettext import NullTranslations, translation
from itertools import pairwise
from pathlib import Path
from typing import Any

import sphinx.locale
from docutils.nodes import SkipNode
from latex2mathml.converter import convert

from transduce.support.version import __version__

project = "transduce"
author = "The transduce authors"
copyright = "2026, The transduce authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
suppress_warnings = ["misc.highlighting_failure"]  # of diagrams, shown as their text
root_doc = "index"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "transduce"
html_show_sphinx = False
html_theme_options = {"source_directory": "docs/"}

CATALOGUES = Path(sphinx.locale.__file__).parent
html_static_path = ["book/book.css", "book/numbers.js", "book/book.js", "book/widgets.js"]
html_static_path.append("pictures/social.png")
html_static_path.append(str(CATALOGUES / "zh_CN" / "LC_MESSAGES" / "sphinx.js"))
html_css_files = ["book.css"]
html_search_language = "zh"  # its words: those of both languages, see book_site.py
html_additional_pages = {"search.zh": "search.html"}
html_math_renderer = "mathml"  # made while the site is built: no page loads anything to show it

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
# Finished pages open by a click: myst makes downloads of files, unless a scheme marks them as URLs.
myst_url_schemes = {"http": None, "https": None, "mailto": None, "page": "{{path}}#{{fragment}}"}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False

# Words of the theme that Sphinx's Chinese catalogue lacks.
CHINESE = {
    "Next": "下一页",
    "Previous": "上一页",
    "Home": "首页",
    "On this page": "本页内容",
    "Back to top": "回到顶部",
    "View this page": "查看源文件",
}

BOOK = runpy.run_path(str(Path(__file__).with_name("book_site.py")))
SETTINGS = runpy.run_path(str(Path(__file__).with_name("settings.py")))

CODE = re.compile(r"`([^`]+)`")
CHINESE_BREAK = re.compile(r"(?<=[“”\u2e80-\uffef])\n *(?=[“”\u2e80-\uffef])")
SIDEWAYS = re.compile(r'<(pre|p(?=><img )|math(?=[^>]*display="block"))(?=[ >])')
FINISHED_PAGE = re.compile(
    r"\]\((?=(?:(?:\.\./)?see/[\w-]+|(?:book/)?(?:train|slides))\.(?:html|js))"
)
PARAMETER = re.compile(r"(?:^|(?<=\.  ))([a-z_]\w*(?:, [a-z_]\w*)*): ", re.MULTILINE)
CLOSING = re.compile(r"(?<=\.)  (?=(?:Returns|Raises|Yields) )|(?<=\.)\n(?=(?:Returns|Raises) )")


def inline(text: str) -> str:
    """Text of a docstring as reStructuredText: code in backticks, all other signs literal."""
    parts = CODE.split(" ".join(text.split()))
    return "".join(
        f"``{part}``" if i % 2 else re.sub(r"([\\*|_])", r"\\\1", part)
        for i, part in enumerate(parts)
    )


def paragraph(lines: list[str]) -> list[str]:
    """One paragraph: an indented one becomes a literal block, `name: …` a list of parameters."""
    if lines[0].startswith(" "):
        return ["::", "", *(f"    {line}" for line in lines), ""]
    text, *closing = CLOSING.split("\n".join(lines))
    starts = [match.start() for match in PARAMETER.finditer(text)]
    made = [inline(text[: starts[0] if starts else None]), ""]
    for start, end in pairwise([*starts, len(text)]):
        name, _, rest = text[start:end].partition(": ")
        made.append(f"- **{name}**: {inline(rest)}")
    return [*made, "", *(part for sentence in closing for part in (inline(sentence), ""))]


def to_rst(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Turn a docstring of this project, plain paragraphs, into reStructuredText, in place."""
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    lines[:] = [made for block in paragraphs if block for made in paragraph(block)]


def link_finished_pages(app: object, name: str, source: list[str]) -> None:
    """Mark links to finished pages as URLs, in place."""
    source[0] = FINISHED_PAGE.sub("](page:", source[0])


def join_chinese_lines(app: object, name: str, source: list[str]) -> None:
    """Join lines between two Chinese signs, where browsers would show a blank, in place."""
    blocks = source[0].split("```")  # text and code by turns
    blocks[::2] = [CHINESE_BREAK.sub("", text) for text in blocks[::2]]
    source[0] = "```".join(blocks)


def add_settings(app: object, name: str, source: list[str]) -> None:
    """Put the tables of the settings into the page of recipes, in place."""
    if name == "recipe":
        source[0] = SETTINGS["filled"](source[0])


def copy_finished_pages(app: Any, error: Exception | None) -> None:
    """Copy the finished pages into the site under their own names."""
    if error is None and app.builder.format == "html":
        for pattern in ("see/*.html", "book/train*.*", "book/slides.html"):
            for page in sorted(Path(app.srcdir).glob(pattern)):
                target = Path(app.outdir) / page.relative_to(app.srcdir)
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(page, target)


def write_formula(translator: Any, node: Any) -> None:
    """Write a formula as MathML."""
    display = "block" if node.tagname == "math_block" else "inline"
    translator.body.append(convert(node.astext(), display=display))
    raise SkipNode


class ThemeWords(NullTranslations):
    """Chinese words of the theme."""

    def gettext(self, message: str) -> str:
        """Translate one of CHINESE."""
        return CHINESE.get(message, message)


def set_language(app: Any, name: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Give Chinese pages the words, the side bar and the language of Chinese."""
    language, root = ("zh_CN", "index.zh") if name.endswith(".zh") else ("en", "index")
    words = translation("sphinx", CATALOGUES, [language], fallback=True)
    if root == "index.zh":
        words.add_fallback(ThemeWords())
    app.builder.templates.environment.install_gettext_translations(words)
    app.env.master_doctree = app.env.get_doctree(root)
    context["language"] = language[:2]


def complete_roles(
    app: object, name: str, template: str, context: dict[str, Any], tree: object
) -> None:
    """Give captions of the sidebar their level, and the keyboard what moves sideways."""
    tree_of_pages = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree_of_pages.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )
    if "body" in context:
        context["body"] = SIDEWAYS.sub(r'<\1 tabindex="0"', context["body"])


def setup(app: Any) -> None:
    """Connect the conversions."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("autodoc-process-docstring", to_rst)
    app.connect("source-read", add_settings)
    app.connect("source-read", link_finished_pages)
    app.connect("source-read", join_chinese_lines)
    app.connect("html-page-context", set_language, priority=100)  # before the theme reads it
    app.connect("html-page-context", complete_roles, priority=900)  # behind the theme
    BOOK["setup"](app)
    app.connect("build-finished", copy_finished_pages)
