"""Runs the smoke cases of a framework in environments of their own, and writes what became of them to docs/versions.md.

    python -m benchmarks.versions [--only WORDS] [--workers 2] [--time-limit 900]

Each row is a Python and what pip is asked for beside the project's wheel, without constraints: all else is the newest
that fits. ``--only`` takes the rows that have all of these words; the others keep what an earlier run wrote. An
environment is made in a temporary folder and removed. A framework of which the index has only a build with CUDA is not
installed, and an interpreter that is not there is not fetched: the row says so.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence

from ipu_conformance.atomic_write import replacing

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "versions.md"
NOT_RUN = "not run"
SHOWN = ("torch", "tensorflow-cpu", "tf-keras", "keras", "paddlepaddle", "numpy", "onnx", "protobuf", "pytest")


class Row(NamedTuple):
    """A Python, a framework, what pip is asked for, and whether the run has to refuse it."""

    python: str
    framework: str
    asked: str
    refused: bool = False

    def is_as_it_should_be(self, result: str) -> bool:
        """Whether a result is no failure: all cases passed, or the run refused what it has to refuse."""
        if result.startswith(NOT_RUN):
            return True
        return result.startswith("refused: ") if self.refused else re.fullmatch(r"[^;]*passed[^;]*", result) is not None

    @property
    def key(self) -> str:
        """The first cells of the row's line."""
        return f"| {self.python} | {self.framework} | `{self.asked}` |"


ROWS = (
    Row("3.9", "poptorch", "torch==2.0.1"),
    Row("3.9", "poptorch", "torch==2.8.0"),
    Row("3.10", "poptorch", "torch==2.13.0"),
    Row("3.11", "poptorch", "torch==2.13.0"),
    Row("3.11", "poptorch", "torch==2.15.0"),
    Row("3.12", "poptorch", "torch==2.13.0"),
    Row("3.13", "poptorch", "torch==2.13.0"),
    Row("3.9", "tensorflow", "tensorflow-cpu==2.15.1"),
    Row("3.10", "tensorflow", "tensorflow-cpu==2.15.1"),
    Row("3.11", "tensorflow", "tensorflow-cpu==2.15.1"),
    Row("3.11", "tensorflow", "tensorflow-cpu==2.21.0 tf-keras"),
    Row("3.12", "tensorflow", "tensorflow-cpu==2.21.0 tf-keras"),
    Row("3.13", "tensorflow", "tensorflow-cpu==2.21.0 tf-keras"),
    Row("3.13", "tensorflow", "tensorflow-cpu==2.21.0", refused=True),
    Row("3.9", "paddle", "paddlepaddle==2.6.2 setuptools"),
    Row("3.10", "paddle", "paddlepaddle==2.6.2 setuptools"),
    Row("3.11", "paddle", "paddlepaddle==2.6.2 setuptools"),
    Row("3.12", "paddle", "paddlepaddle==2.6.2 setuptools"),
    Row("3.11", "paddle", "paddlepaddle==3.0.0 setuptools"),
    Row("3.13", "paddle", "paddlepaddle==3.1.1 setuptools"),
    Row("3.11", "paddle", "paddlepaddle==3.3.1 setuptools", refused=True),
)


class Outcome(NamedTuple):
    """The last cells of a row's line."""

    installed: str
    result: str
    day: str


def interpreter(version: str) -> Optional[str]:
    """A Python of this version that can make environments: on the PATH, or among those of pyenv."""
    candidates = [shutil.which(f"python{version}")]
    candidates += sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")), reverse=True)
    for candidate in candidates:
        if (
            candidate
            and subprocess.run([candidate, "-c", "import ensurepip, venv"], capture_output=True).returncode == 0
        ):
            return candidate
    return None


def built_wheel(folder: Path) -> Path:
    """The project's wheel, from this checkout."""
    copy = folder / "checkout"
    ignored = shutil.ignore_patterns(".venv", "build", "dist", "*.egg-info", "__pycache__", ".git", ".*_cache")
    shutil.copytree(ROOT, copy, ignore=ignored)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(copy)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


