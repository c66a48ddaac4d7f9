"""What a call returns: the output modes, shapes, types and the structure of the model's own output."""

from __future__ import annotations

import itertools
from typing import Any, Callable, List, NamedTuple, Tuple

import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..exact import INFERENCE, TRAINING, assert_same, counts
from ..on_device import as_model, infer

MODES = ((None, None), ("All", None), ("Final", None), ("Sum", None), ("EveryN", "G"), ("EveryN", "all"))
"""Modes and the names of their periods; without a mode a model has that of its kind."""


def period_of(name: Any, config: RunConfig) -> Any:
    """A return period, which may be the accumulation, or all micro-batches of a replica, by name."""
    accumulation = config.gradient_accumulation
    return {"G": accumulation, "all": config.device_iterations * accumulation}.get(name, name)


def selected(values: List[Any], config: RunConfig, mode: str, period: Any) -> List[Any]:
    """The values that a mode returns, from those of all micro-batches in the order of the batch."""
    by_time = [values[start : start + config.replicas] for start in range(0, len(values), config.replicas)]
    if mode == "All":
        return values
    if mode == "Final":
        return by_time[-1]
    if mode == "Sum":
        return [sum(by_replica[1:], by_replica[0]) for by_replica in zip(*by_time)]
    return [value for row in by_time[period - 1 :: period] for value in row]


def row_id(value: Any) -> str:
    return counts_id(value) if isinstance(value, RunConfig) else "-".join(map(str, filter(None, value))) or "default"


NTH = itertools.product((counts(6, 1, 2), counts(2, 3, 4), counts(3, 4, 1)), (("EveryN", n) for n in (2, 3, 6)))


@pytest.mark.parametrize(("config", "mode"), [*itertools.product(TRAINING, MODES), *NTH], ids=row_id)
def test_a_mode_of_training_returns_its_micro_batches(poptorch: Any, torch: Any, config: RunConfig, mode: Any) -> None:
    """Outputs come along dimension 0, losses as a vector, a single loss as a scalar; no weight depends on the mode.

    EveryN returns the micro-batches N-1, 2N-1 and so on of each replica; by default it is the last of each.
    """
    period = period_of(mode[1], config)
    x = exact.batch(config, 2)
    expected = exact.plain_run(x, config)
    trainer, model = exact.trainer(poptorch, chosen=exact.options(poptorch, config, mode[0], period))

    out, loss = trainer(x)

    outputs, losses = (
        selected(by_call[0], config, mode[0] or "Final", period) for by_call in (expected.outputs, expected.losses)
    )
    assert_same(out, torch.cat(outputs), "the output")
    assert_same(loss, torch.stack(losses) if len(losses) > 1 else losses[0], "the loss")
    exact.assert_weights(model, expected.weights)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode[1] != "G"], ids=row_id)
@pytest.mark.parametrize("config", INFERENCE, ids=counts_id)
def test_a_mode_of_inference_returns_its_micro_batches(poptorch: Any, torch: Any, config: RunConfig, mode: Any) -> None:
    """The modes select the same micro-batches of an inference model; by default all are returned."""
    period = period_of(mode[1], config)
    model, x = exact.scale(poptorch, loss=False), exact.batch(config, 3)
    parts = list(model(x).detach().chunk(config.micro_batches))

    out = poptorch.inferenceModel(model, exact.options(poptorch, config, mode[0], period))(x)

    assert_same(out, torch.cat(selected(parts, config, mode[0] or "All", period)), "the output")


@pytest.mark.parametrize("mode", ["All", "Final", "Sum"])
def test_outputs_keep_every_bit(poptorch: Any, torch: Any, mode: str) -> None:
    """Numbers of 24 bits and integers of 31, and their sums, come back as they are."""
    config = counts(3, 1, 5)
    rows = torch.arange(config.micro_batches, dtype=torch.int32)[:, None]
    floats, integers = 2.0**22 + 1 + rows.float(), 2**28 + 1 + rows
    model = poptorch.inferenceModel(as_model(lambda model, x, n: (x * 1, n * 1)), exact.options(poptorch, config, mode))

    for out, given, what in zip(model(floats, integers), (floats, integers), ("the numbers", "the integers")):
        assert_same(out, torch.cat(selected(list(given.split(1)), config, mode, None)), what)


@pytest.mark.parametrize("period", [4, 5, 7, 12])
def test_a_period_divides_the_micro_batches(poptorch: Any, period: int) -> None:
    """EveryN with a period that is no divisor of a replica's micro-batches, or is above their number, is refused."""
    config = counts(2, 3, 4)
    trainer, _ = exact.trainer(poptorch, chosen=exact.options(poptorch, config, "EveryN", period))

    with check.raises(poptorch.Error, what=f"every {period}th of 6 micro-batches"):
        trainer(exact.batch(config))


