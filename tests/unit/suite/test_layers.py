"""What import-linter cannot see: modules that are imported by name, and what a command imports when it runs."""

from pathlib import Path

import pytest

from ipu_conformance.ir import write
from tests.unit.commands import printed
from tests.unit.ir import hlo_files, networks, paddle_files, tf_files

ROOT = Path(__file__).resolve().parents[3]
INNER = "ipu_conformance.emulator"


@pytest.mark.parametrize("folder", ["tests/ipu", "ipu_conformance/frameworks", "ipu_conformance/workloads"])
def test_no_case_driver_or_workload_names_the_emulator(folder):
    """They reach a device through the vendor's names, and its inside through the target's door."""
    sources = sorted((ROOT / folder).rglob("*.py"))
    named = [path.relative_to(ROOT).as_posix() for path in sources if INNER in path.read_text(encoding="utf-8")]

    assert sources
    assert named == []


FRAMEWORKS = ("torch", "tensorflow", "paddle")
MAIN = "from ipu_conformance.cli import main; "
READ = "from ipu_conformance.ir import read; read(open('model', 'rb').read())"
LIGHT = {
    "ipu-conformance data list": (MAIN + "assert main(['data', 'list']) == 0", "PIL", "tqdm", "onnx"),
    "ipu-conformance doctor": (MAIN + "main(['doctor'])", "onnx", "PIL"),
    "ipu-conformance baseline": ("import ipu_conformance.cli.baseline", "scipy", "matplotlib", "onnx"),
    "ipu-conformance ir convert": (
        MAIN + "main(['ir', 'convert', 'a.json', 'a.popart.json'])",
        "onnx",
        "numpy",
        "networkx",
    ),
    "looking for targets": ("from ipu_conformance.selection import select; select({}, {})", "numpy"),
    "installing the emulated TensorFlow": (
        "from ipu_conformance.emulator import hook, tensorflow; hook.install('tensorflow'); assert dir(tensorflow)",
    ),
    "reading a file of Paddle": (READ, "onnx"),
    "reading a file of TensorFlow": (READ, "onnx"),
    "reading a file of XLA": (READ, "onnx"),
}
MODELS = {
    "reading a file of Paddle": paddle_files.layer(),
    "reading a file of TensorFlow": tf_files.layer(),
    "reading a file of XLA": hlo_files.LAYER.encode(),
}


@pytest.mark.parametrize("action", LIGHT)
def test_what_takes_long_to_import_is_imported_only_where_it_is_needed(action, tmp_path):
    """No framework is imported, nor what else is slow and has nothing to do with the action."""
    program, *slow = LIGHT[action]
    write(networks.convnet(), tmp_path / "a.json")
    (tmp_path / "model").write_bytes(MODELS.get(action, b""))
    ending = f"; import sys; print([name for name in {(*FRAMEWORKS, *slow)} if name in sys.modules])"

    assert printed(program + ending, cwd=tmp_path).splitlines()[-1] == "[]"
