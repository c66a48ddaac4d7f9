"""Replicas and runs are compared weight by weight, loss by loss and output by output."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ipu_conformance import check
from tests.unit.check.conftest import sentence


def replicas(number: int = 3) -> list:
    """The same weights on every replica."""
    return [{"conv1.weight": np.arange(288, dtype=np.float32).reshape(4, 8, 3, 3)} for _ in range(number)]


def run(**changes) -> SimpleNamespace:
    """A run of two steps and two weights."""
    fields = {
        "losses": (np.array([1.0, 2.0]), np.array([0.5, 1.0])),
        "outputs": (np.ones((2, 3)), np.full((2, 3), 2.0)),
        "weights": {"fc1.weight": np.ones((3, 2)), "fc1.bias": np.zeros(3)},
    }
    fields.update(changes)
    return SimpleNamespace(**fields)


def tolerances(reasoned) -> SimpleNamespace:
    """A tolerance for every array of a run, each with its own reason."""
    return SimpleNamespace(
        losses=[reasoned(0.1, "loss rule")] * 2,
        outputs=[reasoned(0.1, "output rule")] * 2,
        weights={"fc1.weight": reasoned(0.1, "weight rule"), "fc1.bias": reasoned(0.2, "bias rule")},
    )


class TestReplicasIdentical:
    def test_equal_replicas_pass(self):
        """Replicas with the same bits pass."""
        check.replicas_identical(replicas())

    def test_the_difference_is_told_in_one_sentence(self):
        """The weight, both replicas, the step, the count and the size are there."""
        held = replicas()
        held[2]["conv1.weight"] = held[2]["conv1.weight"].copy()
        held[2]["conv1.weight"][0, 0, 0, 1] = np.nextafter(np.float32(1), np.float32(2))

        assert sentence(check.replicas_identical, held, step=3) == (
            "conv1.weight differs between replicas 0 and 2 after step 3: 1 of 288 values, largest difference 1.2e-07, "
            "allowed 0 (replicas are bit-identical by specification)."
        )

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            (np.zeros((4, 72), np.float32), "shape [4, 8, 3, 3] and [4, 72]"),
            (np.zeros((4, 8, 3, 3), np.float16), "dtype float32 and float16"),
        ],
    )
    def test_shape_and_dtype_come_first(self, value, words):
        """A replica with another shape or dtype says so before values."""
        held = replicas(2)
        held[1]["conv1.weight"] = value

        assert sentence(check.replicas_identical, held) == (
            f"conv1.weight differs between replicas 0 and 1: {words} (replicas are bit-identical by specification)."
        )

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            (0, "replica 1 has no fc1.bias, which replica 0 has."),
            (1, "replica 1 has fc1.bias, which replica 0 does not have."),
        ],
    )
    def test_a_weight_that_one_replica_lacks_is_named(self, changed, words):
        """Replicas have the same weights by name."""
        held = replicas(2)
        held[changed]["fc1.bias"] = np.zeros(3)

        assert sentence(check.replicas_identical, held) == words

    @pytest.mark.parametrize(
        ("held", "words"), [(None, "no record of its replicas"), (replicas(1), "1 replica,"), ([], "0 replica,")]
    )
    def test_fewer_than_two_replicas_are_refused(self, held, words):
        """A comparison of nothing is no pass."""
        with pytest.raises(check.CheckMisuseError, match=words):
            check.replicas_identical(held)


class TestRuns:
    def test_a_run_equals_itself(self, reasoned):
        """The same run is identical and equivalent."""
        check.runs_identical(actual=run(), expected=run())
        check.runs_equivalent(actual=run(), expected=run(), tolerance=tolerances(reasoned))

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            pytest.param(
                {"losses": (np.array([1.0, 2.0]), np.array([0.5, 1.0 + 2**-52]))},
                "losses of step 1 differs at [1]: actual 1.0000000000000002, expected 1.0; 1 of 2 values, "
                "largest difference 2.2e-16, allowed 0 (the two runs are the same by specification).",
                id="one bit in the last loss",
            ),
            pytest.param(
                {"losses": (np.array([1.0, 2.0]),)},
                "the actual run has losses of 1 steps where 2 are expected.",
                id="a missing step",
            ),
            pytest.param(
                {"weights": {"fc1.weight": np.ones((3, 2))}},
                "the actual run's weights has no fc1.bias, which the expected run has.",
                id="a missing weight",
            ),
        ],
    )
    def test_what_makes_runs_different_is_told_in_one_sentence(self, changes, words):
        """Every step is compared, and what a run lacks fails before values."""
        assert sentence(check.runs_identical, actual=run(**changes), expected=run()) == words

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"losses": (np.array([1.0, 2.5]), np.array([0.5, 1.0]))}, "losses of step 0 differs at [1]: actual 2.5"),
            ({"outputs": (np.ones((2, 3)), np.ones((2, 3)))}, "outputs of step 1 differs at [0, 0]: actual 1.0"),
            ({"weights": {"fc1.weight": np.ones((3, 2)), "fc1.bias": np.ones(3)}}, "fc1.bias differs at [0]: actual 1"),
        ],
    )
    def test_each_field_has_its_own_tolerance(self, reasoned, changes, words):
        """A value outside names its array and the reason of that array's tolerance."""
        message = sentence(check.runs_equivalent, actual=run(**changes), expected=run(), tolerance=tolerances(reasoned))

        assert message.startswith(words)
        assert f"{ {'l': 'loss', 'o': 'output', 'f': 'bias'}[words[0]] } rule" in message

    def test_a_difference_inside_each_tolerance_passes(self, reasoned):
        """The bias may differ by more than the weight."""
        changed = run(weights={"fc1.weight": np.full((3, 2), 1.05), "fc1.bias": np.full(3, 0.15)})

        check.runs_equivalent(actual=changed, expected=run(), tolerance=tolerances(reasoned))

    def test_gradients_are_compared_update_by_update(self):
        """Fields that hold several weights at each update name both."""
        expected = run(gradients=({"fc1.bias": np.zeros(3)}, {"fc1.bias": np.ones(3)}))
        actual = run(gradients=({"fc1.bias": np.zeros(3)}, {"fc1.bias": np.array([1.0, 1.0, 2.0])}))

        message = sentence(check.runs_identical, actual=actual, expected=expected, fields=("gradients",))

        assert message.startswith("fc1.bias in gradients of update 1 differs at [2]: actual 2.0")

    def test_what_a_run_does_not_have_is_refused_unless_left_out(self):
        """None means unknown, which is no pass."""
        with pytest.raises(check.CheckMisuseError, match="the actual run has no outputs to compare"):
            check.runs_identical(actual=run(outputs=None), expected=run())
        check.runs_identical(actual=run(outputs=None), expected=run(), fields=("losses", "weights"))

    def test_no_fields_are_refused(self):
        """Comparing nothing is no pass."""
        with pytest.raises(check.CheckMisuseError, match="no fields are given"):
            check.runs_identical(actual=run(), expected=run(), fields=())

    def test_a_bare_number_is_refused(self):
        """A run's tolerance is derived."""
        with pytest.raises(TypeError, match="never a bare number"):
            check.runs_equivalent(actual=run(), expected=run(), tolerance=1e-3)