class Pair(NamedTuple):
    """A named tuple for outputs."""

    first: Any
    second: Any


STRUCTURES = {
    "tensor": lambda a, b: a,
    "tuple": lambda a, b: (a, b),
    "one-tuple": lambda a, b: (a,),
    "list": lambda a, b: [a, b],
    "dict": lambda a, b: {"x": a, "y": b},
    "dict-in-order": lambda a, b: {"y": b, "x": a},
    "named-tuple": lambda a, b: Pair(a, b),
    "nested": lambda a, b: {"pair": (a, [b, {"again": a}]), "named": Pair(b, (a,))},
    "constants": lambda a, b: (a, None, 3, "text", {"n": 2.5, "b": b}),
    "twice": lambda a, b: (a, a),
}


@pytest.mark.parametrize("name", sorted(STRUCTURES))
def test_the_structure_of_the_output_is_kept(poptorch: Any, torch: Any, name: str) -> None:
    """Dicts, named tuples, lists and constants come back as the model returned them."""
    from torch.utils import _pytree as pytree

    def forward(model: Any, x: Any) -> Any:
        return STRUCTURES[name](x + 1, x * 2)

    x = exact.samples(6)

    actual = infer(poptorch, forward, x, options=poptorch.Options().deviceIterations(3))

    expected = forward(None, x)
    check.equal(actual=type(actual), expected=type(expected), what="the type of the output")
    structures = (pytree.tree_structure(actual), pytree.tree_structure(expected))
    check.equal(actual=structures[0], expected=structures[1], what="the structure of the output")
    for number, (leaf, value) in enumerate(zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected))):
        if isinstance(value, torch.Tensor):
            assert_same(leaf, value, f"leaf {number}")
        else:
            check.equal(actual=leaf, expected=value, what=f"leaf {number}")


@pytest.mark.parametrize("wrap", ["trainingModel", "inferenceModel"], ids=["training", "inference"])
def test_backward_of_an_output_is_an_error(poptorch: Any, wrap: str) -> None:
    """The backward pass belongs to the device; asking an output for it says so."""
    _, loss = getattr(poptorch, wrap)(exact.scale(poptorch))(exact.samples(1))

    with check.raises(poptorch.Error, match="backward", what="backward() of a loss from the device"):
        loss.backward()


def test_an_output_can_be_saved(poptorch: Any, torch: Any) -> None:
    """What came back can be written to a file and read without PopTorch."""
    import io

    model = exact.scale(poptorch, loss=False)
    file = io.BytesIO()
    torch.save({"out": poptorch.inferenceModel(model)(exact.samples(2))}, file)
    file.seek(0)

    out = torch.load(file, weights_only=True)["out"]
    assert_same(out, model(exact.samples(2)).detach(), "the output that was saved and loaded")


def test_an_output_is_no_view_of_an_input(poptorch: Any) -> None:
    """The next call does not write into what an earlier one returned, and writing into that leaves the input alone."""
    x, inference = exact.samples(2), poptorch.inferenceModel(as_model(lambda model, x: x))
    first = inference(x)
    inference(x * 4)
    assert_same(first, x, "the first output after the second call")

    first.zero_()

    assert_same(x, exact.samples(2), "the input after its output was zeroed")


def anchored(poptorch: Any, config: RunConfig, x: Any, **tensors: Tuple[str, str]) -> Callable[[str], Any]:
    """What gives the anchors of a training model after a call; ``tensors`` are their names and modes by short names."""
    options = exact.options(poptorch, config, "Final")
    for short, (name, mode) in tensors.items():
        options.anchorTensor(short, name, getattr(poptorch.OutputMode, mode))
    trainer, _ = exact.trainer(poptorch, chosen=options)
    trainer(x)
    return trainer.getAnchoredTensor


@pytest.mark.parametrize("config", [counts(2, 3, 1), counts(2, 1, 4)], ids=counts_id)
@pytest.mark.parametrize("mode", ["All", "Final", "Sum"])
def test_the_gradient_of_a_weight_can_be_anchored(poptorch: Any, torch: Any, config: RunConfig, mode: str) -> None:
    """An anchored gradient comes back for the micro-batches that its own mode selects."""
    x = exact.batch(config)
    # The step is so short that no product crosses 1: the gradients of |w x - 1| stay those of the first weights.
    start, gradients = exact.scale(poptorch), []
    for part in x.chunk(config.micro_batches):
        start.zero_grad()
        start(part)[1].backward()
        gradients.append(start.weight.grad.clone())

    anchor = anchored(poptorch, config, x, grad=("Gradient___weight", mode))

    expected = torch.cat(selected(gradients, config, mode, None))
    assert_same(anchor("grad"), expected, f"the anchored gradient in mode {mode}")


