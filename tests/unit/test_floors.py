"""Imports go down only, siblings on a floor do not import each other, and parts stay short."""

import ast
import re
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "transduce"
LINES_OF_FILE = 600
LINES_OF_FUNCTION = 60
"""At most; the docstring does not count."""

# The floors of docs/architecture.md.  A module's floor is that of its longest prefix here.
FLOORS = {
    "transduce.errors": -1,  # the ground under the ground floor
    "transduce.support.version": -1,
    "transduce.settings.paths": -1,
    "transduce.sequence": 0,
    "transduce.support": 0,
    "transduce.settings": 0,
    "transduce.text": 1,
    "transduce.vision.images": 1,
    "transduce.speech.audio_files": 1,
    "transduce.speech.features": 1,
    "transduce.nn": 2,
    "transduce.data": 2,
    "transduce.metrics": 2,
    "transduce.speech.audio": 2,
    "transduce.audio": 3,  # documented names of speech.audio
    "transduce.models": 3,
    "transduce.vision.data": 3,
    "transduce.speech.recordings": 3,
    "transduce.speech.model_config": 3,
    "transduce.speech.recording_store": 4,
    "transduce.vision.vit": 4,
    "transduce.training": 5,
    "transduce.interop": 5,
    "transduce.engine": 5,
    "transduce.decoding": 6,
    "transduce.speech.engine": 6,
    "transduce.speech.model": 7,
    "transduce.speech.synthesis_models": 6,
    "transduce.speech.monotonic": 6,
    "transduce.explain": 7,
    "transduce.tasks": 8,
    "transduce.speech": 9,
    "transduce.vision": 9,
    "transduce.explain.tasks": 9,
    "transduce.speech.explaining": 10,
    "transduce.vision.explaining": 10,
    "transduce.web": 10,
    "transduce.rows": 11,
    "transduce.tasks.table": 12,
    "transduce.recipes": 13,
    "transduce.runs.arguments": 8,
    "transduce.runs.directory": 14,
    "transduce.runs.network_engine": 14,
    "transduce.runs.run": 15,
    "transduce.runs.training": 15,
    "transduce.runs.importing": 15,
    "transduce.explain.calls": 16,
    "transduce.speech.calls": 16,
    "transduce.runs.exporting": 17,
    "transduce.runs.synthetic": 17,
    "transduce.loading": 17,
    "transduce.bulk": 18,
    "transduce.localise": 18,
    "transduce.experiments": 18,
    "transduce.pipelines": 18,
    "transduce.explain.runs": 19,
    "transduce.examination": 19,
    "transduce.making": 20,
    "transduce.calls": 21,
    "transduce": 22,  # the public names, imported on demand
    "transduce.serve": 23,
    "transduce.cli": 24,
    "transduce.__main__": 25,
}


# Families of tasks do not import each other, but for these: (importing module, imported module).
FAMILIES = ("language_model", "text_encoder", "translation")
ROOMS = ("speech", "vision")  # families with data, models and reports of their own
SHARED = {
    ("transduce.vision.classification", "transduce.tasks.text_encoder.predictor"),
    ("transduce.vision.classification", "transduce.tasks.text_encoder.recipes"),
    ("transduce.speech.spoken", "transduce.tasks.translation.recipe"),
    ("transduce.speech.spoken", "transduce.tasks.translation.training"),
    ("transduce.speech.spoken", "transduce.tasks.translation.translator"),
}


def family(module: str) -> str | None:
    """The family of tasks that a module belongs to; None for what tasks share, and for the rest."""
    parts = module.split(".")
    names = [name for name in parts[1:3] if name in (*FAMILIES, *ROOMS)]
    return names[0] if names and parts[1] in ("tasks", *ROOMS) else None


