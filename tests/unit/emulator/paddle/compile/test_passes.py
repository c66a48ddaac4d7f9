"""The passes themselves: what they decide, what they refuse, and what they leave to be executed."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paddle.base import core

from ipu_conformance.emulator import hook
from ipu_conformance.emulator.paddle.api import custom_ops
from ipu_conformance.emulator.paddle.compile import canonical, compilation, passes, subprograms
from ipu_conformance.emulator.paddle.compile.passes import forward
from ipu_conformance.emulator.paddle.optim import folding
from ipu_conformance.emulator.paddle.optim.folding import fold
from tests.unit.examples import at_most

from ..ir.translation.calls import raw
from ..programs import record_of, run, static

KINDS = core.VarDesc.VarType


@at_most(200)
@given(st.integers(0, 60), st.integers(1, 9))
def test_runs_are_equal_but_for_the_last(ops: int, ipus: int) -> None:
    """Indices rise by one, every run but the last has ops // IPUs ops, and the last has those and the rest."""
    found = forward.runs(ops, ipus)

    counts = [found.count(ipu) for ipu in sorted(set(found))]
    assert found == sorted(found)
    assert len(found) == ops
    if ops >= ipus:
        assert counts == [ops // ipus] * (ipus - 1) + [ops // ipus + ops % ipus]
    else:
        assert found == list(range(ops))


@at_most(200)
@given(st.integers(0, 400), st.floats(0.5, 0.999))
def test_steps_are_counted_from_a_power(steps: int, beta: float) -> None:
    """The power of so many steps, in 32 bits, gives their number back while it is a normal number."""
    beta1 = float(np.float32(beta))
    power = np.array([beta1 ** (steps + 1)], np.float32)
    if power[0] < np.finfo(np.float32).tiny:
        return

    found = folding.steps(power, beta1)

    assert found.dtype == np.float32
    assert found == [steps]


@at_most(50)
@given(st.integers(0, 10**6))
def test_a_number_of_steps_is_kept(steps: int) -> None:
    """What was counted by an earlier compilation is no power, and stays."""
    assert folding.steps(np.array([steps], np.float32), 0.9) == [np.float32(steps)]


def test_an_unknown_pass_is_refused() -> None:
    """The error lists the passes."""
    with pytest.raises(RuntimeError, match=r"no pass of the IPU is named 'optimize_all'.*infer_shape_pass"):
        passes.get("optimize_all")


def test_a_pass_has_what_was_set() -> None:
    """Values are set by name, as on Paddle's own passes."""
    one = passes.get("infer_shape_pass")
    one.set("feed_list", ["x"])

    assert (one.type(), one.has("feed_list"), one.has("fetch_list")) == ("infer_shape_pass", True, False)


def test_a_graph_is_made_anew_from_a_program() -> None:
    """Every op of the program has a node, with the variables that it reads and writes around it."""
    with static() as (program, _, _):
        x = paddle.static.data("x", [2, 3], "float32")
        paddle.assign(paddle.exp(paddle.tanh(x)), output=x)
    graph = core.Graph(core.ProgramDesc())

    compilation.rebuild(graph, program)

    ops = {node.name(): node for node in graph.nodes() if node.is_op()}
    assert sorted(ops) == ["assign", "exp", "tanh"]
    assert [each.name() for each in ops["tanh"].inputs] == ["x"]
    assert [each.name() for each in ops["assign"].outputs] == ["x"]
    assert len([node for node in graph.nodes() if node.is_var() and node.name() == "x"]) == 2


def test_what_the_host_computes_in_64_bits_is_cast_at_once() -> None:
    """Indices of a top-k are int32 in the executed program, so that they can be compared with labels that were fed."""

    def build() -> Any:
        scores, labels = paddle.static.data("x", [None, 5], "float32"), paddle.static.data("y", [None, 1], "int64")
        return paddle.cast(paddle.equal(paddle.topk(scores, 1)[1], labels), "float32")

    record = record_of(build, ["x", "y"])

    types = [op.type() for op in subprograms.ops_of(record.forward)]
    scores = np.array([[0, 3, 1, 2, 0], [5, 4, 1, 2, 0]], np.float32)
    feed = {"x": scores, "y": np.array([[1], [2]], np.int32)}
    with static() as (_, _, scope):
        found = run(record.forward, feed, list(record.fetches), scope)[0]
    assert types == ["top_k_v2", "cast", "equal", "cast"]
    np.testing.assert_array_equal(found, [[1], [0]])


@pytest.mark.parametrize(
    ("op", "build", "label", "expected"),
    [
        ("nll_loss", paddle.nn.functional.nll_loss, [1, 0], -1.5),
        (
            "cross_entropy2",
            raw("cross_entropy2", "X Label", "Y XShape MatchX"),
            [[1], [2]],
            [[0.0], [0.0]],
        ),
        ("lookup_table", raw("lookup_table", "W Ids"), [[1], [0]], [[2.0, 4.0, 1.0], [0.5, 1.0, 3.0]]),
    ],
)
def test_what_the_host_reads_in_64_bits_is_cast_before(op: str, build: Any, label: Any, expected: Any) -> None:
    """Labels that were fed in 64 bits are 32 bits wide on the device, and wide again where a kernel reads them."""
    x, y = np.array([[0.5, 1.0, 3.0], [2.0, 4.0, 1.0]], np.float32), np.array(label, np.int32)
    data = paddle.static.data
    record = record_of(lambda: build(data("x", x.shape, "float32"), data("y", y.shape, "int64")), ["x", "y"])

    types = [each.type() for each in subprograms.ops_of(record.forward)]
    feed = {"x": x, "y": y}
    with static() as (_, _, scope):
        found = run(record.forward, feed, list(record.fetches), scope)[0]
    assert types == ["cast", op]
    assert found.tolist() == expected


def test_what_persists_keeps_its_type() -> None:
    """A weight of 64 bits is narrowed by nobody: it is the host's."""

    def build() -> Any:
        held = paddle.static.create_global_var([3], 2, "int64", persistable=True, name="held")
        return paddle.add(paddle.cast(held, "float32"), paddle.static.data("x", [3], "float32"))

    record = record_of(build, ["x"])

    assert subprograms.variables(record.forward)["held"].dtype() == KINDS.INT64


@pytest.mark.parametrize("mapped", [False, True])
def test_a_custom_op_must_be_mapped(mapped: bool) -> None:
    """An op that the strategy maps is of its domain and version; one that nobody mapped has no handler."""
    hook.install("paddle")
    leaky = custom_ops.register("custom_leaky", lambda x: np.where(x > 0, x, x / 2), lambda x, y, grad: grad)
    row = core.IpuStrategy()
    row.set_options(
        {"custom_op": {"paddle_op": "custom_leaky", "popart_op": "LeakyRelu", "domain": "custom.ops", "version": 3}}
    )
    with static() as (program, _, _):
        leaky(paddle.exp(paddle.static.data("x", [2, 3], "float32")))
        if not mapped:
            with pytest.raises(NotImplementedError, match="custom_leaky"):
                canonical.translated(program, [])
            return
        written = canonical.translated(program, row.custom_ops)
        canonical.write(program, written)

    assert [op.type for op in written.ops] == ["Exp", "custom.ops::LeakyRelu"]
    assert written.ops[1].attributes["version"] == 3
    assert [op.type for op in program.global_block().ops] == ["popart_exp", "custom_leaky"]


def test_control_flow_has_no_handler() -> None:
    """A program with a loop is refused by the name of its op."""

    def build() -> Any:
        x = paddle.static.data("x", [3], "float32")
        start = paddle.static.data("i", [1], "int32")
        return paddle.static.nn.while_loop(
            lambda i, v: paddle.less_than(i, paddle.add(i, i)),
            lambda i, v: [paddle.add(i, i), paddle.tanh(v)],
            [start, x],
        )[1]

    with pytest.raises(NotImplementedError, match=r"Found unimplemented op_handler\(s\) for IPU.*while"):
        record_of(build, ["x", "i"])


def test_what_a_handler_cannot_do_is_said() -> None:
    """An op in a form that is not implemented is refused with the reason."""

    def build() -> Any:
        images = paddle.static.data("x", [2, 6, 6, 1], "float32")
        return paddle.nn.functional.max_pool2d(images, 2, 2, data_format="NHWC")

    with pytest.raises(NotImplementedError, match="pool2d has the layout 'NHWC'"):
        record_of(build, ["x"])


def test_a_rate_of_its_own_is_the_parameters() -> None:
    """A parameter with a factor for its rate is folded with the others."""

    def build() -> Any:
        half = paddle.ParamAttr("half", learning_rate=0.5)
        made = paddle.static.nn.fc(paddle.static.data("x", [2, 3], "float32"), 2, weight_attr=half)
        return paddle.mean(paddle.tanh(made))

    folded = record_of(build, ["x"], lambda: paddle.optimizer.SGD(0.1)).optimizer

    assert "half" in folded.parameters
    assert len(folded.parameters) == 2
    assert folded.gradients["half"] == "half@GRAD"


@pytest.mark.parametrize("found", ["loss", "nothing"])
def test_a_program_without_optimizer_is_told_so(found: str) -> None:
    """Training asks for an optimizer first, whether the program has a loss or not."""

    def build() -> Any:
        x = paddle.static.data("x", [None, 2], "float32")
        return paddle.incubate.identity_loss(x, "mean") if found == "loss" else x * 2.0

    with pytest.raises(RuntimeError, match="No optimizer found"):
        record_of(build, ["x"], is_training=True)


def test_the_gradient_of_a_cast_weight_is_the_one_that_backward_makes() -> None:
    """Casts of the optimizer are followed back to what they read, so that the device brings gradients before them."""
    with static() as (program, _, _):
        weight = paddle.create_parameter([2], "float32", name="w")
        loss = paddle.sum(paddle.static.data("x", [2], "float32") * weight)
        optimizer = paddle.optimizer.SGD(0.5)
        block = program.global_block()
        (parameter, raw), *_ = optimizer.backward(loss)
        with program._optimized_guard([parameter, raw]):
            ready = block.create_var(name="ready", shape=[2], dtype="float32")
            same = {"in_dtype": raw.dtype, "out_dtype": raw.dtype}
            block.append_op(type="cast", inputs={"X": raw}, outputs={"Out": ready}, attrs=same)
        optimizer.apply_gradients([(parameter, ready)])

        assert fold(block.ops).gradients == {"w": raw.name}
