"""Arguments that operations cannot use: refused at once, with the errors that the vendor's operations raise."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Tuple

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..on_device import as_model, infer

WRONG: Dict[str, Tuple[Any, Callable[[Any, Any], Any]]] = {
    "nop": ("Error", lambda poptorch, x: poptorch.nop(3)),
    "ipu_print_tensor": ("Error", lambda poptorch, x: poptorch.ipu_print_tensor(3)),
    "set_available_memory": ("Error", lambda poptorch, x: poptorch.set_available_memory(3, 0.5)),
    "set_overlap_for_input": (
        "Error", lambda poptorch, x: poptorch.set_overlap_for_input(3, poptorch.OverlapMode.NoOverlap)),
    "set_overlap_for_output": (
        "Error", lambda poptorch, x: poptorch.set_overlap_for_output([x, 3], poptorch.OverlapMode.NoOverlap)),
    "dynamic_slice": ("Error", lambda poptorch, x: poptorch.dynamic_slice(3, 0, x, 1, 1)),
    "dynamic_update": ("Error", lambda poptorch, x: poptorch.dynamic_update(x, 3, 0, x, 1)),
    "ctc_beam_search_decoder": ("Error", lambda poptorch, x: poptorch.ctc_beam_search_decoder(x, 3)),
    "recomputationCheckpoint": (ValueError, lambda poptorch, x: poptorch.recomputationCheckpoint(x, 3)),
    "for_loop": (ValueError, lambda poptorch, x: poptorch.for_loop(2, lambda value: value, (x,))),
    "for_loop-item": (ValueError, lambda poptorch, x: poptorch.for_loop(2, lambda value: value, [3])),
    "cond": (ValueError, lambda poptorch, x: poptorch.cond(x[0, :1] > 0, lambda a: a, x, lambda a: a, [x])),
    "custom_op": (
        ValueError, lambda poptorch, x: poptorch.custom_op([x], "Cube", "own", 1, [x], attributes={"a": [1, "b"]})),
    "custom_op-name": (
        ValueError, lambda poptorch, x: poptorch.custom_op([x], "Cube", "own", 1, [x], attributes={3: 1.0})),
    "serializedMatMul": (AssertionError, lambda poptorch, x: poptorch.serializedMatMul(x, x, "ReducingDim", 1)),
    "NameScope": (AssertionError, lambda poptorch, x: poptorch.NameScope(3)),
    "enableConvDithering": (ValueError, lambda poptorch, x: poptorch.MultiConv().enableConvDithering(3)),
    "planType": (AssertionError, lambda poptorch, x: poptorch.MultiConv().planType("Parallel")),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_of_the_wrong_kind_is_refused(poptorch: Any, torch: Any, name: str) -> None:
    """Each operation raises the error that its documentation or source names."""
    error, call = WRONG[name]

    with check.raises(poptorch.Error if error == "Error" else error, what=f"{name} with a wrong argument"):
        call(poptorch, torch.ones(2, 2))


def test_checkpoints_keep_their_container(poptorch: Any, torch: Any) -> None:
    """A list comes back as a list, several tensors as a tuple, one as a tensor."""
    x, kinds = torch.ones(2), []

    def forward(model: Any, x: Any) -> Any:
        kept = [poptorch.recomputationCheckpoint(*given) for given in (([x, x],), ((x, x),), (x, x), (x,))]
        kinds.extend(list if type(each) is list else tuple if type(each) is tuple else "tensor" for each in kept)
        return kept[-1] * 3

    assert_same(infer(poptorch, forward, x), x * 3, "the output")
    check.equal(actual=kinds, expected=[list, tuple, tuple, "tensor"], what="the list of containers")


@pytest.mark.emulator
def test_attributes_may_be_dictionaries(poptorch: Any, torch: Any) -> None:
    """What tells the outliner about a layer is a dictionary of its own."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.Attribute(__outline={"layer": "embedding"}):
            return x * 2

    x = torch.tensor([[3.0, -5.0]])
    inference = poptorch.inferenceModel(as_model(forward))

    assert_same(inference(x), x * 2, "the output")
    (product,) = [each for each in json.loads(inference._debugGetPopartIR())["maingraph"] if each["type"] == "Mul"]
    carried = json.loads(product["attributes"].get("__outline", "null"))
    check.equal(actual=carried, expected={"layer": "embedding"}, what="the dictionary that the product carries")


@pytest.mark.parametrize(("mode", "rank"), [("linear", 1), ("trilinear", 3)])
def test_upsampling_by_other_modes_is_refused(poptorch: Any, torch: Any, mode: str, rank: int) -> None:
    """Only nearest, bilinear and bicubic are supported."""
    layer = torch.nn.Upsample(scale_factor=2, mode=mode)

    with check.raises(poptorch.Error, match=mode, what=f"upsampling in the mode {mode}"):
        poptorch.inferenceModel(layer)(torch.ones(1, 2, *[4] * rank))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_upsampling_repeats_the_nearest(poptorch: Any, torch: Any, rank: int) -> None:
    """Every value appears three times along each dimension."""
    x = torch.arange(2.0**rank).reshape(1, 1, *[2] * rank)
    expected = x
    for dimension in range(2, rank + 2):
        expected = expected.repeat_interleave(3, dimension)

    assert_same(poptorch.inferenceModel(torch.nn.Upsample(scale_factor=3))(x), expected, "the upsampled values")
