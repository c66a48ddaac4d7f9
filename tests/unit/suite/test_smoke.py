"""A smoke run holds one case of every area of every framework."""

from __future__ import annotations

import pytest

from ipu_conformance.plugin import smoke_area


@pytest.mark.parametrize(
    ("nodeid", "area"),
    [
        ("tests/ipu/paddle/ir/test_ir_ipu.py::test_a[x]", "tests/ipu/paddle/ir/test_ir_ipu.py"),
        (
            "tests/ipu/ops/test_ops_ipu.py::test_forward[paddle-softmax-log_softmax-float32-drawn]",
            "tests/ipu/ops/test_ops_ipu.py::paddle-softmax-float32",
        ),
    ],
)
def test_an_area_is_a_file_or_a_family_of_ops(nodeid, area):
    """Ops of a family share a program, and one of them stands for it."""
    assert smoke_area(nodeid) == area
