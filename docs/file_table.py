"""Print every file of the package by floor, with the first sentence of its docstring.

python docs/file_table.py
"""

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "transduce"


def floor_of(path: Path, floors: dict[str, int]) -> int:
    """Floor of a module, by the table that `tests/unit/test_floors.py` checks imports against."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next(floors[name] for name in names if name in floors)


def rows() -> Iterator[tuple[int, str, str]]:
    """Floor, path and contents of each module, highest floor first; files before folders."""
    floors = runpy.run_path(str(ROOT / "tests/unit/test_floors.py"))["FLOORS"]
    modules = [
        (floor_of(path, floors), path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")
    ]
    for floor, path in sorted(modules, key=lambda module: (-module[0], module[1].parts)):
        docstring = ast.get_docstring(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))) or ""
        contents = " ".join(docstring.split("\n\n")[0].split())
        yield floor, path.as_posix(), contents.removesuffix(".")


if __name__ == "__main__":
    for floor, name, contents in rows():
        print(f"{floor:3}  {name:48} {contents}")
