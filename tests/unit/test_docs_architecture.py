"""The pages on the architecture name files, modules, classes and functions that exist."""

import ast
import functools
import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "transduce"
SCRIPT = runpy.run_path(str(ROOT / "docs" / "file_table.py"))
PAGES = ("architecture", "where", "flows", "decisions")
TEXTS = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in PAGES}
PAGE = "\n".join(TEXTS.values())

OTHERS = {"DistributedDataParallel", "TypeAdapter"}  # of PyTorch and pydantic
DEFINED = re.compile(r"^\s*class ([A-Z]\w+)|^([A-Z]\w+)(?:: [^=\n]+)? = ", re.MULTILINE)
FILE = r"[a-z0-9_]+(?:/[a-z0-9_]+)*\.py"


def path_of(name: str) -> Path | None:
    """A file of the package or of the repository, by its name on the page."""
    return next((base / name for base in (PACKAGE, ROOT) if (base / name).is_file()), None)


@functools.cache
def names_in(path: Path) -> set[str]:
    """Classes, functions, methods and assigned names of a module."""
    result: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            result.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            result.add(node.id)
    return result


def test_the_architecture_is_read_in_one_sitting() -> None:
    assert len(TEXTS["architecture"].splitlines()) <= 250


def test_every_module_says_what_it_holds() -> None:
    """A docstring that begins with a noun or verb, for `docs/file_table.py`."""
    relative = ("What ", "Whether ", "How ", "Who ", "Which ", "Where ")
    rows = list(SCRIPT["rows"]())
    assert len(rows) == len(list(PACKAGE.rglob("*.py")))
    assert [name for _, name, text in rows if not text or text.startswith(relative)] == []


def test_files_exist() -> None:
    named = set(re.findall(rf"\b{FILE}\b", PAGE)) | set(re.findall(r"`([a-z_/]+\.toml)`", PAGE))
    generated = {"recipe.toml", "rows.py"}  # of a run; of each family of tasks
    assert len(named) > 50
    assert sorted(name for name in named - generated if path_of(name) is None) == []


def test_names_given_with_a_file_stand_in_it() -> None:
    """As "`name` in `file.py`" or "`name` (`file.py`)"."""
    pairs = re.findall(rf"`([A-Za-z_.]+)`(?: in | \()`({FILE})`", PAGE)
    assert len(pairs) > 15
    wrong = [
        f"{name} in {file}"
        for name, file in pairs
        if (path := path_of(file)) is None or not set(name.split(".")) <= names_in(path)
    ]
    assert wrong == []


def test_classes_exist() -> None:
    code = re.findall(r"^```.*?^```|`[^`\n]+`", PAGE, flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z0-9]+)+\b", " ".join(code)))
    sources = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    defined = {name for pair in DEFINED.findall(sources) for name in pair}
    assert len(named) > 40
    assert sorted(named - defined - OTHERS) == []
