"""Tensors as text."""

from __future__ import annotations

from typing import Any, Dict

import pytest
import torch

from ipu_conformance.emulator.poptorch.ops.printing import Layout, text

ROWS = (
    (torch.tensor(2.5), {}, "2.500"),
    (torch.tensor([1, 2, 3]), {}, "(1, 2, 3)"),
    (torch.tensor([1, 20, 300]), {}, "(  1,  20, 300)"),
    (torch.tensor([True, False]), {}, "(1, 0)"),
    (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), {}, "((1.000, 2.000),\n (3.000, 4.000))"),
    (torch.tensor([1.5, -200.25]), {}, "(   1.5, -200.2)"),
    (torch.tensor([1.5, 20000.0]), {}, "(1.500e+00, 2.000e+04)"),
    (torch.tensor([1.0, 2.0]), {"float_format": "scientific", "digits": 2}, "(1.0e+00, 2.0e+00)"),
    (torch.tensor([1.0, 20.0]), {"float_format": "fixed", "digits": 3}, "( 1.0, 20.0)"),
    (torch.tensor([1.0, 2.25]), {"float_format": "none"}, "(   1, 2.25)"),
    (torch.tensor([1.0, 2.25]), {"digits": 0}, "(1, 2.25)"),
    (torch.tensor([1, 2]), {"separator": " ", "open_bracket": "[", "close_bracket": "]"}, "[1 2]"),
    (torch.arange(9), {"summarise_threshold": 8, "edge_items": 2}, "(0, 1, ..., 7, 8)"),
    (torch.arange(9), {"summarise_threshold": 9, "edge_items": 2}, "(0, 1, 2, 3, 4, 5, 6, 7, 8)"),
    (torch.arange(9), {"summarise_threshold": 0, "edge_items": 2}, "(0, 1, 2, 3, 4, 5, 6, 7, 8)"),
    (torch.arange(6), {"max_line_width": 7}, "(0, 1, 2,\n 3, 4, 5)"),
    (torch.arange(6), {"max_line_width": 0}, "(0, 1, 2, 3, 4, 5)"),
    (torch.empty(0), {}, "()"),
)


@pytest.mark.parametrize(("tensor", "settings", "expected"), ROWS, ids=[row[2].replace("\n", "|") for row in ROWS])
def test_text(tensor: torch.Tensor, settings: Dict[str, Any], expected: str) -> None:
    """Each setting has its effect on the text."""
    assert text(tensor, Layout(**settings)) == expected
