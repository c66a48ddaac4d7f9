"""What the executor does inside: stages, plans, traces, threads, memory, anchors, seeds and failures."""

from __future__ import annotations

import os
from typing import Any, List

import pytest
import torch

from ipu_conformance.emulator.core import device, topology, trace
from ipu_conformance.emulator.core.engine import Engine
from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.emulator.poptorch import api
from ipu_conformance.emulator.poptorch.compile import capture


class Chain(torch.nn.Module):
    """Linear layers with dropout, placed on IPUs one after the other, and a loss."""

    def __init__(self, ipus: int, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))
        self.ipus, self.dropout = ipus, dropout

    def forward(self, x: torch.Tensor) -> Any:
        for number, layer in enumerate(self.layers):
            with api.Block(f"b{number}", ipu_id=number * self.ipus // 4):
                x = torch.nn.functional.dropout(torch.tanh(layer(x)), self.dropout)
                if number == 3:
                    loss = api.identity_loss(x * x, reduction="mean")
        return x, loss


def options(replicas: int = 1, accumulation: int = 8, iterations: int = 3, **settings: Any) -> Any:
    """Options with these factors and everything returned."""
    chosen = api.Options().replicationFactor(replicas).deviceIterations(iterations).randomSeed(5)
    chosen.Training.gradientAccumulation(accumulation)
    chosen.outputMode(api.enums.OutputMode.All)
    for name, value in settings.items():
        getattr(chosen, name)(value)
    return chosen


def train(model: Any, chosen: Any, calls: int = 2) -> List[torch.Tensor]:
    """The outputs and the final weights of a few calls."""
    trainer = api.trainingModel(model, chosen, torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5))
    count = chosen.device_iterations * chosen.Training.gradient_accumulation * chosen.replication_factor
    x = torch.linspace(-1, 1, count * 8).reshape(count * 2, 4)
    results = [trainer(x)[0] for _ in range(calls)]
    trainer.destroy()
    return [*results, *(weight.detach().clone() for weight in model.parameters())]


