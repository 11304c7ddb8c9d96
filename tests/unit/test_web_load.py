"""`load` of the engine for pages: what is no model is refused in a line."""

import shutil
import subprocess
from pathlib import Path

import pytest

import transduce
from helpers.random_translator import random_translator
from transduce.web.page import model_file

pytestmark = pytest.mark.system


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
@pytest.mark.parametrize(
    "junk", ["[]", "[1, 2]", "[3, 0, 0, 0, 123, 125, 10]", "[255, 255, 255, 255, 0]", "null"]
)
def test_junk_is_no_model(junk: str) -> None:
    path = transduce.__path__[0] + "/web/static/translator.js"
    script = (
        f"const code = require('fs').readFileSync({path!r}, 'utf8');"
        f"const load = new Function(code + '; return Translator.load;')();"
        f"const junk = {junk}; load(junk && Uint8Array.from(junk), {{}})"
        ".catch((error) => console.log(error.name, error.message));"
    )
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("TypeError this is not a model of transduce"), done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_node_without_simd_is_refused(tmp_path: Path) -> None:
    path = transduce.__path__[0] + "/web/static/translator.js"
    model = tmp_path / "model.bin"
    model.write_bytes(model_file(random_translator(trained=False), "run", "int8"))
    script = (
        "WebAssembly.validate = () => false; const { readFileSync } = require('fs');"
        f"const code = readFileSync({path!r}, 'utf8');"
        f"const load = new Function(code + '; return Translator.load;')();"
        f"load(readFileSync({str(model)!r}), {{ plain: new Uint8Array(8) }})"
        ".catch((error) => console.log(error.name, error.message));"
    )
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("TypeError the engine needs WebAssembly with SIMD"), done.stderr
