"""A graph is executed as a device would: values where they are made, accumulation, replicas, updates, stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict

import numpy as np
import pytest

from ipu_conformance.interpreter import ExecutionError, execute
from ipu_conformance.ir import Graph, Op, Tensor

SCALAR: Dict[str, Any] = {"dtype": "FLOAT", "shape": ()}
SGD = {"const scaled learning rate": 0.5, "const weight decay scale factor": 1.0}


def tensors(*names: str) -> list:
    """Single numbers."""
    return [Tensor(name, **SCALAR) for name in names]


def regression(*, accumulated: bool = True, reduced: bool = True) -> Graph:
    """y = x w, whose gradient is x: accumulated over turns, reduced over replicas, and taken from w at half."""
    ops = [
        Op("Mul", "product", ("x", "w"), ("y",)),
        Op("Identity", "gradient", ("x",), ("Gradient___w",)),
    ]
    gradient = "Gradient___w"
    if accumulated:
        ops.append(Op("Accumulate", "", ("Accum___w", gradient), ("sum",), {"type": 0}))
        gradient = "sum"
    if reduced:
        type = "ReplicatedAllReduceInplace" if accumulated else "ReplicatedAllReduce"
        ops.append(Op(type, "", (gradient,), ("all",)))
        gradient = "all"
    ops.append(Op("SGD0VarUpdate", "", ("w", gradient), ("UpdatedVar___w",), SGD))
    if accumulated:
        ops.append(Op("AccumulatorZero", "", ("Accum___w",), ("UpdatedVar___Accum___w",)))
    made = [name for op in ops for name in op.outputs]
    held = ["w", "Accum___w"] if accumulated else ["w"]
    return Graph("g", ops, ["x"], ["y", "UpdatedVar___w"], tensors("x", *held, *made), held)


STREAM = np.array([[[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]], [[13.0, 17.0], [19.0, 23.0], [29.0, 31.0]]])
"""Two updates of three turns on two replicas."""


def test_gradients_are_added_up_over_turns_and_replicas() -> None:
    """An update takes half of the sum of all its gradients, and the next one begins with an empty accumulator."""
    outcome = execute(regression(), {"w": np.array(100.0), "x": STREAM})

    first = 100.0 - 0.5 * STREAM[0].sum()
    expected = first - 0.5 * STREAM[1].sum()
    assert [held["w"] for held in outcome.variables] == [expected, expected]
    np.testing.assert_array_equal(outcome.outputs["y"], STREAM * np.array([100.0, first])[:, None, None])


def test_without_a_reduction_replicas_part() -> None:
    """A dump without an all-reduce leaves every replica with its own gradients."""
    outcome = execute(regression(reduced=False), {"w": np.array(100.0), "x": STREAM})

    assert [float(held["w"]) for held in outcome.variables] == [100.0 - 0.5 * STREAM[..., r].sum() for r in (0, 1)]


def test_without_accumulation_every_micro_batch_is_followed_by_an_update() -> None:
    """A dump that accumulates nothing updates after each turn, and the next turn reads what that left."""
    outcome = execute(regression(accumulated=False), {"w": np.array(100.0), "x": STREAM})

    before = 100.0 - 0.5 * np.concatenate([[0.0], STREAM.sum(axis=2).ravel()[:-1].cumsum()])
    np.testing.assert_array_equal(outcome.outputs["y"], STREAM * before.reshape(2, 3, 1))


def pipeline(**changes: Any) -> Graph:
    """Two stages on two IPUs: twice x is copied, and its square is the result."""
    ops = [
        Op("Add", "twice", ("x", "x"), ("t",), {}, 0, 0),
        Op("IpuCopy", "", ("t",), ("t_c1",), {"__sourceIpus": "{0}", "__destIpu": 1}, 0, 0),
        Op("Mul", "square", ("t_c1", "t_c1"), ("y",), {}, 1, 1),
    ]
    ops = [replace(op, **changes.get(op.name or op.type, {})) for op in ops]
    return Graph("g", ops, ["x"], ["y"], tensors("x", "t", "t_c1", "y"))


def test_a_pipeline_computes_what_its_stages_say() -> None:
    """A value passes from stage to stage by its copy."""
    outcome = execute(pipeline(), {"x": np.arange(5.0)})

    np.testing.assert_array_equal(outcome.outputs["y"].ravel(), (2 * np.arange(5.0)) ** 2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"square": {"stage": 0}}, r"Mul 'square' \(IPU 1, stage 0\) reads 't_c1' before it is made or has arrived"),
        ({"square": {"inputs": ("t", "t")}}, r"Mul 'square' \(IPU 1, stage 1\) reads 't', which is on IPU 0"),
        ({"square": {"type": "Cube"}}, r"Cube 'square' \(IPU 1, stage 1\) is not known to the engine oracle"),
        ({"twice": {"type": "MaxPool"}}, r"MaxPool 'twice' \(IPU 0, stage 0\) .*kernel_shape"),
    ],
)
def test_what_cannot_be_executed_is_one_sentence_with_its_place(changes: Any, sentence: str) -> None:
    """An op that is not known, in the wrong stage, or far from what it reads is named with its place."""
    with pytest.raises(ExecutionError, match=sentence):
        execute(pipeline(**changes), {"x": np.arange(5.0)})


def test_types_meet_by_casts_only() -> None:
    """A product of float16 and float32 means nothing without a cast."""
    op = Op("MatMul", "fc", ("x", "w"), ("y",))
    graph = Graph("g", [op], ["x", "w"], ["y"], [Tensor("x", "FLOAT16", (2, 2)), Tensor("w", "FLOAT", (2, 2)),
                                                 Tensor("y", "FLOAT", (2, 2))])  # fmt: skip

    with pytest.raises(ExecutionError, match="MatMul 'fc' has 'x' in FLOAT16 and 'w' in FLOAT: nothing casts them"):
        execute(graph, {"x": np.eye(2), "w": np.eye(2)})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "'x' .* has no value in the dump: give it among the inputs"),
        ({"x": np.zeros((2, 2))}, r"'x' is given with shape \(2, 2\)"),
        ({"x": np.zeros(3), "z": np.zeros(3)}, "'z' is given, and graph 'g' has no such input"),
        ({"x": np.zeros((0, 1, 1))}, "there must be one of each"),
    ],
)
def test_inputs_are_checked_before_anything_runs(given: Any, sentence: str) -> None:
    """What is missing, unknown or of the wrong shape is one sentence."""
    with pytest.raises(ExecutionError, match=sentence):
        execute(pipeline(), given)


def test_an_engine_has_a_name() -> None:
    """Another engine than those that there are is refused."""
    with pytest.raises(ExecutionError, match="engine 'poplar' is unknown: choose one of oracle, onnxruntime"):
        execute(pipeline(), {"x": np.arange(5.0)}, engine="poplar")


def test_a_running_mean_counts_what_it_has_taken() -> None:
    """An accumulation of PopART's type Mean weighs the k-th gradient by one k-th."""
    graph = regression(reduced=False)
    ops = [replace(op, attributes={"type": 8}) if op.type == "Accumulate" else op for op in graph.ops]

    two_turns = STREAM[:, :2, :1]  # means of two are exact

    outcome = execute(replace(graph, ops=tuple(ops)), {"w": np.array(100.0), "x": two_turns})

    assert float(outcome.variables[0]["w"]) == 100.0 - 0.5 * (two_turns[0].mean() + two_turns[1].mean())


