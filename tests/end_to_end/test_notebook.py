"""The notebook's model learns; it shows progress, results and the page of an explanation."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = ["notebook.ipynb", "notebook.zh.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_kept_without_outputs(name: str) -> None:
    cells = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))["cells"]
    codes = [cell for cell in cells if cell["cell_type"] == "code"]
    assert codes
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in codes)


@pytest.fixture(scope="module", params=NOTEBOOKS)
def outputs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[list[Any]]:
    """Outputs of the code cells, after all were executed by a kernel."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(EXAMPLES / request.param, as_version=4)
    place = str(tmp_path_factory.mktemp("notebook"))
    client = nbclient.NotebookClient(
        notebook, timeout=250, kernel_name="python3", resources={"metadata": {"path": place}}
    )
    client.execute(env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": place})
    return [cell["outputs"] for cell in notebook.cells if cell["cell_type"] == "code"]


def result_of(cell: list[Any]) -> dict[str, str]:
    (result,) = (output["data"] for output in cell if output["output_type"] == "execute_result")
    return dict(result)


@pytest.mark.slow
def test_it_shows_progress_results_and_the_page(outputs: list[list[Any]]) -> None:
    _, train, run, translate, evaluate, explain, align, tensors = outputs
    progress = "".join(output["text"] for output in train if output["output_type"] == "stream")
    assert "step 100  loss" in progress and "validation at step 800" in progress
    assert result_of(train)["text/plain"].startswith("<Outcome of 800 steps")
    assert "<table>" in result_of(train)["text/html"]
    assert result_of(run)["text/plain"].startswith("<transduce run ")
    lines = "".join(output["text"] for output in translate).splitlines()
    assert [line.split()[:2] for line in lines] == [["fade", "edaf"], ["cab", "bac"]]
    scores = re.fullmatch(
        r"<Evaluation of \d+ items: accuracy ([\d.]+), cer ([\d.]+), chrf ([\d.]+)>",
        result_of(evaluate)["text/plain"],
    )
    assert scores is not None
    accuracy, character_errors, chrf = map(float, scores.groups())
    assert accuracy > 95 and character_errors < 2 and chrf > 95
    assert "<table>" in result_of(evaluate)["text/html"]
    assert result_of(explain)["text/html"].startswith("<iframe")
    assert result_of(explain)["text/plain"].startswith("<Explanation of translation run 'reverse'")
    assert "█" in result_of(align)["text/plain"] and "rgba" in result_of(align)["text/html"]
    assert result_of(tensors)["text/plain"].startswith("<RecordedTensors")
