"""The example of a target is a package that can be installed, found, asked and named in a report."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipu_conformance.report import folder as report_folder

PACKAGE = Path(__file__).resolve().parents[3] / "examples" / "acme_target"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Variables of processes that find the package as pip leaves it: its module, and the entry point it declares."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    site = tmp_path_factory.mktemp("site")
    information = site / f"acme_target-{project['version']}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in rows.items())
        for group, rows in project["entry-points"].items()
    ]
    (information / "entry_points.txt").write_text("\n".join(points))
    path = os.pathsep.join([str(site), str(PACKAGE), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "ACME_SERIAL": "0017"}


def command(installed, *words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", *words], env=installed, cwd=cwd, capture_output=True, text=True, check=False
    )


def test_the_target_is_found(installed):
    """doctor names it, and what it answers for each framework."""
    answer = command(installed, "ipu_conformance", "doctor", "--ipu-target", "acme", "--json")
    findings = json.loads(answer.stdout)

    assert "acme" in findings["targets"]
    assert {row["name"]: row["target"] for row in findings["frameworks"]}["tensorflow"] is None
    assert {row["why"] for row in findings["frameworks"] if row["target"] == "acme"} == {"an Acme accelerator"}


CASE = "training/test_updates_ipu.py::test_weights_are_the_oracle_s[paddle-mlp-D2-G4-R3-momentum]"


def test_the_target_trains_as_specified(installed, tmp_path):
    """Paddle through it: preflight has its answer, and a case of the suite finds nothing wrong."""
    program = "from ipu_conformance.report import preflight; print(len(preflight.ask('paddle', 'acme')))"
    answer = subprocess.run([sys.executable, "-c", program], env=installed, capture_output=True, text=True, check=False)
    case = command(installed, "ipu_conformance", "case", CASE, "--ipu-target", "acme", cwd=tmp_path)

    assert answer.stdout.splitlines()[-1:] == ["15"], answer.stderr
    assert case.returncode == 0, case.stdout


def test_a_report_names_the_device(installed, tmp_path):
    """With its serial number."""
    (tmp_path / "test_a.py").write_text("import pytest\n@pytest.mark.ipu\ndef test_a():\n    pass\n")
    words = ["pytest", "-q", "-m", "ipu", "--ipu-target", "acme", "--ipu-report", "out", "-p", "no:cacheprovider"]
    command({**installed, "PYTEST_ADDOPTS": "-p no:hypothesispytest"}, *words, cwd=tmp_path)

    row = report_folder.read_report(tmp_path / "out")["run"]["frameworks"]["paddle"]
    assert (row["identity"], row["ipus"]) == ({"model": "Acme A8", "serial": "0017"}, 8)
