"""deploy/: the image as far as no container is needed, nginx and systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from transduce.cli.main import VERBS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


def stages() -> list[str]:
    """Stages of the Dockerfile, with continued lines joined."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]


def copied(stage: str, directory: Path) -> None:
    """Copy into a directory what the COPY lines of a stage name, in the clone."""
    for sources, target in re.findall(r"^COPY (?!--)(.+) (\S+)$", stage, re.MULTILINE):
        for name in sources.split():
            path = ROOT / name
            if path.is_dir():
                shutil.copytree(path, directory / target, ignore=LEFT_OUT)
            else:
                shutil.copy(path, directory / name)


@pytest.mark.system
def test_the_wheel_of_the_image_is_built_from_its_copies(tmp_path: Path) -> None:
    build, final = stages()
    copied(build, tmp_path)
    (project,) = re.findall(r"^RUN pip wheel .* \./(\S+)$", build, re.MULTILINE)
    command = "from hatchling.builders.wheel import WheelBuilder as B; print(*B('{}').build())"
    assert (tmp_path / "hatch_build.py").is_file()
    done = subprocess.run(
        [sys.executable, "-c", command.format(tmp_path / project)],
        cwd=tmp_path / project,
        env={"PATH": ""},  # without a compiler: quick
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = zipfile.ZipFile(done.stdout.split()[-1]).namelist()
    assert {"transduce/__main__.py", "transduce/engine/native/interface.cpp"} <= set(names)
    (constraints,) = re.findall(r"^COPY (\S+\.txt) ", final, re.MULTILINE)
    assert (ROOT / constraints).is_file() and "g++" not in final


def test_the_image_and_the_unit_take_the_native_engine() -> None:
    unit = (DEPLOY / "transduce.service").read_text(encoding="utf-8")
    assert '"serve", "--engine", "native"' in stages()[1] and "torch" not in stages()[1]
    assert re.search(r"^ExecStart=.* --engine native ", unit, re.MULTILINE)


def test_the_proxy_limits_posts_alone() -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert re.search(r'map \$request_method (\$\w+) \{\s*default "";\s*POST +\$binary_', text)
    assert "limit_req_zone $posting" in text and "nodelay;" in text
    assert "limit_req_status 429;" in text and "Host $http_host;" in text


def test_documents_of_a_client_stay_with_one_process() -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert re.search(r"upstream transduce \{\s*ip_hash;", text)
    assert "proxy_pass http://transduce;" in text


def test_the_deployment_asks_routes_of_the_server_and_keeps_clients() -> None:
    server = (ROOT / "src" / "transduce" / "serve").rglob("*.py")
    routes = {path for file in server for path in re.findall(r'"(/health/\w+)"', file.read_text())}
    deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert {probe["path"] for probe in probes} <= routes
    assert {probe["port"] for probe in probes} == {container["ports"][0]["containerPort"]}
    assert container["args"][0] not in VERBS  # the image names `serve`
    assert service["spec"]["sessionAffinity"] == "ClientIP"
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]


def test_the_task_for_rented_machines_trains_by_torchrun() -> None:
    task = yaml.safe_load((DEPLOY / "skypilot.yaml").read_text("utf-8"))
    assert " ".join(task["run"].split()).endswith(
        "-m -- transduce train RECIPE --run /runs/NAME --resume"
    )
