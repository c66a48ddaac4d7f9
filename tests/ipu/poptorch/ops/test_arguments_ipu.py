"""What operations cannot use: refused with the errors that the vendor's operations raise, at once or on compiling."""

from __future__ import annotations

import builtins
import json
from typing import Any, Dict, Tuple

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import poptorch, torch
from ..on_device import as_model, gradient, infer

Refused = Dict[str, Tuple[str, str]]
"""The names of the errors that a call may raise, and what they say."""
NO_DICTIONARY = "AttributeError ValueError TypeError Error AssertionError"
"""PopTorch takes the items of what should be a dictionary, at the latest when the scope is entered."""
AT_ONCE: Refused = {
    "poptorch.nop(3)": ("Error", ""),
    "poptorch.ipu_print_tensor(3)": ("Error", ""),
    "poptorch.set_available_memory(3, 0.5)": ("Error", ""),
    "poptorch.set_overlap_for_input(3, poptorch.OverlapMode.NoOverlap)": ("Error", ""),
    "poptorch.set_overlap_for_output([x, 3], poptorch.OverlapMode.NoOverlap)": ("Error", ""),
    "poptorch.set_overlap_for_input(x, 'no_overlap')": ("Error AssertionError", ""),
    "poptorch.set_overlap_for_output(x, 'no_overlap')": ("Error AssertionError", ""),
    "poptorch.dynamic_slice(3, 0, x, 1, 1)": ("Error", ""),
    "poptorch.dynamic_update(x, 3, 0, x, 1)": ("Error", ""),
    "poptorch.ctc_beam_search_decoder(x, 3)": ("Error", ""),
    "poptorch.ctc_beam_search_decoder(x.reshape(4, 2, 7), at)": ("Error", "[Ll]ength"),
    "poptorch.recomputationCheckpoint(x, 3)": ("ValueError", ""),
    "poptorch.for_loop(2, lambda value: value, (x,))": ("ValueError", ""),
    "poptorch.for_loop(2, lambda value: value, [3])": ("ValueError", ""),
    "poptorch.cond(at > 0, lambda a: a, x, lambda a: a, [x])": ("ValueError", ""),
    "poptorch.custom_op([x], 'Cube', 'own', 1, [x], attributes={'a': [1, 'b']})": ("ValueError", ""),
    "poptorch.custom_op([x], 'Cube', 'own', 1, [x], attributes={3: 1.0})": ("ValueError", ""),
    "poptorch.serializedMatMul(x, x, 'ReducingDim', 1)": ("AssertionError", ""),
    "poptorch.identity_loss(x, 'Sum')": ("AssertionError", "reduction"),
    "poptorch.identity_loss(x, 'median')": ("AssertionError", "reduction"),
    "poptorch.identity_loss(x, 3)": ("AssertionError", "reduction"),
    "poptorch.identity_loss(x, None)": ("AssertionError", "reduction"),
    "poptorch.CPU(3, 'name')": ("Error AssertionError", ""),
    "poptorch.CPU(abs, 5)": ("Error AssertionError", ""),
    "poptorch.CPU(abs, '')": ("Error AssertionError", ""),
    "poptorch.NameScope(3)": ("AssertionError", ""),
    "poptorch.NameScope(None)": ("AssertionError", ""),
    "poptorch.NameScope(b'scope')": ("AssertionError", ""),
    "poptorch.Attribute(flavour=object()).__enter__()": (NO_DICTIONARY, ""),
    "poptorch.Attribute(flavour='sweet').__enter__()": (NO_DICTIONARY, ""),
    "poptorch.Attribute(flavour=[1, 'a']).__enter__()": (NO_DICTIONARY, ""),
    "poptorch.MultiConv().availableMemoryProportions(1)": ("AssertionError ValueError", ""),
    "poptorch.MultiConv().availableMemoryProportions([0.5, 'half'])": ("AssertionError ValueError", ""),
    "poptorch.MultiConv().partialsTypes(torch.int32)": ("AssertionError ValueError", ""),
    "poptorch.MultiConv().planType('Parallel')": ("AssertionError", ""),
    "poptorch.MultiConv().perConvReservedTiles(1.5)": ("AssertionError ValueError", ""),
    "poptorch.MultiConv().cycleBackOff('0.1')": ("AssertionError ValueError", ""),
    "poptorch.MultiConv().cycleBackOff(1)": ("AssertionError ValueError", ""),
    "poptorch.MultiConv().enableConvDithering(3)": ("ValueError", ""),
    "poptorch.MultiConv().enableConvDithering(1)": ("AssertionError ValueError", ""),
}
ON_COMPILING: Refused = {
    "poptorch.ipu_print_tensor(x, float_format='hexadecimal')": ("Error", "hexadecimal"),
    "poptorch.set_available_memory(x * 2, -0.5)": ("Error ValueError AssertionError", ""),
    "poptorch.set_available_memory(x * 2, 1.5)": ("Error ValueError AssertionError", ""),
    "poptorch.set_available_memory(x * 2, 'half')": ("Error ValueError AssertionError", ""),
    "poptorch.dynamic_slice(x, 1, at * 0.5, 2, 1)": ("Error", "integer"),
    "poptorch.dynamic_slice(x, 1, at, 0, 1)": ("Error", "dynamic_slice"),
    "poptorch.dynamic_slice(x, 1, at, 8, 1)": ("Error", "dynamic_slice"),
    "poptorch.dynamic_slice(x, 1, at, 2, 0)": ("Error", "dynamic_slice"),
    "poptorch.dynamic_slice(x, 2, at, 2, 1)": ("Error", "dynamic_slice"),
    "poptorch.dynamic_slice(x, -3, at, 2, 1)": ("Error", "dynamic_slice"),
    "poptorch.dynamic_update(x, x[:, :3], 1, at, 2)": ("Error", "dynamic_update"),
    "poptorch.dynamic_update(x, x[:, :2].int(), 1, at, 2)": ("Error", "dynamic_update"),
    "x[:, at:]": ("Error", "constant size"),
    "x[:, :at]": ("Error", "constant size"),
    "x[:, at : 2 * at]": ("Error", "constant size"),
    "x[:, 1 : at + 1]": ("Error", "constant size"),
    "poptorch.serializedMatMul(x[None], x.t()[None], poptorch.MatMulSerializationMode.InputChannels, 3)": (
        "Error",
        "factor",
    ),
    "poptorch.serializedMatMul(x[None], x.t()[None], poptorch.MatMulSerializationMode.ReducingDim, 5)": (
        "Error",
        "factor",
    ),
    "poptorch.serializedMatMul(x[None], x.t()[None], poptorch.MatMulSerializationMode.OutputChannels, 0)": (
        "Error",
        "factor",
    ),
    "poptorch.fps(x, [0, 3], 0.5)": ("Error", "fps"),
    "poptorch.fps(x, [1, 8], 0.5)": ("Error", "fps"),
    "poptorch.fps(x, [8], 0.5)": ("Error", "fps"),
    "poptorch.fps(x, [0, 8], 0.0)": ("Error", "fps"),
    "poptorch.fps(x, [0, 8], 1.5)": ("Error", "fps"),
    "poptorch.nearest(x, x, [0, 0, 0, 0, 1, 1, 1, 1])": ("Error", "nearest"),
    "poptorch.for_loop(1.5, lambda a: a, [x])": ("Error ValueError", "count"),
    "poptorch.for_loop('3', lambda a: a, [x])": ("Error ValueError", "count"),
    "poptorch.for_loop(None, lambda a: a, [x])": ("Error ValueError", "count"),
    "poptorch.for_loop(-1, lambda a: a, [x])": ("Error ValueError", "count"),
    "poptorch.for_loop(2, lambda *a: list(a), x)": ("Error ValueError", "inputs"),
    "poptorch.for_loop(2, lambda *a: list(a), (x,))": ("Error ValueError", "inputs"),
    "poptorch.for_loop(2, lambda *a: list(a), [x, 3])": ("Error ValueError", "inputs"),
    "poptorch.for_loop(2, lambda a: a[:, :2], [x])": ("Error", "for_loop"),
    "poptorch.for_loop(2, lambda a: a.half(), [x])": ("Error", "for_loop"),
    "poptorch.for_loop(2, lambda a: [a, a], [x])": ("Error", "for_loop"),
    "poptorch.for_loop(2, lambda a: None, [x])": ("Error", "for_loop"),
    "poptorch.cond(at > 0, lambda a: a, [x], lambda a: a[:, :2], [x])": ("Error", "cond"),
    "poptorch.cond(at > 0, lambda a: a, [x], lambda a: a.half(), [x])": ("Error", "cond"),
    "poptorch.cond(at > 0, lambda a: a, [x], lambda a: [a, a], [x])": ("Error", "cond"),
    "poptorch.cond(x > 0, lambda a: a, [x], lambda a: a, [x])": ("Error ValueError", "condition"),
    "poptorch.CPU(lambda a: 3, 'wrong-result')(x)": ("Error", "wrong-result"),
    "torch.nn.Upsample(scale_factor=2, mode='linear')(x[None])": ("Error", "linear"),
    "torch.nn.Upsample(scale_factor=2, mode='trilinear')(x[None, None, None])": ("Error", "trilinear"),
    "torch.nn.Upsample(scale_factor=2, mode='nearest-exact')(x[None, None])": ("Error", "nearest-exact"),
}
ON_THE_EMULATOR: Refused = {
    "poptorch.custom_op([x], 'Cube', 'my.domain', 1, [x])[0]": ("Error", r"my\.domain\.Cube"),
    "poptorch.set_overlap_for_input(x * 3, poptorch.OverlapMode.OverlapAccumulationLoop) + 1": ("Error", "input"),
    "poptorch.set_overlap_for_output(x * 3, poptorch.OverlapMode.OverlapAccumulationLoop) + 1": ("Error", "output"),
    "torch.bincount(at)": ("Error", "minlength"),
}
IN_TRAINING = {
    "x * weight": ("none", "loss"),
    "poptorch.CPU(lambda a: a * 3, 'training')(x) * weight": ("sum", "CPU"),
    "poptorch.for_loop(2, lambda a: a * weight, [x])[0]": ("sum", "for_loop"),
    "poptorch.cond(x[0, :1] > 0, lambda a: a * weight, [x], lambda a: a, [x])[0]": ("sum", "cond"),
}
"""What is marked as the loss, with which reduction, and what the error says."""


