"""Traces, graphs and errors are compared with what is specified."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from ipu_conformance import check
from tests.unit.check.conftest import sentence


class Slot(NamedTuple):
    """What the check needs of a slot."""

    tick: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} in tick {self.tick}"


PLAN = (Slot(0, "forward 0"), Slot(1, "forward 1"), Slot(1, "backward 0"), Slot(2, "update"))


class TestTrace:
    def test_slots_of_one_tick_have_no_order(self):
        """What runs at the same time may be recorded either way."""
        check.trace_equals_plan(trace=[PLAN[0], PLAN[2], PLAN[1], PLAN[3]], plan=PLAN)

    @pytest.mark.parametrize(
        ("trace", "words"),
        [
            (PLAN[:3], "the trace has no update in tick 2, which the plan has (3 slots executed, 4 planned)."),
            (
                (*PLAN, PLAN[3]),
                "the trace has update in tick 2 twice, the plan once (5 slots executed, 4 planned).",
            ),
            (
                (*PLAN, Slot(3, "update")),
                "the trace has update in tick 3 once, the plan never (5 slots executed, 4 planned).",
            ),
            (
                (PLAN[0], PLAN[3], PLAN[1], PLAN[2]),
                "the trace is out of order at slot 2: forward 1 in tick 1, after update in tick 2; slots of an earlier "
                "tick come first by specification.",
            ),
        ],
    )
    def test_missing_extra_and_late_slots_are_named(self, trace, words):
        """Each kind of wrong trace has its sentence."""
        assert sentence(check.trace_equals_plan, trace=trace, plan=PLAN) == words

    def test_an_empty_plan_is_refused(self):
        """Nothing executed of nothing planned is no pass."""
        with pytest.raises(check.CheckMisuseError, match="the plan has no slots"):
            check.trace_equals_plan(trace=(), plan=())


class TestRaises:
    def test_the_specified_error_passes_and_is_kept(self):
        """The exception is there for further checks."""
        with check.raises(ValueError, match="at least 2", what="a pipeline of 1 stage") as caught:
            raise ValueError("needs at least 2 stages")

        assert str(caught.value) == "needs at least 2 stages"

    def test_no_error_fails(self):
        """Silence where an error is specified is a failure."""
        with pytest.raises(check.CheckFailure) as caught, check.raises((ValueError, KeyError), match="x", what="it"):
            pass

        assert str(caught.value) == "it raises nothing where ValueError or KeyError matching 'x' is specified."

    def test_no_error_fails_where_any_message_will_do(self):
        """Without a match the sentence speaks of none."""
        with pytest.raises(check.CheckFailure) as caught, check.raises(ValueError, what="it"):
            pass

        assert str(caught.value) == "it raises nothing where ValueError is specified."

    def test_another_type_fails(self):
        """An error of another type is named with its message on one line."""
        with pytest.raises(check.CheckFailure) as caught, check.raises(ValueError, match="x", what="it"):
            raise KeyError("a\n b")

        assert str(caught.value) == r"it raises KeyError where ValueError is specified: 'a\n b'."
        assert isinstance(caught.value.__cause__, KeyError)

    def test_another_message_fails(self):
        """The message is part of the specification."""
        with pytest.raises(check.CheckFailure) as caught, check.raises(ValueError, match="stage", what="it"):
            raise ValueError("no\nwords")

        assert str(caught.value) == "it raises ValueError, but its message 'no words' does not match 'stage'."

    def test_an_interrupt_passes_through(self):
        """Stopping the run is no wrong error."""
        with pytest.raises(KeyboardInterrupt), check.raises(ValueError, match="x", what="it"):
            raise KeyboardInterrupt


class TestAccepted:
    def test_a_block_that_raises_nothing_passes(self):
        """It is run."""
        ran = []
        with check.accepted("it"):
            ran.append(1)

        assert ran == [1]

    def test_an_error_fails(self):
        """What is specified to work was refused; the error is the cause."""
        with pytest.raises(check.CheckFailure) as caught, check.accepted("an import"):
            raise ImportError("no such\nmodule")

        assert str(caught.value) == "an import raises ImportError where it is specified to work: no such module."
        assert isinstance(caught.value.__cause__, ImportError)

    def test_other_failures_and_interrupts_pass_through(self):
        """A check inside the block has a sentence of its own."""
        with pytest.raises(check.CheckFailure, match=r"^3 is none$"), check.accepted("it"):
            check.holds(False, "3 is none")
        with pytest.raises(KeyboardInterrupt), check.accepted("it"):
            raise KeyboardInterrupt


class TestIr:
    def graph(self, *types: str):
        """A chain of ops of these types."""
        from ipu_conformance.ir import Graph, Op, Tensor

        ops = [Op(kind, f"op{i}", (f"t{i}",), (f"t{i + 1}",)) for i, kind in enumerate(types)]
        tensors = [Tensor(f"t{i}", "FLOAT", (2,)) for i in range(len(types) + 1)]
        return Graph("chain", ops, ["t0"], [f"t{len(types)}"], tensors)

    def test_equal_graphs_pass(self):
        """The same graph, built twice."""
        check.ir_equal(actual=self.graph("Relu", "Tanh"), expected=self.graph("Relu", "Tanh"))

    def test_a_difference_is_told_in_the_graphs_own_sentence(self):
        """What the diff of graphs says becomes the failure's sentence."""
        from ipu_conformance.ir.compare.difference import diff

        actual, expected = self.graph("Relu", "Sigmoid"), self.graph("Relu", "Tanh")

        (difference,) = diff(expected, actual)
        assert sentence(check.ir_equal, actual=actual, expected=expected, what="the training graph") == (
            f"the training graph differs from what is expected: {str(difference).rstrip('.')}."
        )

    def test_many_differences_are_cut(self):
        """Three sentences, and the number of the others."""
        actual, expected = self.graph(*["Relu"] * 6), self.graph(*["Tanh"] * 6)

        with pytest.raises(check.CheckFailure, match=r"; and \d+ more\.$"):
            check.ir_equal(actual=actual, expected=expected)