def test_rates_are_shares_of_the_one_in_the_dump() -> None:
    """An update at half the rate takes half as much, and what is left of a decaying weight follows the rate."""
    plain = execute(regression(), {"w": np.array(100.0), "x": STREAM}, rates=[0.5, 1.0])
    decaying = {**SGD, "const weight decay scale factor": 0.75}
    ops = [replace(op, attributes=decaying) if op.type == "SGD0VarUpdate" else op for op in regression().ops]
    decayed = execute(replace(regression(), ops=tuple(ops)), {"w": np.array(100.0), "x": STREAM}, rates=[0.5, 1.0])

    sums = [STREAM[update].sum() for update in (0, 1)]
    assert float(plain.variables[0]["w"]) == 100.0 - 0.25 * sums[0] - 0.5 * sums[1]
    assert float(decayed.variables[0]["w"]) == 0.75 * (0.875 * 100.0 - 0.25 * sums[0]) - 0.5 * sums[1]


def test_there_is_a_rate_for_each_update() -> None:
    """Fewer rates than updates are refused."""
    with pytest.raises(ExecutionError, match="3 learning rates are given for 2 updates: give one for each"):
        execute(regression(), {"w": np.array(100.0), "x": STREAM}, rates=[1.0, 0.5, 0.25])


@pytest.mark.parametrize("type", ["Dropout", "DropoutGrad"])
def test_what_is_drawn_at_random_is_refused(type: str) -> None:
    """A dump does not hold masks; without anything to drop there are none."""
    graph = Graph("g", [Op(type, "drop", ("x",), ("y",), {"ratio": 0.25})], ["x"], ["y"], tensors("x", "y"))
    kept = replace(graph, ops=tuple(replace(op, attributes={"ratio": 0.0}) for op in graph.ops))

    with pytest.raises(ExecutionError, match=f"{type} 'drop' drops values at random and the dump does not hold its"):
        execute(graph, {"x": np.arange(5.0)})
    np.testing.assert_array_equal(execute(kept, {"x": np.arange(5.0)}).outputs["y"].ravel(), np.arange(5.0))


def test_a_dropout_keeps_what_it_is_given() -> None:
    """The mask of each update is given under the name of the result; what is kept is scaled, backwards, too."""
    ops = [
        Op("Dropout", "drop", ("x",), ("y",), {"ratio": 0.75}),
        Op("DropoutGrad", "drop", ("Gradient___y",), ("Gradient___x",), {"ratio": 0.75}),
    ]
    names = ("x", "y", "Gradient___y", "Gradient___x")
    graph = Graph(
        "g", ops, ["x", "Gradient___y"], ["y", "Gradient___x"], [Tensor(name, "FLOAT", (5,)) for name in names]
    )
    masks = np.array([[1, 0, 0, 1, 0], [0, 1, 1, 0, 0], [0, 0, 1, 0, 1]])
    fed = {"x": np.arange(15.0).reshape(3, 5), "Gradient___y": np.ones((3, 5)), "y:kept": masks}

    outputs = execute(graph, fed).outputs

    np.testing.assert_array_equal(outputs["y"].reshape(3, 5), 4 * masks * fed["x"])
    np.testing.assert_array_equal(outputs["Gradient___x"].reshape(3, 5), 4 * masks)