def test_two_tensors_can_be_anchored(poptorch: Any, torch: Any) -> None:
    """A gradient and the weight that it updates come back for three updates on each replica, and the last gradient."""
    config = counts(3, 1, 2)
    x, gradient = exact.batch(config), "Gradient___weight"

    anchor = anchored(
        poptorch, config, x, grad=(gradient, "All"), updated=("UpdatedVar___weight", "All"), last=(gradient, "Final")
    )

    after = [exact.plain_run(x[: 2 * done], counts(done, 1, 2)).weights["weight"] for done in (1, 2, 3)]
    updated = torch.cat([weight for weight in after for _ in range(config.replicas)])
    assert_same(anchor("updated"), updated, "the anchored weight")
    start = exact.scale(poptorch).weight.detach()
    moved = torch.stack([start, *after]).diff(dim=0) / -exact.RATE
    gradients = anchor("grad").reshape(3, config.replicas, -1)
    assert_same(gradients.mean(dim=1), moved, "the mean over replicas of the anchored gradients")
    last = anchor("last").reshape(config.replicas, -1)
    assert_same(last, gradients[-1], "the third anchor, the last gradient of each replica")


@pytest.mark.emulator
def test_a_weight_can_be_anchored_by_its_name(poptorch: Any, torch: Any) -> None:
    """It is, for each of three updates, the weight that the micro-batch was computed with."""
    config = counts(3, 1, 1)
    x = exact.batch(config)

    used = anchored(poptorch, config, x, used=("weight", "All"))("used")

    after = [exact.plain_run(x[:done], counts(done, 1, 1)).weights["weight"] for done in (1, 2)]
    assert_same(used, torch.cat([exact.scale(poptorch).weight.detach(), *after]), "the anchored weight")


def test_an_operation_can_be_anchored_by_its_name(poptorch: Any, torch: Any) -> None:
    """A tensor inside the model comes back under the short name, and getTensorNames tells its long one."""
    x = exact.samples(2)
    network = as_model(lambda model, x: torch.relu(x * 3))
    probe = poptorch.inferenceModel(network)
    probe.compile(x)
    matches = []
    for name in probe.getTensorNames():
        model = poptorch.inferenceModel(network, poptorch.Options().anchorTensor("inside", name))
        model(x)
        value = model.getAnchoredTensor("inside")
        matches.append(value.shape == x.shape and torch.equal(value, x * 3))

    check.equal(actual=sum(matches), expected=1, what="the number of tensors that hold the product")


@pytest.mark.emulator
def test_each_of_three_weights_can_be_anchored(poptorch: Any, torch: Any) -> None:
    """A name finds its own weight, also behind a module's name, and each anchor has a mode of its own."""
    parts = {name: torch.nn.Linear(1, 1, bias=False) for name in ("first", "second", "third")}
    for value, part in zip((1.0, 3.0, 5.0), parts.values()):
        torch.nn.init.constant_(part.weight, value)

    def forward(model: Any, x: Any) -> Any:
        return poptorch.identity_loss(model.first(x) + 2 * model.second(x) + 4 * model.third(x), "sum")

    model = as_model(forward, **parts)
    options = poptorch.Options().deviceIterations(2)
    options.anchorTensor("last", "third.weight").anchorTensor("both", "second.weight", poptorch.OutputMode.All)
    trainer = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.25))
    trainer(torch.ones(2, 1))

    # The gradients are 1, 2 and 4 in each of two updates; a micro-batch has the weight of before its update.
    both, last = (trainer.getAnchoredTensor(name).reshape(-1) for name in ("both", "last"))
    assert_same(both, torch.tensor([3.0, 2.5]), "the second weight in both iterations")
    assert_same(last, torch.tensor([4.0]), "the third weight in the last iteration")


@pytest.mark.emulator
def test_an_updated_weight_comes_with_every_micro_batch(poptorch: Any, torch: Any) -> None:
    """All micro-batches that are accumulated for an update show the weight after it."""
    config = counts(2, 3, 1)
    x = exact.batch(config)
    options = exact.options(poptorch, config, "Final")
    options.anchorTensor("updated", "UpdatedVar___weight", poptorch.OutputMode.All)
    trainer, _ = exact.trainer(poptorch, chosen=options)

    trainer(x)

    after = [exact.plain_run(x[: 3 * done], counts(done, 3, 1)).weights["weight"] for done in (1, 2)]
    updated = torch.cat([weight for weight in after for _ in range(3)])
    assert_same(trainer.getAnchoredTensor("updated"), updated, "the anchored weight of six micro-batches")
