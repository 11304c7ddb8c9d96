"""File table of docs/files.md, from the first sentence of each module's docstring.

`python docs/file_table.py` writes it into the page; a test fails while it is out of date.
"""

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "transduce"
PAGE = ROOT / "docs" / "files.md"
BEGIN = "<!-- files: written by docs/file_table.py -->\n"
END = "<!-- end of files -->\n"


def floor_of(path: Path) -> int:
    """Floor of a module, by the table that `tests/unit/test_floors.py` checks imports against."""
    floors: dict[str, int] = runpy.run_path(str(ROOT / "tests/unit/test_floors.py"))["FLOORS"]
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next(floors[name] for name in names if name in floors)


def rows() -> Iterator[str]:
    """Lines of the table, highest floor first; in each, files before folders."""
    modules = [(floor_of(path), path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")]
    last = None
    for floor, path in sorted(modules, key=lambda module: (-module[0], module[1].parts)):
        docstring = ast.get_docstring(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))) or ""
        contents = " ".join(docstring.split("\n\n")[0].split()).replace("|", "\\|")
        number = "" if floor == last else f"{floor}".replace("-", "−")
        yield f"| {number} | `{path.as_posix()}` | {contents.removesuffix('.')} |\n"
        last = floor


def updated(page: str) -> str:
    """The page with the table as it should be."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    head = "| floor | file | contents |\n|-|-|-|\n"
    return f"{before}{BEGIN}\n{head}{''.join(rows())}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
