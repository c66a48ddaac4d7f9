"""What estimators are made of: numbers of loops, devices, stock's parts, and what a graph remembers."""

from __future__ import annotations

import runpy
import sys
from typing import Any, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.tensorflow.compile import shards
from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.refusals import estimator as refusals
from ipu_conformance.errors import ConformanceError
from tests.unit.examples import at_most

NUMBERS = st.integers(1, 1000)
FEW = at_most(50)


@pytest.fixture(scope="module")
def ipu(tf: Any) -> Any:
    """The vendor's package on the emulator."""
    from tensorflow.python import ipu

    return ipu


@FEW
@given(st.integers(0, 10000), NUMBERS)
def test_loops_reach_the_last_step(asked: int, each: int) -> None:
    """So many loops do all steps, and one less would not."""
    from ipu_conformance.emulator.tensorflow.estimator import hooks

    loops = hooks.loops(asked, each)

    assert loops * each >= asked
    assert loops == 0 or (loops - 1) * each < asked


@FEW
@given(NUMBERS, NUMBERS)
def test_steps_are_whole_loops(asked: int, each: int) -> None:
    """Steps that end within a loop are refused, and both numbers are named."""
    if asked % each:
        with pytest.raises(ValueError, match=rf"^steps \({asked}\) must be a multiple of .* \({each}\)$"):
            refusals.STEPS(steps=asked, each=each)
    else:
        refusals.STEPS(steps=asked, each=each)


@FEW
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_a_device_has_the_ipus_of_its_number(ipu: Any, counts: List[int], data: Any) -> None:
    """Of several devices that are selected, the one of that ordinal counts."""
    from ipu_conformance.emulator.tensorflow.estimator import run_config

    options = ipu.config.IPUConfig()
    options.auto_select_ipus = counts
    ordinal = data.draw(st.integers(0, len(counts)), "ordinal")
    if ordinal == len(counts):
        with pytest.raises(ValueError, match=f"has {len(counts)} devices"):
            run_config.configured(options, ordinal)
    else:
        assert run_config.configured(options, ordinal) == counts[ordinal]


def test_devices_may_be_selected_by_their_ids(ipu: Any) -> None:
    """An id stands for a device of a size; the first that is no single IPU is a pair."""
    from ipu_conformance.emulator.tensorflow.estimator import run_config

    options = ipu.config.IPUConfig()
    options.select_ipus = system.ids().index(2)

    assert run_config.configured(options, 0) == 2


def test_a_tensorflow_without_estimators_says_so(ipu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing an estimator where stock has none fails with one sentence, which names the version to install."""
    from ipu_conformance.emulator.tensorflow.estimator import run_config

    monkeypatch.setitem(sys.modules, "tensorflow_estimator.python.estimator", None)
    with pytest.raises(ImportError, match=r"^TensorFlow .* has no estimators: install TensorFlow 2\.15") as refusal:
        runpy.run_path(run_config.__file__)

    assert isinstance(refusal.value, ConformanceError)


def test_a_graph_knows_its_collectives(ipu: Any) -> None:
    """What replicas do together is known to the graph around, also if a function in it does it, and to no other."""
    import tensorflow as tf

    from ipu_conformance.emulator.tensorflow.run import collectives

    with tf.Graph().as_default():
        tf.function(lambda: collectives.all_reduce(tf.constant(1.0), name="meeting"))()
        inside = collectives.used()
    with tf.Graph().as_default():
        outside = collectives.used()

    assert inside == ["meeting (sum)"]
    assert outside == []


def test_blocks_that_note_the_same_end_in_their_order() -> None:
    """A block inside of another one that has noted the same IPUs leaves the outer one open."""
    with shards.noted() as outer:
        with shards.noted() as inner:
            shards.note(1)
        shards.note(2)

    assert (outer, inner) == ({1, 2}, {1})


def test_who_watches_does_not_place() -> None:
    """What is watched is noted, and the program is still built to be executed."""
    from ipu_conformance.emulator.tensorflow.compile.shards import placing

    with shards.watched() as found:
        shards.note(3)
        watching = placing()
    with shards.noted():
        noting = placing()

    assert (found, watching, noting) == ({3}, False, True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AdamOptimizer", "adam"),
        ("AdadeltaOptimizer", "adadelta"),
        ("GradientDescentOptimizer", "sgd"),
        ("RMSPropOptimizer", "rmsprop"),
    ],
)
def test_reports_know_optimizers_by_their_slots(ipu: Any, name: str, expected: str) -> None:
    """A graph's variables tell which optimizer has made its slots."""
    import tensorflow as tf

    from ipu_conformance.emulator.tensorflow.estimator import report

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        weight = v1.get_variable("weight", initializer=1.0, use_resource=True)
        getattr(v1.train, name)(0.1).minimize(weight * weight)
        found = report.optimizer()

    assert found == expected
