"""The pages on the architecture name files, modules, classes and functions that exist."""

import ast
import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "transduce"
SCRIPT = runpy.run_path(str(ROOT / "docs" / "file_table.py"))
PAGES = ("architecture", "where", "flows", "decisions", "files")
TEXTS = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in PAGES}
PAGE = "\n".join(TEXTS.values())

OTHERS = {"DistributedDataParallel", "TypeAdapter"}  # of PyTorch and pydantic
FILE = r"[a-z0-9_]+(?:/[a-z0-9_]+)*\.py"


def path_of(name: str) -> Path | None:
    """A file of the package or of the repository, by its name on the page."""
    return next((base / name for base in (PACKAGE, ROOT) if (base / name).is_file()), None)


def names_in(path: Path) -> set[str]:
    """Classes, functions, methods and assigned names of a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def test_file_table_is_up_to_date() -> None:
    assert SCRIPT["updated"](TEXTS["files"]) == TEXTS["files"], "run `python docs/file_table.py`"


def test_the_architecture_is_read_in_one_sitting() -> None:
    assert len(TEXTS["architecture"].splitlines()) <= 250


def test_every_module_is_in_the_file_table() -> None:
    table = PAGE.partition(SCRIPT["BEGIN"])[2].partition(SCRIPT["END"])[0]
    rows = re.findall(rf"^\| \S* ?\| `({FILE})` \| (.*) \|$", table, flags=re.MULTILINE)
    modules = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    assert {name for name, _ in rows} == modules
    assert len(rows) == len(modules)
    assert [name for name, contents in rows if not contents] == []


def test_docstrings_in_the_file_table_begin_with_a_noun_or_verb() -> None:
    relative = [
        row for row in SCRIPT["rows"]() if re.search(r"\| (What|Whether|How|Who|Which|Where) ", row)
    ]
    assert relative == []


def test_files_exist() -> None:
    named = set(re.findall(rf"\b{FILE}\b", PAGE)) | set(re.findall(r"`([a-z_/]+\.toml)`", PAGE))
    generated = {"recipe.toml"}
    assert len(named) > 200
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
    defined = set().union(*(names_in(path) for path in PACKAGE.rglob("*.py")))
    assert len(named) > 40
    assert sorted(named - defined - OTHERS) == []
