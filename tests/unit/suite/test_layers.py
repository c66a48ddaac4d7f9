"""What import-linter cannot see: modules that are imported by name."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
INNER = "ipu_conformance.emulator"


@pytest.mark.parametrize("folder", ["tests/ipu", "ipu_conformance/frameworks", "ipu_conformance/workloads"])
def test_no_case_driver_or_workload_names_the_emulator(folder):
    """They reach a device through the vendor's names, and its inside through the target's door."""
    sources = sorted((ROOT / folder).rglob("*.py"))
    named = [path.relative_to(ROOT).as_posix() for path in sources if INNER in path.read_text(encoding="utf-8")]

    assert sources
    assert named == []
