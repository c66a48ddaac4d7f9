"""Custom ops: mapped by the strategy, and refused where nobody has made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .. import regression
from ..device import Device, predictor_config


def squaring(paddle: Any, *mapping: str) -> Device:
    """A program that squares, compiled with a mapping of a custom op."""
    x = paddle.static.data("x", [4, 2], "float32")
    strategy = paddle.static.IpuStrategy()
    strategy.set_graph_config(is_training=False, micro_batch_size=4)
    strategy.add_custom_op(*mapping)
    return Device(paddle, [x * x], strategy)


def test_a_strategy_counts_its_custom_ops(paddle: Any, static: Any) -> None:
    """add_custom_op notes the name in Paddle; the name in PopART is the same unless it is given."""
    strategy = static.IpuStrategy()
    assert not strategy.has_custom_ops
    strategy.add_custom_op("custom_one")
    strategy.add_custom_op("custom_two", "Two", domain="other.ops", version=3)

    assert strategy.has_custom_ops
    assert strategy.custom_op_names == ["custom_one", "custom_two"]


def test_an_op_that_nobody_made_is_refused(paddle: Any, static: Any) -> None:
    """Compiling with a mapping to an op that does not exist fails, and the sentence names it."""
    with pytest.raises(RuntimeError, match="custom_op_of_nobody"):
        squaring(paddle, "custom_op_of_nobody", "OfNobody")


def test_a_predictor_refuses_it_too(paddle: Any, static: Any, tmp_path: Path) -> None:
    """set_ipu_custom_info maps ops for predictors."""
    prefix = regression.save_squares(paddle, tmp_path, 4)
    config = predictor_config(paddle, prefix, 1, 4)
    config.set_ipu_custom_info([["custom_op_of_nobody", "OfNobody", "custom.ops", "1"]], {})

    with pytest.raises(RuntimeError, match="custom_op_of_nobody"):
        paddle.inference.create_predictor(config)


@pytest.mark.parametrize("row", [["a", "A", "custom.ops"], ["a", "A", "custom.ops", "1", "more"]])
def test_a_mapping_has_four_words(paddle: Any, row: Any) -> None:
    """A custom op of a predictor has its names in Paddle and PopART, a domain and a version."""
    config = paddle.inference.Config()

    with pytest.raises(ValueError, match="Invalid setting for"):
        config.set_ipu_custom_info([row], {})


def test_mappings_that_are_not_used_change_nothing(paddle: Any, static: Any) -> None:
    """An op of Paddle's that is mapped and not in the program leaves it as it is."""
    (got,) = squaring(paddle, "relu", "Relu").run(regression.samples(4))

    assert got.tolist() == (regression.samples(4).astype(np.float64) ** 2).tolist()


@pytest.mark.parametrize("header", ["popart/op.hpp", "poplar/Graph.hpp"])
def test_sources_against_the_sdk_need_the_sdk(paddle: Any, tmp_path: Path, header: str) -> None:
    """Where the SDK's headers are not installed, building an op against them fails and names the source."""
    if any((Path(folder) / header).is_file() for folder in ("/usr/include", "/usr/local/include")):
        pytest.skip("the SDK's headers are installed")
    source = tmp_path / "leaky_relu.cc"
    source.write_text(f"#include <{header}>\n", encoding="utf-8")

    with pytest.raises(RuntimeError, match=r"leaky_relu\.cc"):
        paddle.utils.cpp_extension.load(name="custom_ops", sources=[str(source)], verbose=False)
