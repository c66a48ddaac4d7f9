"""Handles and files of predictors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from paddle.base import core

from ipu_conformance.emulator.paddle.api.inference import Handle, PredictorPool
from ipu_conformance.emulator.paddle.compile import inference_model
from ipu_conformance.emulator.paddle.errors import InvalidArgument, NotFound, PreconditionNotMet, Unimplemented

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def handle(*, is_input: bool = True) -> Handle:
    """A handle of a variable of shape [-1, 3]."""
    variable = SimpleNamespace(dtype=core.VarDesc.VarType.FP32, shape=(-1, 3))
    return Handle("x", variable, is_input=is_input)


def test_a_handle_is_empty_at_first() -> None:
    """It has the shape and the type of its variable, and nothing to copy."""
    made = handle()

    assert (made.name(), made.shape(), made.type()) == ("x", [-1, 3], core.PaddleDType.FLOAT32)
    with pytest.raises(PreconditionNotMet, match="x holds nothing yet"):
        made.copy_to_cpu()


@pytest.mark.parametrize("kind", ["array", "tensor", "LoDTensor"])
def test_what_is_put_in_is_copied(kind: str) -> None:
    """Arrays and tensors are copied in, and copied out again."""
    made = handle()
    if kind == "array":
        made.copy_from_cpu(X)
    elif kind == "tensor":
        made.share_external_data(paddle.to_tensor(X))
    else:
        tensor = core.LoDTensor()
        tensor.set(X, core.CPUPlace())
        made.share_external_data(tensor)
    first = made.copy_to_cpu()
    first[:] = 0

    assert made.copy_to_cpu().tolist() == X.tolist()
    assert made.shape() == [2, 3]


def test_a_handle_may_be_reshaped_beforehand() -> None:
    """reshape says the shape of what is copied next, as programs for other devices do."""
    made = handle()
    made.reshape([4, 3])

    assert made.shape() == [4, 3]


@pytest.mark.parametrize("given", [[1.0, 2.0], 3.0, "text"])
def test_only_arrays_are_copied(given: Any) -> None:
    """Anything else is a TypeError, in Paddle's words."""
    with pytest.raises(TypeError, match="In copy_from_cpu"):
        handle().copy_from_cpu(given)
    with pytest.raises(TypeError, match="In share_external_data"):
        handle().share_external_data(given)


def test_outputs_are_not_written() -> None:
    """Copying into an output is refused."""
    with pytest.raises(PreconditionNotMet, match="x is an output"):
        handle(is_input=False).copy_from_cpu(X)


def test_sequences_of_unequal_lengths_are_refused() -> None:
    """The device has no levels of detail; setting none is allowed."""
    made = handle()
    made.set_lod([])

    assert made.lod() == []
    with pytest.raises(Unimplemented, match="levels of detail"):
        made.set_lod([[0, 2]])


def test_a_fresh_handle_shares_nothing() -> None:
    """A clone's handle begins empty, and leaves the first one as it is."""
    first = handle()
    first.copy_from_cpu(X)
    second = first.fresh()
    second.copy_from_cpu(X + 1)

    assert first.copy_to_cpu().tolist() == X.tolist()


@pytest.mark.parametrize("count", [0, 2])
def test_a_folder_holds_one_model(tmp_path: Path, count: int) -> None:
    """A configuration of a folder finds its only model; none or several are refused."""
    for number in range(count):
        (tmp_path / f"{number}.pdmodel").write_bytes(b"")

    with pytest.raises(NotFound, match=rf"holds {count} files \*\.pdmodel where one is expected"):
        inference_model.files(core.AnalysisConfig(str(tmp_path)))


def test_weights_of_a_folder_lie_beside_the_model(tmp_path: Path) -> None:
    """They have the model's name; a model without weights has no such file."""
    (tmp_path / "net.pdmodel").write_bytes(b"")
    config = core.AnalysisConfig(str(tmp_path))
    alone = inference_model.files(config)
    (tmp_path / "net.pdiparams").write_bytes(b"")

    assert alone == (tmp_path / "net.pdmodel", None)
    assert inference_model.files(config) == (tmp_path / "net.pdmodel", tmp_path / "net.pdiparams")


def test_a_pool_has_predictors() -> None:
    """A pool of none is refused."""
    with pytest.raises(InvalidArgument, match="a pool of 0 predictors"):
        PredictorPool(core.AnalysisConfig(), 0)