def tried(row: Row, wheel: Path, folder: Path, workers: int, time_limit: float) -> Outcome:
    """Install and run one row."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    found = interpreter(row.python)
    if found is None:
        return Outcome("", f"{NOT_RUN}: there is no Python {row.python} here", today)
    place = folder / "environment"
    empty = folder / "empty"
    empty.mkdir()
    try:
        subprocess.run([found, "-m", "venv", str(place)], check=True)
        python = str(place / "bin" / "python")
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--upgrade", "pip"], check=True)
        words = [*row.asked.split(), str(wheel)]
        resolved = subprocess.run(
            [*pip, "install", "--dry-run", "--only-binary", ":all:", "--report", str(folder / "plan.json"), *words],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if resolved.returncode:
            said = [line.strip() for line in resolved.stderr.splitlines() if line.strip()]
            return Outcome(
                "", f"{NOT_RUN}: pip could not resolve it ({said[-1] if said else 'no reason given'})", today
            )
        plan = json.loads((folder / "plan.json").read_text())["install"]
        cuda = [each["metadata"]["name"] for each in plan if each["metadata"]["name"].startswith("nvidia")]
        if cuda:
            return Outcome("", f"{NOT_RUN}: the index has only a build with CUDA ({len(cuda)} more packages)", today)
        subprocess.run([*pip, "install", "--only-binary", ":all:", *words], check=True)
        return Outcome(installed(python), result(python, row.framework, empty, workers, time_limit), today)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(empty, ignore_errors=True)


def installed(python: str) -> str:
    """The versions that matter, in words."""
    answer = subprocess.run([python, "-m", "pip", "list", "--format", "json"], capture_output=True, check=True)
    versions = {row["name"].lower().replace("_", "-"): row["version"] for row in json.loads(answer.stdout)}
    return ", ".join(f"{name} {versions[name]}" for name in SHOWN if name in versions)


def result(python: str, framework: str, folder: Path, workers: int, time_limit: float) -> str:
    """What became of the smoke cases of a framework, in words."""
    command = [python, "-m", "pytest", "--pyargs", "ipu_conformance.suite", "-m", "ipu", "-q", "-n", str(workers)]
    command += ["--ipu-frameworks", framework, "--ipu-target", "emulator", "--ipu-level", "smoke", "--tb", "short"]
    try:
        answer = subprocess.run(
            [*command, "-p", "no:cacheprovider"],
            capture_output=True, text=True, timeout=time_limit, cwd=folder, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no end within {time_limit:g} s"
    print(answer.stdout[-40000:], answer.stderr[-2000:], file=sys.stderr)
    refused = [line for line in answer.stderr.splitlines() if line.startswith("ERROR: ")]
    if refused:
        return f"refused: {refused[0][len('ERROR: ') :]}"
    lines = [line for line in answer.stdout.splitlines() if re.search(r"\d+ (passed|failed|error)", line)]
    words = re.sub(r" in [\d.]+s.*| \([\d:]+\)|=+", "", lines[-1]).strip() if lines else "no case was run"
    return words + ("" if answer.returncode == 0 else f"; exit code {answer.returncode}")


def read(page: Path) -> Dict[str, Outcome]:
    """What an earlier run wrote, by the first cells of a line."""
    if not page.exists():
        return {}
    outcomes = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| 3.") and len(cells) == 6:
            outcomes[f"| {cells[0]} | {cells[1]} | {cells[2]} |"] = Outcome(*cells[3:])
    return outcomes


HEAD = """# Versions that were tried

The smoke cases of one framework on the emulator, in an environment of their own: the project's wheel, what the third
column asks pip for, and the newest of everything else that fits, without constraints. `make versions` makes the table;
`make versions ARGS="--only '3.13 paddle'"` makes some of its rows. A row says what was seen on its day.

| Python | framework | asked for | installed | smoke | on |
|---|---|---|---|---|---|
"""


def written(outcomes: Dict[str, Outcome]) -> str:
    """The page."""
    lines = []
    for row in ROWS:
        outcome = outcomes.get(row.key, Outcome("", NOT_RUN, ""))
        lines.append(f"{row.key} {outcome.installed} | {outcome.result} | {outcome.day} |")
    return HEAD + "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Try the rows; 1 if a case failed in one of them, or if another one was refused than has to be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORDS")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=900.0)
    args = parser.parse_args(arguments)
    chosen = [row for row in ROWS if all(word in (*row[:2], *row.asked.split()) for word in args.only.split())]
    failed: List[Row] = []
    for name in ("PYTHONPATH", "PYTEST_ADDOPTS"):  # an environment sees nothing of this one, nor of the checkout
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="ipu-conformance-versions-") as folder:
        wheel = built_wheel(Path(folder))
        for row in chosen:
            try:
                outcome = tried(row, wheel, Path(folder), args.workers, args.time_limit)
            except subprocess.CalledProcessError as error:
                outcome = Outcome("", f"{NOT_RUN}: {error}", datetime.date.today().isoformat())
            print(f"{row.key} {outcome.result}", flush=True)
            if not row.is_as_it_should_be(outcome.result):
                failed.append(row)
            with replacing(PAGE) as beside:
                beside.write_text(written({**read(PAGE), row.key: outcome}), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
