"""What a stage that is recomputed builds again, and what it takes from its forward pass."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from ipu_conformance.emulator.tensorflow.run.recomputation import RecomputationError, Slot


def kinds(graph: Any) -> Dict[str, int]:
    """How many operations of each kind a graph has."""
    made = [operation.type for operation in graph.get_operations()]
    return {kind: made.count(kind) for kind in made}


def test_what_has_a_state_is_built_once(tf: Any) -> None:
    """Random numbers are drawn and variables are written once; a weight is read again, a state is not."""
    weight, state = tf.Variable(2.0), tf.Variable(1.0, trainable=False)

    def stage() -> Any:
        before = state.read_value()
        state.assign_add(1.0)
        return tf.random.uniform([]) * weight * before

    slot, graphs = Slot(), []

    @tf.function(autograph=False)
    def twice() -> Any:
        graphs.append(tf.compat.v1.get_default_graph())
        with slot.forward():
            first = stage()
        with slot.again():
            return first, stage()

    first, again = twice()
    counts = kinds(graphs[-1])

    assert float(first) == float(again)
    assert float(state) == 2.0
    assert (counts["RandomUniform"], counts["AssignAddVariableOp"], counts["ReadVariableOp"]) == (1, 1, 3)
    assert not slot.whole


def test_a_state_inside_of_an_operation_keeps_the_stage(tf: Any) -> None:
    """A condition with random numbers inside cannot be taken apart: the stage is to be kept as it is."""
    slot = Slot()

    @tf.function(autograph=False)
    def build() -> Any:
        with slot.forward():
            return tf.cond(tf.constant(True), lambda: tf.random.uniform([]), lambda: 0.0)

    build()

    assert slot.whole


@pytest.mark.parametrize("draws", [0, 2, 3])
def test_a_stage_that_changes_is_an_error(tf: Any, draws: int) -> None:
    """A stage that draws more or fewer random numbers when it is recomputed is refused in a sentence."""
    slot = Slot()

    @tf.function(autograph=False)
    def build() -> None:
        with slot.forward():
            tf.random.uniform([])
        with slot.again():
            for _ in range(draws):
                tf.random.uniform([])

    with pytest.raises(RecomputationError, match="must do the same whenever it is called"):
        build()
