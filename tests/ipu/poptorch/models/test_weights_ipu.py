"""Where weights are: on the device, on the host, and when they move."""

from __future__ import annotations

import copy
import io
from typing import Any, Callable, Dict, List

import pytest

from ipu_conformance import check

from .. import exact
from ..exact import assert_same
from ..on_device import as_model

TOUCHES: Dict[str, Callable[[Any], Any]] = {
    "parameters": lambda model: list(model.parameters()),
    "named_parameters": lambda model: dict(model.named_parameters()),
    "state_dict": lambda model: model.state_dict(),
    "attribute": lambda model: model.weight.data,
    "function": lambda model: model.weight.sum(),
    "index": lambda model: model.weight[0],
    "buffer": lambda model: model.count.item(),
    "repr": lambda model: repr(model.weight),
    "numpy": lambda model: model.weight.detach().numpy(),
    "deepcopy": lambda model: copy.deepcopy(model),
    "forward": lambda model: model(exact.samples(1)),
}


@pytest.fixture
def counted(poptorch: Any, torch: Any) -> Any:
    """A model with a weight and a buffer that counts its micro-batches."""
    return exact.scale(poptorch, first=lambda model, x: model.count.add_(1), count=torch.zeros(1))


@pytest.fixture
def trainer(poptorch: Any, counted: Any) -> Any:
    """The training model of ``counted``."""
    return exact.trainer(poptorch, model=counted)[0]


def spied(executor: Any, monkeypatch: pytest.MonkeyPatch, name: str = "copyWeightsToHost") -> List[int]:
    """A list that grows with every call of a public method."""
    calls: List[int] = []
    original = getattr(executor, name)

    def method() -> None:
        calls.append(1)
        original()

    monkeypatch.setattr(executor, name, method, raising=False)
    return calls


