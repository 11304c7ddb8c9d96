"""Wheel and source distribution: they build, and hold what they should and nothing else."""

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

from transduce import __version__
from transduce.engine.build import LEARNER, WASM
from transduce.settings.sections import load_toml

pytest.importorskip("hatchling", reason="hatchling is not installed")

ROOT = Path(__file__).parents[2]
PRIVATE = re.compile(rb"/(?:home|root|Users)/\w")
"""A path on somebody's machine."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    made = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", directory],
        cwd=ROOT,
        env={"PATH": ""},  # no compiler: a wheel without the native engine
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return directory


@pytest.fixture(scope="module")
def wheel(built: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(built / f"transduce-{__version__}-py3-none-any.whl") as file:
        yield file


def names_below(root: Path, pattern: str) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob(pattern)}


@pytest.mark.system
def test_the_wheel_holds_the_package_the_recipes_and_the_licence(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    modules = names_below(ROOT / "src", "*.py")
    recipes = {f"transduce/_recipes/{name}" for name in names_below(ROOT / "recipes", "*.toml")}
    about = f"transduce-{__version__}.dist-info"
    assert modules | recipes <= names
    assert {"transduce/py.typed", f"{about}/licenses/LICENSE"} <= names
    assert "transduce/engine/native/interface.cpp" in names  # compiled where it is used
    modules = {name for name in names if re.fullmatch(r"transduce/engine/prebuilt/.*\.wasm", name)}
    assert len(modules) == len((*WASM, *LEARNER))  # compiled already
    assert not [name for name in names if "__pycache__" in name or name.endswith((".so", ".pyc"))]
    assert {name.partition("/")[0] for name in names} == {"transduce", about}


@pytest.mark.system
def test_the_wheel_says_how_it_is_used(wheel: zipfile.ZipFile) -> None:
    about = f"transduce-{__version__}.dist-info"
    metadata = Parser().parsestr(wheel.read(f"{about}/METADATA").decode())
    expected = load_toml(ROOT / "pyproject.toml")["project"]
    assert metadata["Version"] == __version__
    assert metadata["Requires-Python"] == expected["requires-python"]
    plain = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    assert sorted(plain) == sorted(expected["dependencies"])
    assert set(metadata.get_all("Provides-Extra", [])) == set(expected["optional-dependencies"])
    assert b"transduce = transduce.__main__:main" in wheel.read(f"{about}/entry_points.txt")


@pytest.mark.system
def test_the_source_distribution_builds_the_same_wheel(built: Path) -> None:
    with tarfile.open(built / f"transduce-{__version__}.tar.gz") as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"}
    recipes = {f"recipes/{name}" for name in names_below(ROOT / "recipes", "*.toml")}
    sources = {f"src/{name}" for name in names_below(ROOT / "src", "*.py")}
    assert needed | recipes | sources <= names
    assert {name.partition("/")[0] for name in names} <= {
        *needed,
        *("src", "recipes", "constraints.txt", "CHANGELOG.md", ".gitignore", "hatch_build.py"),
    }


@pytest.mark.system
def test_nothing_in_them_names_a_private_place(built: Path, wheel: zipfile.ZipFile) -> None:
    with tarfile.open(built / f"transduce-{__version__}.tar.gz") as file:
        members = [(one.name, file.extractfile(one)) for one in file if one.isfile()]
        contents = [(name, content.read()) for name, content in members if content is not None]
    contents += [(name, wheel.read(name)) for name in wheel.namelist()]
    assert [name for name, content in contents if PRIVATE.search(content)] == []


def test_the_version_needs_no_installation() -> None:
    """A source tree on the path has no metadata, and a training ends with its model card."""
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"""(version|metadata)\(["']transduce["']""", text), path