def _value(text: str, **tensors: Any) -> Any:
    return eval(text, {"poptorch": poptorch, "torch": torch, **tensors})


def _errors(names: str) -> Any:
    return tuple(getattr(builtins, name, None) or getattr(poptorch, name) for name in names.split())


@pytest.mark.parametrize("text", AT_ONCE)
def test_an_argument_of_the_wrong_kind_is_refused(text: str) -> None:
    """Each operation raises the error that its documentation or source names."""
    errors, match = AT_ONCE[text]

    with check.raises(_errors(errors), match=match, what=text):
        _value(text, x=torch.ones(8, 7), at=torch.tensor([2]))


@pytest.mark.parametrize(
    "text", [*ON_COMPILING, *(pytest.param(text, marks=pytest.mark.emulator) for text in ON_THE_EMULATOR)]
)
def test_a_model_that_cannot_be_compiled_is_refused(text: str) -> None:
    """What does not fit its operands, or must be known before the model runs, is an error on compiling."""
    errors, match = {**ON_COMPILING, **ON_THE_EMULATOR}[text]

    with check.raises(_errors(errors), match=match, what=text):
        x, at = torch.arange(56.0).reshape(8, 7), torch.tensor([2])
        infer(poptorch, lambda model, x, at: _value(text, x=x, at=at), x, at)


