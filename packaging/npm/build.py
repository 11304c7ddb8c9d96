"""The npm package, in a directory: `python packaging/npm/build.py dist/npm`."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from pathlib import Path

from transduce.engine.build import WASM, library_path
from transduce.explain.page import static
from transduce.support.version import __version__
from transduce.web.page import SCRIPTS

HERE = Path(__file__).parent
LOAD = """
const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const modules = { relaxed: bytesOf("RELAXED"), plain: bytesOf("PLAIN") };
export async function load(file) {
  const translator = await Translator.load(file, modules);
  return { translate: async (text, settings) => translator.answer(text, settings) };
}
"""


def main(directory: Path) -> None:
    """Write the package."""
    directory.mkdir(parents=True, exist_ok=True)
    code = "".join(static(*script) for script in SCRIPTS[:-1]) + LOAD
    for name, instructions in zip(("RELAXED", "PLAIN"), WASM, strict=True):
        module = base64.b64encode(library_path(instructions).read_bytes()).decode()
        code = code.replace(f'"{name}"', f'"{module}"')
    (directory / "index.js").write_text(code, encoding="utf-8")
    package = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
    package["version"] = __version__
    (directory / "package.json").write_text(json.dumps(package, indent=2), encoding="utf-8")
    for name in ("index.d.ts", "README.md"):
        shutil.copy(HERE / name, directory / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
