"""Imports go down only, siblings on a floor do not import each other, and parts stay short."""

import ast
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
    "transduce.image": 1,
    "transduce.audio": 1,
    "transduce.nn": 2,
    "transduce.data": 2,
    "transduce.metrics": 2,
    "transduce.models": 3,
    "transduce.training": 4,
    "transduce.interop": 4,
    "transduce.engine": 4,
    "transduce.decoding": 5,
    "transduce.explain": 6,
    "transduce.tasks": 7,
    "transduce.runs.call_inputs": 7,
    "transduce.explain.tasks": 8,
    "transduce.web": 8,
    "transduce.tasks.language_model.rows": 9,
    "transduce.tasks.speech.rows": 9,
    "transduce.tasks.speech.synthesis_rows": 9,
    "transduce.tasks.text_encoder.rows": 9,
    "transduce.tasks.translation.rows": 9,
    "transduce.tasks.vision.rows": 9,
    "transduce.tasks.table": 10,
    "transduce.recipes": 11,
    "transduce.runs.engine": 11,
    "transduce.runs.directory": 12,
    "transduce.runs.auxiliary": 12,
    "transduce.runs.calls": 11,
    "transduce.runs.capabilities": 11,
    "transduce.runs.network_engine": 12,
    "transduce.runs.onnx_export": 12,
    "transduce.runs.run": 13,
    "transduce.runs.training": 13,
    "transduce.runs.importing": 13,
    "transduce.runs.averaging": 13,
    "transduce.runs.loading": 14,
    "transduce.runs.exporting": 15,
    "transduce.runs.publishing": 15,
    "transduce.runs.recipe_files": 15,
    "transduce.runs.synthetic": 15,
    "transduce.bulk": 15,
    "transduce.localise": 15,
    "transduce.experiments": 15,
    "transduce.explain.runs": 16,
    "transduce.doctor": 16,
    "transduce.make": 17,
    "transduce": 17,  # the public names, imported on demand
    "transduce.serve": 18,
    "transduce.cli": 19,
    "transduce.__main__": 20,
}


# Families of tasks do not import each other, but for these: (importing module, imported module).
FAMILIES = ("language_model", "speech", "text_encoder", "translation", "vision")
SHARED = {
    ("transduce.tasks.vision.image_embedding", "transduce.tasks.text_encoder.embedding"),
    ("transduce.tasks.vision.image_embedding", "transduce.tasks.text_encoder.recipes"),
    ("transduce.tasks.speech.pronunciation", "transduce.tasks.translation.recipe"),
    ("transduce.tasks.speech.pronunciation", "transduce.tasks.translation.task"),
    ("transduce.tasks.speech.pronunciation", "transduce.tasks.translation.translator"),
}


def family(module: str) -> str | None:
    """The family of tasks that a module belongs to; None for what tasks share, and for the rest."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["transduce", "tasks"] and len(parts) > 2 else None


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
        if family(module) in FAMILIES
        and family(imported) in FAMILIES
        and family(module) != family(imported)
    }
    assert across == SHARED


def test_what_tasks_share_imports_no_family() -> None:
    upward = [
        f"{module} imports {imported}"
        for module, imported in imports()
        if family(imported) in FAMILIES
        and module.startswith("transduce.tasks.")
        and family(module) not in FAMILIES
        and module != "transduce.tasks.table"
    ]
    assert upward == []


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
