"""Dynamic-to-static: one call of a model is forward, backward and update on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..regression import RATE, REDUCTIONS, START, Step, float32, samples, step, targets

SIZE = 4
WAYS = ["decorated", "wrapped", "whole"]
"""How a model is given to ``to_static``: by decorating, by wrapping an object, and with ``full_graph``."""


def model(
    paddle: Any, *, way: str = "wrapped", reduction: str = "mean", outputs: str = "both", spec: Any = None,
    loss: Any = None,
) -> Any:  # fmt: skip
    """The exact model as a Layer that returns its outputs, its loss, or both; what ``loss`` gives has no mark."""

    class Scale(paddle.nn.Layer):
        """One weight for each feature."""

        def __init__(self) -> None:
            super().__init__()
            start = paddle.nn.initializer.Assign(START.astype(np.float32))
            self.weight = self.create_parameter([2], default_initializer=start)
            # What is transformed sees its Layer, and not the variables around the class.
            self.reduction, self.outputs, self.loss = REDUCTIONS[reduction], outputs, loss

        def forward(self, x: Any, y: Any = None) -> Any:
            """The scaled sample and how far it is from what it should be."""
            out = x * self.weight
            if y is None:
                return out
            if self.loss is not None:
                return (out, *self.loss(out, y))
            apart = paddle.square(out - y)
            if self.reduction == 2:
                apart = paddle.mean(apart)
            loss = paddle.incubate.identity_loss(apart, reduction=self.reduction)
            if self.outputs == "loss":
                return loss
            return out, loss

    if way == "decorated":
        setattr(Scale, "forward", paddle.jit.to_static(Scale.forward))  # noqa: B010  a decorator, written later
        return Scale()
    if way == "whole":
        return paddle.jit.to_static(Scale(), input_spec=spec, full_graph=True)
    return paddle.jit.to_static(Scale())


def configured(paddle: Any, **options: Any) -> Any:
    """A strategy for micro-batches, without an optimizer."""
    strategy = paddle.static.IpuStrategy()
    strategy.set_options({"micro_batch_size": SIZE, **options})
    return strategy


def training(paddle: Any, net: Any, rate: Any = RATE, **options: Any) -> Any:
    """A strategy that trains the model by steps down the gradient."""
    strategy = configured(paddle, **options)
    strategy.set_optimizer(paddle.optimizer.SGD(rate, parameters=net.parameters()))
    return strategy


def micro_batch(turn: int) -> Tuple[np.ndarray, np.ndarray]:
    """The samples and the targets of one turn."""
    return samples(SIZE, turn * SIZE), targets(SIZE, turn * SIZE)


def call(paddle: Any, net: Any, turn: int) -> Any:
    """The model on the micro-batch of one turn."""
    return net(*map(paddle.to_tensor, micro_batch(turn)))


def expected(turns: int, reduction: str = "mean", rates: Optional[List[float]] = None) -> List[Step]:
    """What a plain loop makes of the first turns."""
    weight, steps = START, []
    for turn in range(turns):
        rate = rates[turn] if rates else RATE
        steps.append(step(weight, *micro_batch(turn), rate=rate, reduction=reduction))
        weight = steps[-1].weight
    return steps


def home(paddle: Any) -> None:
    """Bring the weights from the device into the Layer."""
    paddle.base.core.IpuBackend.get_instance().weights_to_host()


def check_exact(actual: Any, expected: np.ndarray, what: str) -> None:
    """Shape and bits are those of the exact value in float32."""
    __tracebackhide__ = True
    check.identical(actual=np.asarray(actual), expected=float32(expected), what=what)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_call_is_a_step(paddle: Any, way: str, reduction: str) -> None:
    """Each call returns the outputs and the loss before its update, and makes one update.

    A loss that the mark does not reduce is a mean already: a session is given a scalar (PopART's ``session.hpp``).
    """
    net = model(paddle, way=way, reduction=reduction)
    rate = RATE / 8 if reduction == "sum" else RATE
    steps = expected(2, "mean" if reduction == "none" else reduction, [rate, rate])
    training(paddle, net, rate)

    for turn, exact in enumerate(steps):
        out, loss = call(paddle, net, turn)
        check_exact(out, exact.out, f"the output of call {turn}")
        check_exact(loss, exact.loss, f"the loss of call {turn}")
    home(paddle)

    check_exact(net.weight, steps[-1].weight, "the weight")


@pytest.mark.parametrize("outputs", ["loss", "both"])
def test_outputs_keep_their_structure(paddle: Any, outputs: str) -> None:
    """A model may return its loss alone, or several tensors; the device has gone backwards already."""
    net = model(paddle, outputs=outputs)
    training(paddle, net)

    returned = call(paddle, net, 0)
    loss = returned if outputs == "loss" else returned[1]

    kind = paddle.Tensor if outputs == "loss" else (tuple, list)
    check.instance(actual=returned, expected=kind, what="what the model returns")
    check_exact(loss, expected(1)[0].loss, "the loss")
    check.equal(actual=loss.stop_gradient, expected=True, what="stop_gradient of the loss")
    check.holds(net.weight.grad is None, f"the weight has a gradient on the host: {net.weight.grad}.")


@pytest.mark.parametrize("turns", [1, 3])
def test_the_layer_is_stale_until_weights_come_home(paddle: Any, turns: int) -> None:
    """Calls leave the Layer's weight as it was; weights_to_host puts the trained one into the same Layer."""
    net = model(paddle)
    training(paddle, net)
    parameter = net.weight
    for turn in range(turns):
        call(paddle, net, turn)
    check_exact(net.weight, START, "the weight before it comes home")

    home(paddle)

    check.holds(net.weight is parameter, "the weight that comes home is another Parameter than the Layer's.")
    check_exact(net.weight, expected(turns)[-1].weight, "the weight")


@pytest.mark.parametrize("synced", [True, False])
def test_a_state_dict_holds_what_the_layer_holds(paddle: Any, tmp_path: Path, synced: bool) -> None:
    """Saved without syncing, the weights are those before training; after weights_to_host, those after it."""
    net = model(paddle)
    training(paddle, net)
    call(paddle, net, 0)
    if synced:
        home(paddle)
    paddle.save(net.state_dict(), str(tmp_path / "net.pdparams"))

    saved = paddle.load(str(tmp_path / "net.pdparams"))

    check.equal(actual=list(saved), expected=["weight"], what="the list of names in the state dict")
    check_exact(saved["weight"], expected(1)[0].weight if synced else START, "the saved weight")


@pytest.mark.parametrize("how", ["scheduler", "nothing", "option"])
def test_a_scheduler_sets_the_rate_of_the_device(paddle: Any, how: str) -> None:
    """A step of a scheduler, or the option lr, sets the rate of the next call without compiling; calls do not."""
    scheduler = paddle.optimizer.lr.StepDecay(RATE, step_size=1, gamma=0.25)
    net = model(paddle)
    strategy = training(paddle, net, scheduler)
    for turn in range(2):
        call(paddle, net, turn)
        if how == "scheduler":
            scheduler.step()
        elif how == "option":
            strategy.set_options({"lr": RATE / 4})
        check.equal(actual=strategy.need_compile, expected=False, what=f"need_compile after call {turn}")
    home(paddle)

    rates = [RATE, RATE if how == "nothing" else RATE / 4]
    check_exact(net.weight, expected(2, rates=rates)[-1].weight, "the weight")


ACCUMULATION = {"enable_gradient_accumulation": True, "accumulation_factor": 4}
FACTORS: Dict[str, Tuple[Optional[int], int, Dict[str, Any]]] = {
    "batches": (None, 2, {"batches_per_step": 2}),
    "accumulation": (None, 4, ACCUMULATION),
    "replicas": (None, 2, {"enable_replicated_graphs": True, "replicated_graph_count": 2, "num_ipus": 2}),
    "given": (SIZE, 4, ACCUMULATION),
}
"""The leading dimension of the InputSpec, and the micro-batches of a run."""


@pytest.mark.ipus(2)
@pytest.mark.parametrize(
    "factor", [pytest.param(factor, marks=[pytest.mark.emulator] * (factor == "given")) for factor in FACTORS]
)
def test_a_call_takes_several_micro_batches(paddle: Any, factor: str) -> None:
    """One call takes all micro-batches of a run, and returns an output for each.

    A model is compiled in the shape of its InputSpec where that is given; builds of after 2.4 compile a call that is
    larger in its own shape.
    """
    leading, count, options = FACTORS[factor]
    specs = [paddle.static.InputSpec([leading, 2], "float32", name) for name in ("x", "y")]
    net = model(paddle, way="whole", spec=specs)
    training(paddle, net, **options)
    with check.accepted(f"a call with {count} micro-batches"):
        out, loss = net(paddle.to_tensor(samples(count * SIZE)), paddle.to_tensor(targets(count * SIZE)))
    home(paddle)
    steps = expected(count, rates=None if factor == "batches" else [0.0] * count)
    # One step on the mean of gradients leads to the mean of where each of them would have led.
    once = np.mean([step(START, *micro_batch(turn)).weight for turn in range(count)], axis=0)

    check_exact(out, np.stack([step.out for step in steps]), "the output")
    check_exact(loss, np.stack([step.loss for step in steps]), "the loss")
    check_exact(net.weight, steps[-1].weight if factor == "batches" else once, "the weight")


def test_momentum_is_kept_on_the_device(paddle: Any) -> None:
    """The second step uses the velocity of the first, and weights_to_host brings a velocity too."""
    net = model(paddle)
    strategy = training(paddle, net)
    optimizer = paddle.optimizer.Momentum(RATE, momentum=0.5, parameters=net.parameters())
    strategy.set_optimizer(optimizer)
    weight, velocity = START, np.zeros(2)
    for turn in range(2):
        call(paddle, net, turn)
        gradient = weight - step(weight, *micro_batch(turn), rate=1.0).weight
        velocity = 0.5 * velocity + gradient
        weight = weight - RATE * velocity
    home(paddle)

    check_exact(net.weight, weight, "the weight")
    states = [value for name, value in optimizer.state_dict().items() if "velocity" in name]
    check.equal(actual=len(states), expected=1, what="the number of velocities")
    check.differs(actual=np.asarray(states[0]), other=np.zeros(2, np.float32), what="the velocity")


@pytest.mark.parametrize("synced", [True, False], ids=["synced", "stale"])
def test_changed_options_compile_again_from_the_weights_of_the_host(paddle: Any, synced: bool) -> None:
    """Another option compiles the program again: training continues from what came home, and else from the start."""
    net = model(paddle)
    strategy = training(paddle, net)
    call(paddle, net, 0)
    if synced:
        home(paddle)
    strategy.set_options({"loss_scaling": 4.0})
    changed = strategy.need_compile
    call(paddle, net, 1)
    home(paddle)

    needed = changed, strategy.need_compile
    check.equal(actual=needed, expected=(True, False), what="need_compile before and after the second call")
    stale = step(START, *micro_batch(1), rate=RATE, reduction="mean")
    check_exact(net.weight, (expected(2)[-1] if synced else stale).weight, "the weight")


@pytest.mark.parametrize("way", WAYS)
def test_inference_computes_outputs_alone(paddle: Any, way: str) -> None:
    """Without training a call gives the outputs and leaves the weights alone."""
    net = model(paddle, way=way)
    configured(paddle, is_training=False)
    outputs = [net(paddle.to_tensor(samples(SIZE, turn * SIZE))) for turn in range(2)]
    home(paddle)

    for turn, out in enumerate(outputs):
        check_exact(out, samples(SIZE, turn * SIZE).astype(np.float64) * START, f"the output of call {turn}")
    check_exact(net.weight, START, "the weight")


def test_evaluation_leaves_weights(paddle: Any) -> None:
    """With runtime_options.enable_eval a call computes the loss and updates nothing."""
    net = model(paddle)
    strategy = training(paddle, net)
    strategy.set_options({"runtime_options.enable_eval": True})
    _, loss = call(paddle, net, 0)
    home(paddle)

    check_exact(loss, expected(1)[0].loss, "the loss")
    check_exact(net.weight, START, "the weight")


@pytest.mark.parametrize("released", [True, False])
def test_released_models_run_on_the_host(paddle: Any, released: bool) -> None:
    """After release_patch the same code is Paddle's own: a call updates nothing, and the loss has a gradient."""
    strategy = paddle.static.IpuStrategy()
    if released:
        strategy.release_patch()
        net = model(paddle)
    else:
        net = model(paddle)
        training(paddle, net)
    _, loss = call(paddle, net, 0)

    check_exact(loss.numpy().reshape(1), expected(1)[0].loss, "the loss")
    check.equal(actual=loss.stop_gradient, expected=not released, what="stop_gradient of the loss")


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_of_paddle_s_own_needs_no_mark(paddle: Any, reduction: str) -> None:
    """What a handler of a loss makes is the loss, with the reduction behind it, where no other op reads it.

    ``huber_loss_handler`` and its neighbours in Paddle's popart_canonicalization/loss_ops.cc. Below its bend a Huber
    loss is half of the squared distance, so that twice the rate makes the steps of the marked loss.
    """
    huber = paddle.nn.functional.smooth_l1_loss
    net = model(paddle, loss=lambda out, y: (huber(out, y, reduction=reduction, delta=2.0**10),))
    rate = RATE if reduction == "mean" else RATE / 8
    steps = expected(2, reduction, [rate, rate])
    training(paddle, net, 2 * rate)

    for turn, exact in enumerate(steps):
        with check.accepted("a loss without a mark"):
            out, loss = call(paddle, net, turn)
        check_exact(out, exact.out, f"the output of call {turn}")
        check_exact(loss, exact.loss / 2, f"the loss of call {turn}")
    home(paddle)

    check_exact(net.weight, steps[-1].weight, "the weight")


def test_another_loss_has_to_be_marked(paddle: Any) -> None:
    """A value that no loss of Paddle's makes is no loss, unless identity_loss says so."""
    net = model(paddle, loss=lambda out, y: (paddle.mean(paddle.square(out - y)),))
    training(paddle, net)

    with check.raises((RuntimeError, ValueError), match="(?i)loss", what="training without a loss"):
        call(paddle, net, 0)


def test_training_needs_an_optimizer(paddle: Any) -> None:
    """A strategy that trains and was given no optimizer cannot compile a model."""
    net = model(paddle)
    configured(paddle)

    with check.raises(AttributeError, match="_optimizer", what="training without set_optimizer"):
        call(paddle, net, 0)


def test_a_loss_that_another_op_reads_is_no_end(paddle: Any) -> None:
    """Of two losses of Paddle's own gradients begin at the one that no op reads, though it comes first."""
    huber = paddle.nn.functional.smooth_l1_loss
    net = model(paddle, loss=lambda out, y: (huber(out, y, delta=2.0**10), 2.0 * huber(out, 3.0 * y, delta=2.0**10)))
    training(paddle, net, 2 * RATE)
    with check.accepted("two losses without a mark"):
        call(paddle, net, 0)
    home(paddle)

    check_exact(net.weight, expected(1)[0].weight, "the weight")