@pytest.mark.parametrize("text", IN_TRAINING)
def test_what_does_not_train_is_refused(text: str) -> None:
    """The loss is a single value, and loops, conditions and calls of the host are for inference."""
    reduction, match = IN_TRAINING[text]

    def loss(model: Any, x: Any) -> Any:
        return poptorch.identity_loss(_value(text, x=x, weight=model.weight), reduction)

    with check.raises(poptorch.Error, match=match, what=f"training by {text}"):
        gradient(poptorch, loss, torch.ones(7), torch.ones(8, 7))


def test_checkpoints_keep_their_container() -> None:
    """A list comes back as a list, several tensors as a tuple, one as a tensor, each in its order."""
    kinds = []

    def forward(model: Any, x: Any) -> Any:
        given = (([x, x * 2],), ((x, x * 2),), (x, x * 2), (x,))
        kept = [poptorch.recomputationCheckpoint(*each) for each in given]
        kinds.extend(type(each) if isinstance(each, (list, tuple)) else "tensor" for each in kept)
        return torch.cat([tensor for each in kept[:3] for tensor in each]), kept[3]

    x = torch.tensor([3.0, -5.0])
    several, one = infer(poptorch, forward, x)
    assert_same(several, torch.cat([x, x * 2] * 3), "the tensors of containers")
    assert_same(one, x, "the tensor alone")
    check.equal(actual=kinds, expected=[list, tuple, tuple, "tensor"], what="the list of containers")


@pytest.mark.emulator
def test_attributes_may_be_dictionaries() -> None:
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


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_upsampling_repeats_the_nearest(rank: int) -> None:
    """Every value appears three times along each dimension."""
    x = torch.arange(2.0**rank).reshape(1, 1, *[2] * rank)
    expected = x
    for dimension in range(2, rank + 2):
        expected = expected.repeat_interleave(3, dimension)

    assert_same(poptorch.inferenceModel(torch.nn.Upsample(scale_factor=3))(x), expected, "the upsampled values")