def home(module: str) -> str:
    """The longest prefix of a module's name that has a floor."""
    parts = module.split(".")
    return next(name for n in range(len(parts), 0, -1) if (name := ".".join(parts[:n])) in FLOORS)


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of the tree of a module."""
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


@cache
def imports() -> list[tuple[str, str]]:
    """Every (module, imported module) inside the package, lazy imports included."""
    result = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                result.append((module, node.module))
            elif isinstance(node, ast.Import):
                result += [(module, name.name) for name in node.names]
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{module}: relative"
    return [(a, b) for a, b in result if b.split(".")[0] == "transduce"]


def test_every_module_has_a_floor_and_some_import_something() -> None:
    pairs = imports()
    assert len(pairs) > 50
    assert {home(module) for module, _ in pairs} <= set(FLOORS)


def test_imports_go_down() -> None:
    upward = [
        f"{module} imports {imported}"
        for module, imported in imports()
        if home(module) != home(imported) and not FLOORS[home(module)] > FLOORS[home(imported)]
    ]
    assert upward == []


def test_families_of_tasks_do_not_import_each_other() -> None:
    tasks = PACKAGE / "tasks"
    assert {path.name for path in tasks.iterdir() if (path / "__init__.py").is_file()} == set(
        FAMILIES
    )
    across = {
        (module, imported)
        for module, imported in imports()
        if family(module) and family(imported) and family(module) != family(imported)
    }
    assert across == SHARED


def test_what_tasks_share_imports_no_family() -> None:
    upward = [
        f"{module} imports {imported}"
        for module, imported in imports()
        if family(imported)
        and module.startswith("transduce.tasks.")
        and not family(module)
        and module != "transduce.tasks.table"
    ]
    assert upward == []


# From text to text, without the rooms.
CORE = (
    *("settings", "support", "text", "data", "nn", "models", "metrics", "training", "engine"),
    *("decoding", "tasks", "runs", "recipes", "sequence", "errors"),
)
ABOVE_CORE = ("audio", "explain", "loading", "localise", "rows", "serve", "speech", "vision")


def test_the_core_imports_no_room() -> None:
    """Not lazily, nor for a type, nor by a name in a text: `TASKS` alone finds the rows by name."""
    upward = {
        (module.removeprefix("transduce."), imported.removeprefix("transduce."))
        for module, imported in imports()
        if module.count(".") and module.split(".")[1] in CORE
        if imported.count(".") and imported.split(".")[1] in ABOVE_CORE
    }
    named = [
        f"{path.relative_to(PACKAGE)} names {node.value}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).with_suffix("").parts[0] in CORE
        for node in nodes(path)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.match(rf"transduce\.({'|'.join(ABOVE_CORE)})\b", node.value)
    ]
    assert (upward, named) == (set(), [])


def test_no_private_name_of_another_module_is_imported() -> None:
    private = [
        f"{path.name} imports {name.name} of {node.module}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transduce")
        for name in node.names
        if name.name.startswith("_") and not name.name.startswith("__")
    ]
    assert private == []


def test_no_circles_between_modules() -> None:
    """Depth-first search over the modules themselves, finer than the floors."""
    graph: dict[str, set[str]] = {}
    for module, imported in imports():
        graph.setdefault(module, set()).add(imported)
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module not in done:
            for imported in graph.get(module, ()):
                visit(imported, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_text_and_settings_do_not_need_torch() -> None:
    names = ("text", "settings", "settings.paths", "support", "support.version", "errors")
    light = {f"transduce.{name}" for name in names}
    for module, imported in imports():
        if home(module) in light:
            assert home(imported) in light


def test_files_are_short() -> None:
    lines = {
        str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    assert len(lines) > 50
    assert {name: count for name, count in lines.items() if count > LINES_OF_FILE} == {}


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    assert function.end_lineno is not None
    whole = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is None:
        return whole
    text = function.body[0]
    assert text.end_lineno is not None
    return whole - (text.end_lineno - text.lineno + 1)


def test_the_length_of_a_function_is_without_its_docstring() -> None:
    plain = ast.parse("@cached\ndef f():\n    x = 1\n\n    return x\n").body[0]
    documented = ast.parse(
        'def f():\n    """Give one.\n\n    Always.\n    """\n    return 1\n'
    ).body[0]
    assert isinstance(plain, ast.FunctionDef) and isinstance(documented, ast.FunctionDef)
    assert (length(plain), length(documented)) == (4, 2)


def test_functions_are_short() -> None:
    functions = [
        (f"{path.relative_to(PACKAGE)}: {node.name}", length(node))
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(functions) > 50
    assert [(name, lines) for name, lines in functions if lines > LINES_OF_FUNCTION] == []
