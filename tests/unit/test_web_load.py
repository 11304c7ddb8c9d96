"""`load` of the engine for pages: what is no model is refused in a line."""

import shutil
import subprocess

import pytest

import transduce

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
