"""Custom ops: mapped by the strategy, and refused where they do not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ipu_conformance import check

from .. import regression
from ..device import Device, predictor_config

NOBODY = "custom_op_of_nobody"


def squaring(paddle: Any, *mapping: str) -> Device:
    """A program that squares, compiled with a mapping of a custom op."""
    x = paddle.static.data("x", [4, 2], "float32")
    strategy = paddle.static.IpuStrategy()
    strategy.set_graph_config(is_training=False, micro_batch_size=4)
    strategy.add_custom_op(*mapping)
    return Device(paddle, [x * x], strategy)


@pytest.mark.emulator
def test_an_op_that_nobody_made_is_refused(paddle: Any, static: Any) -> None:
    """Compiling with a mapping to an op that does not exist fails, and the sentence names it."""
    with check.raises(RuntimeError, match=NOBODY, what="compiling with a mapping to an unknown op"):
        squaring(paddle, NOBODY, "OfNobody")


@pytest.mark.emulator
def test_a_predictor_refuses_it_too(paddle: Any, static: Any, tmp_path: Path) -> None:
    """set_ipu_custom_info maps ops for predictors."""
    prefix = regression.save_squares(paddle, tmp_path, 4)
    config = predictor_config(paddle, prefix, 1, 4)
    config.set_ipu_custom_info([[NOBODY, "OfNobody", "custom.ops", "1"]], {})

    with check.raises(RuntimeError, match=NOBODY, what="a predictor with a mapping to an unknown op"):
        paddle.inference.create_predictor(config)


@pytest.mark.emulator
@pytest.mark.parametrize("row", [["a", "A", "custom.ops"], ["a", "A", "custom.ops", "1", "more"]])
def test_a_mapping_has_four_words(paddle: Any, row: Any) -> None:
    """A custom op of a predictor has its names in Paddle and PopART, a domain and a version."""
    with check.raises(ValueError, match="Invalid setting for", what=f"set_ipu_custom_info with {row}"):
        paddle.inference.Config().set_ipu_custom_info([row], {})


def test_mappings_that_are_not_used_change_nothing(paddle: Any, static: Any) -> None:
    """Mapping one of Paddle's ops that the program does not use leaves the program as it is."""
    (squares,) = squaring(paddle, "relu", "Relu").run(regression.samples(4))

    check.identical(actual=squares, expected=regression.float32(regression.samples(4) ** 2), what="the square")


MAPPED = {
    "relu": ("OwnRelu", "own.ops", 3),
    "tanh": ("OwnTanh", "other.ops", 1),
    "sigmoid": ("OwnSigmoid", "own.ops", 5),
}
"""Ops of Paddle, and the op that each is for PopART: its type, domain and version."""


@pytest.mark.emulator
def test_every_mapping_counts(paddle: Any, static: Any, tmp_path: Path) -> None:
    """Each mapped op becomes the one that it is mapped to; the rest of the program stays as it is."""
    import onnx

    path = tmp_path / "model.onnx"
    value = static.data("x", [4, 2], "float32") * 2.0
    for name in MAPPED:
        value = getattr(paddle.nn.functional, name)(value)
    strategy = static.IpuStrategy()
    strategy.set_options({"is_training": False, "micro_batch_size": 4, "onnx_dump_path": str(path)})
    for name, (type, domain, version) in MAPPED.items():
        strategy.add_custom_op(name, type, domain, version)
    Device(paddle, [value], strategy)
    nodes = onnx.load(str(path)).graph.node

    expected = [("Mul", ""), *((type, domain) for type, domain, _ in MAPPED.values())]
    check.equal(actual=[(node.op_type, node.domain) for node in nodes], expected=expected, what="the dumped ops")


@pytest.mark.emulator
@pytest.mark.parametrize("header", ["popart/op.hpp", "poplar/Graph.hpp"])
def test_sources_against_the_sdk_need_the_sdk(paddle: Any, tmp_path: Path, header: str) -> None:
    """Where the SDK's headers are not installed, building an op against them fails and names the source."""
    if any((Path(folder) / header).is_file() for folder in ("/usr/include", "/usr/local/include")):
        pytest.skip("the SDK's headers are installed")
    source = tmp_path / "leaky_relu.cc"
    source.write_text(f"#include <{header}>\n", encoding="utf-8")

    with check.raises(RuntimeError, match=r"leaky_relu\.cc", what=f"building a source that includes {header}"):
        paddle.utils.cpp_extension.load(name="custom_ops", sources=[str(source)], verbose=False)