@pytest.mark.parametrize("name", sorted(TOUCHES))
def test_touching_a_weight_copies_once(trainer: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The first touch after a run calls copyWeightsToHost once; later ones copy nothing."""
    trainer(exact.samples(2))
    calls = spied(trainer, monkeypatch)

    TOUCHES[name](trainer.model)
    TOUCHES[name](trainer.model)

    check.equal(actual=len(calls), expected=1, what=f"the number of copies for two touches by {name}")


def test_running_alone_copies_nothing(trainer: Any, counted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is copied until a weight is read, or copyWeightsToHostIfNeeded called, which says whether it copied."""
    calls = spied(trainer, monkeypatch)

    for _ in range(3):
        trainer(exact.samples(2))

    check.equal(actual=(counted.training, calls), expected=(True, []), what="the pair of model.training and the copies")
    answers = [trainer.copyWeightsToHostIfNeeded() for _ in range(3)]
    check.equal(actual=answers, expected=[True, False, False], what="the list of answers of copyWeightsToHostIfNeeded")


def test_sending_weights_drops_what_the_device_has(
    trainer: Any, counted: Any, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """copyWeightsToDevice replaces newer weights without reading them back."""
    x = exact.samples(1)
    first, _ = trainer(x)
    calls = spied(trainer, monkeypatch)

    trainer.copyWeightsToDevice()

    check.equal(actual=len(calls), expected=0, what="the number of copies to the host")
    check.equal(actual=trainer.copyWeightsToHostIfNeeded(), expected=False, what="copyWeightsToHostIfNeeded()")
    assert_same(counted.weight, torch.tensor([1.0, -2.0]), "the weight on the host")
    assert_same(trainer(x)[0], first, "the output after sending")


def test_training_on_the_host_is_not_seen_by_the_device(poptorch: Any, torch: Any) -> None:
    """An inference model keeps the weights that it was compiled with when the host trains on."""
    model, x = exact.scale(poptorch), exact.samples(2)
    inference = poptorch.inferenceModel(model)
    before, _ = inference(x)
    optimizer = exact.sgd(model)
    model(x)[1].backward()
    optimizer.step()

    after, _ = inference(x)

    assert_same(after, before, "the output before sending")
    inference.copyWeightsToDevice()
    sent, _ = inference(x)
    check.differs(actual=sent.numpy(), other=before.numpy(), what="the output after sending")
    assert_same(sent, model(x)[0], "the output after sending")


def test_inference_follows_its_training_model(poptorch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and inference take turns on one set of weights; neither disturbs the other.

    Without a copy by hand weights are sent once after training, and not between two runs of inference.
    """
    x, config = exact.samples(2), exact.counts(2, 1, 1)
    trainer, model = exact.trainer(poptorch, config)
    inference = poptorch.inferenceModel(model)
    inference(x)
    uploads = spied(inference, monkeypatch, "copyWeightsToDevice")
    for runs in range(1, 4):
        expected = exact.plain_run(x, config, calls=runs)
        trainer(x)

        for out, _ in (inference(x), inference(x)):
            assert_same(out, x * expected.weights["weight"], f"the output after {runs} runs")
        check.equal(actual=len(uploads), expected=runs, what=f"the number of uploads after {runs} runs")
    exact.assert_weights(model, expected.weights)


def test_buffers_of_inference_stay_on_the_device(poptorch: Any, counted: Any) -> None:
    """A buffer that inference updates persists on the device, and reaches the host only by copyWeightsToHost."""
    inference = poptorch.inferenceModel(counted)
    for _ in range(3):
        inference(exact.samples(1))

    before = counted.count.item()
    inference.copyWeightsToHost()

    actual = (before, counted.count.item())
    check.equal(actual=actual, expected=(0, 3), what="the buffer on the host before and after copyWeightsToHost")


@pytest.mark.parametrize("how", ["attached", "detached", "written"])
def test_loading_a_state_reaches_the_device(poptorch: Any, torch: Any, how: str) -> None:
    """The next run computes with what load_state_dict of the executor loads, or the host writes while detached."""
    x, weight = exact.samples(2), torch.tensor([0.5, 0.25])
    trainer, model = exact.trainer(poptorch)
    trainer(x)
    if how != "attached":
        trainer.detachFromDevice()

    if how == "written":
        model.weight.data.copy_(weight)
    else:
        trainer.load_state_dict({"weight": weight})

    assert_same(trainer(x)[0], x * weight, "the output after loading")


@pytest.mark.parametrize("how", ["state_dict", "model"])
def test_a_trained_model_can_be_saved(poptorch: Any, torch: Any, how: str) -> None:
    """What torch.save writes while the model is wrapped holds the trained weights and no trace of the wrapper."""
    inner = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0))
    outer = as_model(lambda model, x: poptorch.identity_loss(model.inner(x).abs(), reduction="sum"), inner=inner)
    start = inner[0].weight.detach().clone()
    trainer, _ = exact.trainer(poptorch, model=outer)
    trainer(exact.samples(2))
    file = io.BytesIO()
    torch.save(outer.state_dict() if how == "state_dict" else outer.inner, file)
    file.seek(0)

    loaded = torch.load(file, weights_only=how == "state_dict")

    weight = loaded["inner.0.weight"] if how == "state_dict" else loaded[0].weight
    assert_same(weight, inner[0].weight, "the saved weight")
    check.differs(actual=weight.detach().numpy(), other=start.numpy(), what="the saved weight")
    expected = torch.Tensor if how == "state_dict" else torch.nn.Parameter
    check.equal(actual=type(weight), expected=expected, what="the type of the saved weight")


def test_a_shared_weight_is_one_weight(poptorch: Any, torch: Any) -> None:
    """A parameter under two names is updated by the sum of both gradients and stays shared."""
    start, x = torch.tensor([1.0, 2.0]), exact.samples(1)
    shared = torch.nn.Parameter(start.clone())

    def forward(model: Any, x: Any) -> Any:
        return poptorch.identity_loss(x * model.first + model.second, reduction="sum")

    trainer, model = exact.trainer(poptorch, model=as_model(forward, first=shared, second=shared))

    with check.accepted("training a weight that has two names"):
        trainer(x)

    check.holds(model.first is model.second, "the weight is two weights after a step.")
    assert_same(model.second, start - exact.RATE * (x[0] + 1), "the weight")


def test_a_frozen_weight_is_sent_like_the_others(poptorch: Any, torch: Any) -> None:
    """The device goes on with its own weights until it is sent the host's, those that are not trained, too."""

    def forward(model: Any, x: Any) -> Any:
        out = x * model.frozen + model.moving
        return out, poptorch.identity_loss(out, reduction="sum")

    frozen = torch.nn.Parameter(torch.tensor([2.0, 4.0]), requires_grad=False)
    model = as_model(forward, frozen=frozen, moving=torch.nn.Parameter(torch.zeros(2)))
    trainer = poptorch.trainingModel(model, poptorch.Options(), torch.optim.SGD([model.moving], lr=0.5))
    x, outputs = torch.tensor([[1.0, 3.0]]), []
    trainer(x)
    for send in (False, True):
        with torch.no_grad():
            model.frozen.copy_(torch.tensor([8.0, 16.0]))
            model.moving.zero_()
        if send:
            trainer.copyWeightsToDevice()
        outputs.append(trainer(x)[0].tolist())

    # The slope of the sum makes the moving weight smaller by a half.
    expected = [[[1.5, 11.5]], [[8.0, 48.0]]]
    check.equal(actual=outputs, expected=expected, what="the outputs before and after the host's weights are sent")


def test_a_state_with_missing_weights_is_refused(poptorch: Any, torch: Any) -> None:
    """The executor loads as strictly as the model does, unless it is told otherwise; both times the rest stays."""
    trainer, model = exact.trainer(poptorch, exact.counts(3, 1, 1))
    trainer(exact.samples(3))
    with check.raises(RuntimeError, match="weight", what="loading a state without the weight"):
        trainer.load_state_dict({})

    before = model.weight.detach().clone()
    trainer.load_state_dict({}, strict=False)
    assert_same(model.weight, before, "the weight after loading nothing")


@pytest.mark.parametrize(
    ("trained", "replicas"), [(True, 1), (True, 3), (False, 1)], ids=["without-gradient", "replicated", "frozen"]
)
def test_a_weight_without_a_part_in_the_loss_stays(poptorch: Any, torch: Any, trained: bool, replicas: int) -> None:
    """A parameter that is frozen or has no gradient is not updated, not even by weight decay; the others are."""
    model, idle = exact.scale(poptorch), torch.tensor([1.0, 2.0, 4.0])
    start, model.idle = model.weight.detach().clone(), torch.nn.Parameter(idle.clone(), requires_grad=trained)
    config = exact.counts(2, 5, replicas)
    rule = exact.sgd(model, weight_decay=0.5)

    poptorch.trainingModel(model, exact.options(poptorch, config), rule)(exact.batch(config))

    assert_same(model.idle, idle, "the weight that no output is computed from")
    check.differs(actual=model.weight.detach().numpy(), other=start.numpy(), what="the weight that is trained")


def test_weights_of_64_bits_live_in_32_on_the_device(poptorch: Any, torch: Any) -> None:
    """A float64 model computes in float32 on the device and keeps its type on the host."""
    model = exact.scale(poptorch, loss=False).double()

    out = poptorch.inferenceModel(model)(exact.samples(2).double())

    assert_same(out, exact.scale(poptorch, loss=False)(exact.samples(2)), "the output")
    check.equal(actual=model.weight.dtype, expected=torch.float64, what="the type of the weight on the host")


GROUPS = {
    "NoGrouping": (1, (0, 1, 2, 3, 4, 5, 6, 7)),
    "Consecutive": (2, (0, 0, 1, 1, 2, 2, 3, 3)),
    "Orthogonal": (2, (0, 1, 2, 3, 0, 1, 2, 3)),
}
"""The size of a group, and the group of each of eight replicas."""


@pytest.mark.parametrize(
    ("kind", "reduction"),
    [
        *((kind, "Post") for kind in GROUPS),
        ("Consecutive", "Sum"),
        ("NoGrouping", "Running"),
        ("Orthogonal", "Running"),
    ],
)
def test_groups_of_replicas_have_weights_of_their_own(poptorch: Any, torch: Any, kind: str, reduction: str) -> None:
    """With replicaGrouping the host holds one value per group, which the gradients of its replicas alone change.

    A mean that is taken after reducing divides by the number of all replicas, a running one by that of the group.
    """
    size, group = GROUPS[kind]
    accumulation = 1 if reduction == "Running" else 16
    divisor = {"Post": accumulation * len(group), "Running": size, "Sum": 1}[reduction]
    config = exact.counts(1, accumulation, len(group))
    values = torch.arange(1.0, 2 * len(group) // size + 1).reshape(-1, 2)
    model = exact.scale(poptorch)
    model.weight = torch.nn.Parameter(values.clone())
    options = exact.options(poptorch, config)
    if reduction == "Sum":
        options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    elif reduction == "Running":
        running = poptorch.MeanReductionStrategy.Running
        options.Training.setMeanAccumulationAndReplicationReductionStrategy(running)
    trainer, _ = exact.trainer(poptorch, chosen=options, model=model)
    one_per_group = poptorch.VariableRetrievalMode.OnePerGroup
    model.weight.replicaGrouping(getattr(poptorch.CommGroupType, kind), size, one_per_group)
    x, group_of = exact.batch(config), torch.tensor(group * accumulation)

    for call in range(2):
        out, _ = trainer(x)

        expected = x * values[group_of]
        assert_same(out, expected, f"the output of call {call}")
        gradients = torch.sign(expected - 1) * x
        sums = torch.zeros_like(values).index_add(0, group_of, gradients)
        values = values - exact.RATE * sums / divisor
        assert_same(model.weight, values, f"the weights of the groups after call {call}")