@pytest.mark.parametrize("strategy", ["PipelinedExecution", "ShardedExecution"])
@pytest.mark.parametrize("ipus", [2, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_cutting_a_model_changes_no_bit(ipus: int, strategy: str, dropout: float) -> None:
    """Stages on several IPUs give the outputs and weights of one IPU, dropout included."""
    whole = train(Chain(1, dropout), options())

    chosen = options()
    chosen.setExecutionStrategy(getattr(api, strategy)())
    cut = train(Chain(ipus, dropout), chosen)

    assert all(torch.equal(one, other) for one, other in zip(cut, whole))


def test_recomputing_changes_no_bit() -> None:
    """Stages that are run again for the backward pass draw the same masks and give the same weights."""
    chosen = options()
    chosen._Popart.set("autoRecomputation", 1)

    assert all(
        torch.equal(one, other) for one, other in zip(train(Chain(4, 0.5), chosen), train(Chain(4, 0.5), options()))
    )


def test_replicas_in_threads_are_replicas_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running replicas side by side changes no bit."""
    from ipu_conformance.emulator.poptorch.compile import compiled

    together = train(Chain(1, 0.5), options(replicas=4))
    monkeypatch.setattr(compiled, "Engine", lambda plan, machine, parallel: Engine(plan, machine, parallel=False))

    apart = train(Chain(1, 0.5), options(replicas=4))

    assert all(torch.equal(one, other) for one, other in zip(together, apart))


@pytest.mark.parametrize("ipus", [1, 2, 4])
def test_the_trace_is_the_plan(ipus: int, tmp_path: Any) -> None:
    """With profiling every executed slot is recorded, and written for Perfetto."""
    model = Chain(ipus)
    chosen = options(replicas=2, enableProfiling=str(tmp_path))
    trainer = api.trainingModel(model, chosen, torch.optim.SGD(model.parameters(), lr=0.1))

    trainer(torch.ones(3 * 8 * 2, 4))

    assert trace.compare(trainer.compiled.plan, trainer._trace) is None
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_nothing_is_recorded_without_profiling() -> None:
    """Recording costs time, so it waits to be asked for."""
    model = Chain(1)
    trainer = api.trainingModel(model, options(), torch.optim.SGD(model.parameters(), lr=0.1))

    trainer(torch.ones(24, 4))

    assert trainer._trace is None


def test_every_replica_has_weights_of_its_own() -> None:
    """Replicas share no memory with one another or with the host, and hold the same bits after training."""
    model = Chain(1)
    trainer = api.trainingModel(model, options(replicas=4), torch.optim.SGD(model.parameters(), lr=0.1))
    trainer(torch.linspace(0, 1, 3 * 8 * 4 * 4).reshape(-1, 4))

    held = trainer.compiled.weights.replicas
    for name in held[0]:
        assert len({weights[name].data_ptr() for weights in held}) == 4
        assert all(torch.equal(weights[name], held[0][name]) for weights in held)
        assert dict(model.named_parameters())[name].data_ptr() not in {weights[name].data_ptr() for weights in held}


def test_a_model_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory is an Error that names the IPU and its largest tensors."""
    small = device.Device(**{**vars(device.MK2), "name": "small", "tiles": 1})
    monkeypatch.setattr(topology, "Topology", lambda stages, replicas: Topology(stages, replicas, small))
    model = torch.nn.Linear(1000, 1000)

    with pytest.raises(api.Error, match="memory"):
        api.inferenceModel(model)(torch.ones(1, 1000))


def test_a_failing_run_leaves_the_model_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error on the device reaches the caller, and the next call runs."""
    calls = []

    class Fails(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    model = api.inferenceModel(Fails(), api.Options().replicationFactor(2))
    model.compile(torch.ones(2))
    machine = model.compiled.machine
    original = machine.forward

    def fail_once(*args: Any) -> Any:
        if not calls:
            calls.append(1)
            raise RuntimeError("once")
        return original(*args)

    monkeypatch.setattr(machine, "forward", fail_once)
    with pytest.raises(RuntimeError, match="once"):
        model(torch.ones(2))

    assert model(torch.ones(2)).tolist() == [2.0, 2.0]


def test_updated_weights_can_be_anchored() -> None:
    """UpdatedVar___ is the weight after the update of each device iteration."""
    model = Chain(1)
    chosen = options(iterations=2, accumulation=3)
    chosen.anchorTensor("new", "UpdatedVar___model.layers.0.bias")
    trainer = api.trainingModel(model, chosen, torch.optim.SGD(model.parameters(), lr=0.1))

    trainer(torch.linspace(0, 1, 24).reshape(6, 4))

    anchored = trainer.getAnchoredTensor("new").reshape(2, 3, 4)
    assert torch.equal(anchored, anchored[:, :1].expand(2, 3, 4))
    assert torch.equal(anchored[-1, -1], model.layers[0].bias.detach())
    assert not torch.equal(anchored[0], anchored[1])


@pytest.mark.parametrize("attribute", ["training", "scale"])
def test_attributes_set_after_wrapping_do_not_count(attribute: str) -> None:
    """A model is compiled as it was when it was wrapped."""

    class Model(torch.nn.Module):
        scale = 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (10 if self.training else 1) * self.scale

    model = Model()
    executor = api.inferenceModel(model)
    setattr(model, attribute, False if attribute == "training" else 3)

    assert executor(torch.ones(1)).item() == 10


def test_constants_and_weights_can_be_returned() -> None:
    """Outputs that no operation makes come from the device all the same."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))
            self.register_buffer("table", torch.ones(2) * 3)

        def forward(self, x: torch.Tensor) -> Any:
            return x, self.weight, self.table, torch.tensor([1.0, 2.0]) * x

    echoed, weight, table, product = api.inferenceModel(Model(), api.Options().deviceIterations(2))(torch.ones(2, 2))

    assert torch.equal(echoed, torch.ones(2, 2))
    assert weight.tolist() == [1.0] * 4
    assert table.tolist() == [3.0] * 4
    assert product.tolist() == [[1.0, 2.0]] * 2


def test_what_a_model_writes_into_its_input_comes_back() -> None:
    """The caller's tensor holds what the device wrote, micro-batch by micro-batch."""

    class Writes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return x * 2

    x = torch.tensor([1.0, 2.0, 3.0, 4.0])

    out = api.inferenceModel(Writes(), api.Options().deviceIterations(2))(x)

    assert out.tolist() == [4.0, 6.0, 8.0, 10.0]
    assert x.tolist() == [2.0, 3.0, 4.0, 5.0]


def test_changes_in_place_are_found() -> None:
    """Writes into weights and inputs are found through views, and so are the statistics of batch norm."""

    class Writes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(2)
            self.register_buffer("seen", torch.zeros(3, 2))
            self.register_buffer("read", torch.zeros(2))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            self.seen[1].copy_(y[0].detach())
            y.view(-1)[0:1].mul_(2)
            return self.norm(x) + self.read

    captured = capture.capture(Writes(), (torch.ones(4, 2), torch.ones(4, 2)), {})

    weights, inputs = capture.changed_in_place(captured)

    assert set(weights) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "seen"}
    assert inputs == {1}


def test_clipping_takes_the_norm_over_all_stages() -> None:
    """A model on four IPUs is clipped as on one: the norm is that of all gradients, not of a stage."""
    results = []
    for ipus in (1, 4):
        for replicas in (1, 2):
            model = Chain(ipus)
            optimizer = api.optim.Adam(model.parameters(), lr=0.125, max_grad_norm=2.0**-6)
            chosen = options(replicas=replicas, accumulation=16 // replicas)
            trainer = api.trainingModel(model, chosen, optimizer)
            trainer(torch.linspace(-1, 1, 16 * 3 * 4).reshape(-1, 4))
            results.append((replicas, [weight.detach().clone() for weight in model.parameters()]))
            trainer.destroy()

    for replicas in (1, 2):
        one, four = (weights for number, weights in results if number == replicas)
        assert all(torch.equal(weight_of_one, weight_of_four) for weight_of_one, weight_of_four in zip(one, four))


def test_the_file_of_the_cache_is_whole(tmp_path: Any) -> None:
    """No part of a file is left behind, and the file can be loaded into a model of its kind."""
    chosen = api.Options().enableExecutableCaching(str(tmp_path))
    api.inferenceModel(torch.nn.Linear(2, 3), chosen)(torch.ones(1, 2))

    (name,) = os.listdir(tmp_path)
    other = api.inferenceModel(torch.nn.Linear(2, 3))
    other.loadExecutable(str(tmp_path / name))

    assert name.endswith(".popef")
    assert other.isCompiled()
