"""state_dict and load_state_dict of poptorch.optim: the device's state is saved and restored with the optimizer."""

from __future__ import annotations

import copy
import io
from typing import Any, Dict, Mapping, Sequence

import pytest

from ipu_conformance import check
from ipu_conformance.oracle.regression import START

from ..lazily import poptorch, torch
from .regression import Problem, assert_same_weights, make

OPTIMIZERS: Mapping[str, Dict[str, Any]] = {
    "SGD": {"momentum": 0.9},
    "Adam": {},
    "AdamW": {},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "LAMB": {},
}


def problem_of(name: str, **more: Any) -> Problem:
    """The problem with an optimizer of poptorch.optim."""
    return Problem(make(name, **OPTIMIZERS[name]), **more)


def saved(problem: Problem) -> Any:
    """The model's and the optimizer's state, as a checkpoint in a file would give them back."""
    file = io.BytesIO()
    torch.save({"model": problem.model.state_dict(), "optimizer": problem.optimizer.state_dict()}, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_before_compiling_there_is_no_state(name: str) -> None:
    """ipu_state and ipu_param are in the state_dict from the start, None until the model is compiled."""
    state = problem_of(name).optimizer.state_dict()

    for key in ("ipu_state", "ipu_param"):
        check.equal(actual=state[key], expected=None, what=f"{key} before compiling")
    check.holds({"state", "param_groups"} <= set(state), f"the state_dict holds only {sorted(state)}.")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_after_a_call_there_is_a_state_for_every_weight(name: str) -> None:
    """ipu_state holds tensors shaped like each weight, none of them zero, and ipu_param holds numbers."""
    problem = problem_of(name)
    problem.call()
    state = problem.optimizer.state_dict()

    for weight, value in START.items():
        states = {key: tensor for key, tensor in state["ipu_state"].items() if key.endswith(weight)}
        shaped = {key: tensor for key, tensor in states.items() if tuple(tensor.shape) == value.shape}
        check.holds(shaped, f"{weight} has no state of its shape among {sorted(state['ipu_state'])}.")
        for key, tensor in shaped.items():
            check.holds((tensor != 0).any(), f"{key} is zero after a call.")
    check.holds(state["ipu_param"], f"ipu_param is {state['ipu_param']} after a call.")


INTERRUPTIONS: Mapping[str, Sequence[str]] = {
    "sent": ("copyWeightsToHost", "copyWeightsToDevice"),
    "detached": ("detachFromDevice",),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_sending_weights_keeps_the_state(name: str, interruption: str) -> None:
    """After weights were sent or the device was left, the state can still be read, and the next updates go on."""
    whole, parted = (problem_of(name, replicas=3, options=poptorch.Options().autoRoundNumIPUs(True)) for _ in range(2))
    whole.call(4)
    parted.call(2)
    before = parted.optimizer.state_dict()["ipu_state"]
    for method in INTERRUPTIONS[interruption]:
        getattr(parted.executor, method)()
    after = parted.optimizer.state_dict()["ipu_state"]
    parted.call(2)

    assert_same_weights(after, before)
    assert_same_weights(parted.weights(), whole.weights())


@pytest.mark.parametrize(("read", "load"), [("get_state_dict", "set_state_dict"), ("state_dict", "load_state_dict")])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_the_device_can_be_moved_alone(name: str, read: str, load: str) -> None:
    """A state that was read goes into an optimizer that gives it on before it is compiled; its numbers are tensors."""
    problem, other = problem_of(name), problem_of(name)
    before = problem.optimizer.has_state()
    problem.call()
    problem.optimizer.state_dict()
    taken = getattr(problem.optimizer, read)()
    getattr(other.optimizer, load)(taken)
    moved = getattr(other.optimizer, read)()

    check.equal(actual=(before, problem.optimizer.has_state()), expected=(False, True), what="has_state")
    expected = ["ipu_param", "ipu_state", "param_groups", "state"]
    check.equal(actual=sorted(taken), expected=expected, what=f"what {read} holds")
    for key, number in taken["ipu_param"].items():
        check.instance(actual=number, expected=torch.Tensor, what=key)
    for part in ("ipu_state", "ipu_param"):
        assert_same_weights(moved[part], taken[part])


@pytest.mark.parametrize("load", ["load_state_dict", "set_state_dict"])
def test_a_state_of_the_host_alone_is_refused(load: str) -> None:
    """An optimizer of PopTorch takes the state of a device, not one of torch's optimizers."""
    weights = [torch.nn.Parameter(torch.ones(3))]
    of_torch = torch.optim.SGD(weights, lr=0.5).state_dict()

    with check.raises(RuntimeError, what=f"{load} of the state of torch.optim.SGD"):
        getattr(poptorch.optim.SGD(weights, lr=0.5), load)(of_torch)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_follows_every_call(name: str) -> None:
    """state_dict gives the newest state, which differs from call to call; one that was read before does not change."""
    problem = problem_of(name)
    problem.call()
    first = problem.optimizer.state_dict()["ipu_state"]
    kept = copy.deepcopy(first)
    problem.call()
    second = problem.optimizer.state_dict()["ipu_state"]

    check.equal(actual=set(second), expected=set(first), what="the set of names after the second call")
    check.holds(any((first[key] != second[key]).any() for key in first), "no state changes in the second call.")
    assert_same_weights(first, kept, because="a state that was read is a copy")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_copy_of_an_optimizer_in_use_has_its_state(name: str) -> None:
    """A deep copy holds the device's state of its moment; the optimizer goes on by itself, and so may a copy."""
    problem, other = problem_of(name), problem_of(name)
    problem.call(2)
    state = problem.optimizer.state_dict()["ipu_state"]
    copied = copy.deepcopy(problem.optimizer)
    problem.call()

    assert_same_weights(copied.state_dict()["ipu_state"] or {}, state, because="a copy has the state of its moment")
    other.optimizer.load_state_dict(copied.state_dict())
    other.model.load_state_dict(problem.model.state_dict())
    other.calls = problem.calls = 3
    problem.optimizer.load_state_dict(copied.state_dict())
    problem.call()
    other.call()
    assert_same_weights(other.weights(), problem.weights(), because="both go on from the state of the copy")


def resumed(whole: Problem, calls: int, name: str, *, state: bool = True, **more: Any) -> Problem:
    """A problem that goes on from a checkpoint of ``whole`` after two calls; ``whole`` goes on without a break."""
    whole.call(2)
    checkpoint = saved(whole)
    whole.call(calls)
    problem = problem_of(name, **more)
    problem.model.load_state_dict(checkpoint["model"])
    if state:
        problem.optimizer.load_state_dict(checkpoint["optimizer"])
    problem.calls = 2
    problem.call(calls)
    return problem


SPREAD: Mapping[str, Dict[str, Any]] = {
    "single": {},
    "replicated": {"replicas": 2},
    "pipelined": {"accumulation": 3, "pipelined": True},
}


@pytest.mark.parametrize(
    ("name", "spread"),
    [*(pytest.param(name, "single", id=name) for name in OPTIMIZERS), ("Adam", "replicated"), ("Adam", "pipelined")],
)
def test_a_restored_run_has_the_bits_of_one_without_a_break(name: str, spread: str) -> None:
    """A checkpoint after two calls and a new model give the weights of one run, on replicas and stages too."""
    whole = problem_of(name, **SPREAD[spread])
    problem = resumed(whole, 1, name, **SPREAD[spread])

    # The host reads the weights of one replica; what the others have learned shows in the outputs of the next call.
    outputs, expected = (each.call()[0] for each in (problem, whole))
    check.identical(actual=outputs, expected=expected, what="the outputs of all replicas")
    assert_same_weights(problem.weights(), whole.weights())


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_state_loaded_on_the_device_counts_from_the_next_call(name: str) -> None:
    """load_state_dict on a running model replaces the state there: going back and repeating gives the same weights."""
    problem = problem_of(name)
    problem.call()
    checkpoint = saved(problem)
    problem.call(2)
    first = problem.weights()
    problem.executor.load_state_dict(checkpoint["model"])
    problem.optimizer.load_state_dict(checkpoint["optimizer"])
    problem.calls = 1
    problem.call(2)

    assert_same_weights(problem.weights(), first)


def test_without_its_state_a_restored_run_differs() -> None:
    """Weights alone do not resume a run with momentum: the state matters."""
    whole = problem_of("SGD")
    weights = resumed(whole, 2, "SGD", state=False).weights()

    differing = [key for key, value in whole.weights().items() if (weights[key] != value).any()]
    check.holds(differing, "a run that is restored without its momentum has the weights of one without a break.")


def test_missing_values_are_ignored() -> None:
    """State of weights that a checkpoint lacks stays as it is."""
    problem = problem_of("SGD")
    problem.call(2)
    state = problem.optimizer.state_dict()
    lost = [key for key in state["ipu_state"] if key.endswith("layer.bias")]
    check.holds(lost, f"the bias has no state among {sorted(state['ipu_state'])}.")
    changed = {key: value * 0 for key, value in state["ipu_state"].items() if key not in lost}
    problem.optimizer.load_state_dict({**state, "ipu_state": changed})

    expected = {**changed, **{key: state["ipu_state"][key] for key in lost}}
    assert_same_weights(problem.optimizer.state_dict()["ipu_state"], expected)


def test_hyper_parameters_are_restored_too() -> None:
    """load_state_dict restores what torch's does: the learning rate of each group."""
    first, second = problem_of("SGD"), problem_of("SGD")
    first.optimizer.param_groups[0]["lr"] = 0.03
    second.optimizer.load_state_dict(first.optimizer.state_dict())

    check.equal(actual=second.optimizer.param_groups[0]["lr"], expected=0.03, what="the restored learning rate")
