"""The wheel holds the suite and needs nothing that it does not declare."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]


def closure(names):
    """The distributions that ``names`` need, themselves included, as this environment holds them."""
    found, waiting = {}, list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        for line in found[name].requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found


def link_into(site_packages, distribution):
    """Make a distribution of this environment visible in another one."""
    for file in distribution.files or ():
        top = file.parts[0]
        source = Path(distribution.locate_file(top))
        if top not in ("..", "__pycache__") and not (site_packages / top).exists():
            (site_packages / top).symlink_to(source)


def run(*command, cwd, check=True, more=None):
    """Run a command, which sees no checkout but ``more`` packages, and return what it printed."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if more is not None:
        variables["PYTHONPATH"] = str(more)
    answer = subprocess.run(
        list(map(str, command)), cwd=cwd, env=variables, capture_output=True, text=True, check=False
    )
    if check:
        assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    checkout = folder / "checkout"
    ignore = shutil.ignore_patterns(".*", "*.egg-info", "build", "dist", "__pycache__")
    shutil.copytree(ROOT, checkout, ignore=ignore)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", checkout]
    run(*build, cwd=folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


def link_declared(environment, site_packages, *extras):
    """What the wheel in an environment declares for these extras becomes visible in a folder."""
    (installed,) = metadata.distributions(name="ipu-conformance", path=list(map(str, packages(environment))))
    declared = [Requirement(line) for line in installed.requires or ()]
    needed = [
        requirement.name
        for requirement in declared
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
    ]
    for distribution in closure(needed).values():
        link_into(site_packages, distribution)


def packages(environment):
    """The folders of an environment's packages."""
    return list(environment.glob("lib/python*/site-packages"))


def test_the_wheel_holds_every_file_of_the_suite_and_of_the_package(wheel):
    """A table that a case reads is part of the suite."""
    places = {ROOT / "tests" / "ipu": "ipu_conformance/suite", ROOT / "ipu_conformance": "ipu_conformance"}
    files = {
        f"{there}/{path.relative_to(here).as_posix()}"
        for here, there in places.items()
        for path in here.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert files - set(zipfile.ZipFile(wheel).namelist()) == set()


@pytest.fixture(scope="module")
def base_install(wheel, tmp_path_factory):
    """An environment outside a checkout with the wheel and what it declares, without any framework."""
    folder = tmp_path_factory.mktemp("base")
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    # Python compiles what a test imports; pip would compile the whole package.
    run(*pip, "--no-compile", "--no-deps", "--no-index", wheel, cwd=folder)
    (site_packages,) = packages(environment)
    link_declared(environment, site_packages)
    return environment


def test_the_base_install_has_no_framework(base_install, tmp_path):
    """The environment that the other tests use is what it claims to be."""
    program = "import importlib.util as u; print([u.find_spec(n) for n in ('torch', 'tensorflow', 'paddle', 'scipy')])"
    answer = run(base_install / "bin" / "python", "-c", program, cwd=tmp_path)

    assert answer.stdout.strip() == "[None, None, None, None]"


@pytest.mark.parametrize("command", [["--help"], ["doctor"], ["data", "list"], ["ir", "--help"]], ids=" ".join)
def test_the_commands_run_without_a_framework(base_install, tmp_path, command):
    """The base install answers help, doctor, data and ir."""
    answer = run(base_install / "bin" / "ipu-conformance", *command, cwd=tmp_path)

    assert answer.stdout.strip()
    assert answer.stderr == ""


def test_the_suite_runs_from_the_wheel(base_install, tmp_path):
    """Outside a checkout, with one framework, that framework's cases run and pass, and the summary counts them.

    The folder has a pytest.ini and a conftest.py of somebody else's.
    """
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers\ntestpaths = theirs\nxfail_strict = true\n"
    )
    (tmp_path / "conftest.py").write_text("import pytest\n@pytest.fixture(autouse=True)\ndef theirs():\n    pass\n")
    # A few quick cases of one folder are enough to show that the suite runs; the whole of it is collected below.
    command = ["-m", "pytest", "--pyargs", "ipu_conformance.suite.paddle.ir", "-m", "ipu"]
    # One names its framework by the suite's folder alone, which is not in the id that pytest gives it here.
    command += ["-k", "executes_its_plan or dumped_model_is_placed", "--ipu-report", "report", "--assert=plain"]
    more = tmp_path / "packages"
    more.mkdir()
    link_declared(base_install, more, "paddle")
    answer = run(base_install / "bin" / "python", *command, cwd=tmp_path, more=more)

    executed = re.search(r"cases: (\d+) executed, 0 skipped", answer.stdout)
    assert executed is not None, answer.stdout
    assert int(executed.group(1)) > 1
    cases = json.loads((tmp_path / "report" / "report.json").read_text())["cases"]
    assert {case["case"].partition("test_")[0] for case in cases} == {"paddle/ir/"}
    assert "ipu poptorch: left out (poptorch is not installed; torch is not installed" in answer.stdout
    help_text = run(base_install / "bin" / "ipu-conformance", "qualify", "--help", cwd=tmp_path, more=more).stdout
    assert "0 QUALIFIED, 1 NOT QUALIFIED" in " ".join(help_text.split())
    listed = "from ipu_conformance.report import mandatory, page; "
    listed += "print(len(mandatory.shipped().cases), page._template().name)"
    shipped = run(base_install / "bin" / "python", "-c", listed, cwd=tmp_path, more=more).stdout.split()
    assert int(shipped[0]) > 1000
    assert shipped[1] == "page.html"


def test_a_run_without_a_framework_fails(base_install, tmp_path):
    """Every case needs a framework: where none is installed the run says that it executed nothing."""
    # No assertion is reached, and rewriting those of a suite that was never compiled takes longest.
    command = ["-m", "pytest", "--pyargs", "ipu_conformance.suite", "-m", "ipu", "--assert=plain"]
    answer = run(base_install / "bin" / "python", *command, cwd=tmp_path, check=False)

    assert answer.returncode != 0
    assert "No case was executed" in answer.stdout


def test_a_framework_that_is_missing_fails_when_it_is_asked_for(base_install, tmp_path):
    """The same environment refuses to qualify a framework that it does not have."""
    command = ["-m", "pytest", "--pyargs", "ipu_conformance.suite", "-m", "ipu", "--ipu-frameworks", "paddle"]
    answer = run(base_install / "bin" / "python", *command, cwd=tmp_path, check=False)

    assert answer.returncode == pytest.ExitCode.USAGE_ERROR
    assert "paddle was asked for and cannot run on target 'auto'" in answer.stderr
