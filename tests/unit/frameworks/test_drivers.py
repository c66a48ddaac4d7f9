"""Drivers satisfy one protocol: they build, train, infer, have a native twin, refuse what a vendor cannot say."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from typing import Any, Dict, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check, frameworks, nets, notes, targets
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.oracle.tolerance import runs
from ipu_conformance.oracle.training.execution import slots
from ipu_conformance.oracle.training.train import train as specified
from ipu_conformance.run import RunConfig, RunError, learning_rate, optimizer

COUNTS = RunConfig(device_iterations=2, gradient_accumulation=3, steps=2, learning_rate=learning_rate(base=0.0625))
CONFIGS: Dict[str, RunConfig] = {
    "poptorch": COUNTS,
    "paddle": replace(COUNTS, output_layout="paddle", unbiased_statistics=False),
    "tensorflow": replace(COUNTS, accumulation_reduction="sum", replica_reduction="sum", output_layout="tensorflow"),
}
"""A run that each framework can express."""
FRAMEWORKS = tuple(CONFIGS)
KERAS_ADAM = {"epsilon_at": "uncorrected"}

REFUSED: Dict[str, Dict[str, Dict[str, Any]]] = {
    "poptorch": {
        "the optimizer adagrad": {"optimizer": optimizer("adagrad")},
        "gradient clipping by norm with rmsprop": {"clip_norm": 1.0, "optimizer": optimizer("rmsprop")},
        "decoupled decay of this optimizer": {"optimizer": optimizer("adam", decoupled=True)},
        "a pipeline of 2 stages with so few": {"stages": (0, 1), "gradient_accumulation": 2},
        "different reductions": {"replica_reduction": "sum"},
        "the interleaved schedule": {"schedule": "interleaved"},
        "the output layout of paddle": {"output_layout": "paddle"},
        "one update for several device iterations": {"update": "run"},
        "a rate that changes on the device": {"rate_changes": "update"},
        "the learning rate inside the velocity": {"optimizer": optimizer("sgd", rate_in_velocity=True)},
        "epsilon inside the root": {"optimizer": optimizer("rmsprop", epsilon_inside=True)},
        "epsilon beside the uncorrected root": {"optimizer": optimizer("adam", epsilon_at="uncorrected")},
        "moments without bias correction": {"optimizer": optimizer("adam", bias_correction=False)},
        "a biased running variance": {"unbiased_statistics": False},
        "the schedule noam": {"learning_rate": learning_rate("noam")},
        "a schedule in pieces": {"learning_rate": learning_rate("exponential", every=2)},
        "polynomial decay to an end": {"learning_rate": learning_rate("polynomial", end=0.001)},
        "a cosine that stays at its end": {"learning_rate": learning_rate("cosine", total=1), "steps": 3},
        "a warm-up from nothing": {"learning_rate": learning_rate("warmup")},
    },
    "paddle": {
        "Nesterov's momentum": {"optimizer": optimizer("sgd", momentum=0.5, nesterov=True)},
        "dampening": {"optimizer": optimizer("sgd", momentum=0.5, dampening=0.5)},
        "the learning rate inside the velocity": {"optimizer": optimizer("sgd", rate_in_velocity=True)},
        "epsilon inside the root": {"optimizer": optimizer("adagrad", epsilon_inside=True)},
        "epsilon beside the uncorrected root": {"optimizer": optimizer("adam", epsilon_at="uncorrected")},
        "epsilon beside the gradient or the norm": {"optimizer": optimizer("adamax")},
        "a learning rate of its own for adadelta": {"optimizer": optimizer("adadelta")},
        "weight decay with sgd": {"optimizer": optimizer("sgd", momentum=0.5, weight_decay=0.5)},
        "a rate that decays with the count": {"optimizer": optimizer("adagrad", rate_decay=0.5)},
        "decoupled decay of this optimizer": {"optimizer": optimizer("adam", decoupled=True)},
        "coupled decay of adamw": {"optimizer": optimizer("adamw", decoupled=False)},
        "moments without bias correction": {"optimizer": optimizer("adam", bias_correction=False)},
        "a limit of weights' norms": {"optimizer": optimizer("lamb", max_weight_norm=1.0)},
        "a rate that changes on the device": {"rate_changes": "update"},
        "a schedule in pieces": {"learning_rate": learning_rate("exponential", every=2)},
        "pieces that include their boundary": {"learning_rate": learning_rate("piecewise", closed=True)},
        "different reductions": {"replica_reduction": "sum"},
        "the interleaved schedule": {"schedule": "interleaved"},
        "the output layout of poptorch": {"output_layout": "poptorch"},
        "one update for several batches of a step": {"update": "run"},
        "emptying a pipeline before an update": {"stages": (0, 1), "gradient_accumulation": 1},
        "an unbiased running variance": {"unbiased_statistics": True},
        "half precision": {"dtype": "float16"},
        "accumulators in half precision": {"accumulators": "float16"},
        "stochastic rounding": {"stochastic_rounding": True},
        "a pipeline of 2 stages with so few": {"stages": (0, 1), "gradient_accumulation": 2},
        "a decay of its own for a weight with adamw": {"optimizer": optimizer("adamw"), "decays": (("fc1.bias", 0.0),)},
        "any decay of its own": {"optimizer": optimizer("lamb"), "decays": (("fc1.bias", 0.5),)},
    },
    "tensorflow": {
        "lamb in this generation": {"optimizer": optimizer("lamb", weight_decay=0.0)},
        "dampening": {"optimizer": optimizer("sgd", momentum=0.5, dampening=0.5, rate_in_velocity=True)},
        "the learning rate outside the velocity": {"optimizer": optimizer("sgd", momentum=0.5)},
        "epsilon on this side of the root": {"optimizer": optimizer("adagrad")},
        "epsilon beside the corrected root": {"optimizer": optimizer("adam")},
        "epsilon beside the gradient or the norm": {"optimizer": optimizer("adamax")},
        "a rate that decays with the count": {"optimizer": optimizer("adagrad", rate_decay=0.5, epsilon_inside=True)},
        "decay that joins the gradient": {"optimizer": optimizer("adam", weight_decay=0.5, **KERAS_ADAM)},
        "moments without bias correction": {"optimizer": optimizer("adam", bias_correction=False, **KERAS_ADAM)},
        "the schedule noam": {"learning_rate": learning_rate("noam")},
        "pieces that end before their boundary": {"learning_rate": learning_rate("piecewise")},
        "a mean over replicas": {"replicas": 2, "replica_reduction": "mean"},
        "the output layout of poptorch": {"output_layout": "poptorch"},
        "sums of outputs": {"output_mode": "sum"},
        "one update for several pipeline runs": {"update": "run"},
        "an update before a pipeline is empty": {"update": "micro_batch", "gradient_accumulation": 1},
        "a biased running variance": {"unbiased_statistics": False},
        "partial sums in half precision": {"partials": "float16"},
        "loss scaling": {"loss_scale": 2.0},
        "a pipeline of 2 stages with an uneven": {"stages": (0, 1), "gradient_accumulation": 6},
        "any decay of its own": {
            "optimizer": optimizer("adamw", **KERAS_ADAM),
            "decays": (("fc1.weight", 0.0), ("fc1.bias", 0.5)),
        },
        "a device for each stage of one": {"devices": (0,)},
    },
}
"""What a framework has no words for, and the configuration that asks for it."""


def paired(name: str) -> RunConfig:
    """Two stages on each of two replicas."""
    accumulation = 4 if name == "tensorflow" else 3
    return replace(CONFIGS[name], stages=nets.mlp().cut(2), replicas=2, gradient_accumulation=accumulation)


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> Any:
    """The driver of a framework, on the emulator."""
    targets.activate(targets.Emulator(), targets.FRAMEWORKS[request.param])
    return frameworks.load(request.param)


def on(*names: str) -> Any:
    """Parametrise a test over the drivers of frameworks, with the name of each beside it."""
    return pytest.mark.parametrize(("driver", "name"), [(name, name) for name in names], ids=names, indirect=["driver"])


def on_rows(argument: str, rows: Sequence[Tuple[str, str]]) -> Any:
    """Parametrise a test over pairs of a framework and the value of an argument."""
    return pytest.mark.parametrize(
        ("driver", "name", argument),
        [(name, name, value) for name, value in rows],
        ids=["-".join(row) for row in rows],
        indirect=["driver"],
    )


@on(*FRAMEWORKS)
def test_a_driver_satisfies_the_protocol(driver: Any, name: str) -> None:
    """Every framework's driver has the functions of the protocol, which take what it says."""
    functions = {word: function for word, function in vars(frameworks.Driver).items() if not word.startswith("_")}

    assert isinstance(driver, frameworks.Driver)
    for word, function in functions.items():
        wanted = list(inspect.signature(function).parameters)[1:]
        parameters = inspect.signature(getattr(driver, word)).parameters
        assert list(parameters)[: len(wanted)] == wanted, word
        assert all(each.default is not each.empty for each in list(parameters.values())[len(wanted) :]), word


@on(*FRAMEWORKS)
def test_a_model_begins_with_the_net_s_weights(driver: Any, name: str) -> None:
    """What a driver builds holds the initial weights and statistics under the net's names and in its orientation."""
    net, config = nets.bn_convnet(), CONFIGS[name]
    with driver.build(net, config) as model:
        weights, statistics = model.weights(), model.statistics()

    expected = {**net.initial_weights(config.seed), **net.initial_statistics()}
    assert {**weights, **statistics}.keys() == expected.keys()
    for word, value in {**weights, **statistics}.items():
        check.identical(actual=value, expected=np.float64(np.float32(expected[word])), what=word)


@pytest.mark.parametrize("way", ["train", "native"])
@on_rows("what", [(name, what) for name, rows in REFUSED.items() for what in rows])
def test_what_the_vendor_has_no_words_for_is_refused(driver: Any, name: str, what: str, way: str) -> None:
    """One sentence names what was asked for, before anything runs."""
    net = nets.bn_convnet()
    config = replace(CONFIGS[name], **REFUSED[name][what])
    reason = driver.supports(net, config)

    assert re.fullmatch(rf"[A-Z][^.:]* does not do [^.:]*{what}[^.:]*: choose another configuration for it\.", reason)
    with pytest.raises(RunError, match=re.escape(reason)):
        getattr(driver, way)(net, config, distinct_micro_batches(net, config))


@on(*FRAMEWORKS)
def test_what_the_vendor_can_say_is_supported(driver: Any, name: str) -> None:
    """There is no reason against a run that the framework can express."""
    assert driver.supports(nets.bn_convnet(), CONFIGS[name]) is None


LEGACY: Dict[str, Dict[str, Any]] = {
    "adamw in this generation": {"optimizer": optimizer("adamw", weight_decay=0.0, **KERAS_ADAM)},
    "decoupled decay in this generation": {"optimizer": optimizer("sgd", weight_decay=0.5, decoupled=True)},
    "epsilon on this side of the root": {"optimizer": optimizer("rmsprop", epsilon_inside=True)},
}


@pytest.mark.parametrize("what", LEGACY)
@on("tensorflow")
def test_what_the_older_generation_lacks_is_refused(driver: Any, name: str, what: str) -> None:
    """Optimizers of TensorFlow 2.6 have fewer words, and place some epsilons elsewhere."""
    net = nets.linear()
    config = replace(CONFIGS[name], **LEGACY[what])

    with pytest.raises(RunError, match=what):
        driver.train(net, config, distinct_micro_batches(net, config), generation="legacy")


@pytest.mark.parametrize("net", ["bn_convnet", "dropout_net"])
@on(*FRAMEWORKS)
def test_what_the_stock_framework_cannot_show_has_no_native_run(driver: Any, name: str, net: str) -> None:
    """Batch norm whose micro-batches depend on one another's absence, and chance, are refused with a sentence."""
    config = replace(CONFIGS[name], replicas=2)

    with pytest.raises(RunError, match=f"A native run of {net} does not do"):
        driver.native(nets.NETS[net](), config, distinct_micro_batches(nets.NETS[net](), config))


NATIVE = [
    *((name, f"mean-{net}") for name in FRAMEWORKS for net in ("linear", "mlp", "convnet", "residual", "tied_weights")),
    *((name, f"sum-{net}") for name in ("poptorch", "tensorflow") for net in ("mlp", "tied_weights")),
]
"""A reduction of gradients and a net; the mean over one large batch has no sum in Paddle."""


@on_rows("words", NATIVE)
def test_a_native_run_is_the_oracle_s(driver: Any, name: str, words: str) -> None:
    """The stock framework, fed an update's samples, gives the oracle's losses, outputs and weights."""
    reduction, _, net = words.partition("-")
    other: Dict[str, Any] = {} if name == "tensorflow" else {"replica_reduction": reduction}
    config = replace(CONFIGS[name], accumulation_reduction=reduction, **other)
    data = distinct_micro_batches(nets.NETS[net](), config)

    check.runs_equivalent(
        actual=driver.native(nets.NETS[net](), config, data),
        expected=specified(nets.NETS[net](), data, config),
        tolerance=runs.for_run(nets.NETS[net](), data, config),
    )


SCHEDULES = {
    "step": learning_rate("step", base=0.25, size=2, gamma=0.5),
    "multistep": learning_rate("multistep", base=0.25, milestones=(1, 3), gamma=0.5),
    "exponential": learning_rate("exponential", base=0.25, gamma=0.75),
    "polynomial": learning_rate("polynomial", base=0.25, total=3, power=2.0),
    "cosine": learning_rate("cosine", base=0.25, total=4, end=0.0625),
    "warmup": learning_rate("warmup", base=0.25, length=3, start=0.0625),
    "piecewise": learning_rate("piecewise", boundaries=(1, 2), values=(0.25, 0.0625, 0.5), closed=True),
    "inverse_time": learning_rate("inverse_time", base=0.25, gamma=0.5),
}
HAVE = {
    "poptorch": ("step", "multistep", "exponential", "polynomial", "cosine", "warmup"),
    "tensorflow": ("step", "exponential", "polynomial", "cosine", "piecewise", "inverse_time"),
}
"""The schedules that a framework has of its own; Paddle's are cases of the suite."""


@on_rows("schedule", [(name, schedule) for name, schedules in HAVE.items() for schedule in schedules])
def test_the_framework_s_scheduler_follows_the_specified_schedule(driver: Any, name: str, schedule: str) -> None:
    """The weights after every step are the oracle's; the rates come from the framework's own schedulers."""
    config = replace(
        CONFIGS[name], device_iterations=1, gradient_accumulation=1, steps=5, learning_rate=SCHEDULES[schedule]
    )
    data = distinct_micro_batches(nets.linear(), config)

    check.runs_equivalent(
        actual=driver.train(nets.linear(), config, data),
        expected=specified(nets.linear(), data, config),
        tolerance=runs.for_run(nets.linear(), data, config),
        fields=["losses", "weights"],
    )


@on(*FRAMEWORKS)
def test_a_record_says_where_it_was_made(driver: Any, name: str) -> None:
    """The record of a run on the emulator holds the weights of every step and replica, and what else it shows."""
    net, config = nets.mlp(), paired(name)
    run = driver.train(net, config, distinct_micro_batches(net, config))

    assert (run.framework, run.target, run.net, run.config) == (name, "emulator", "mlp", config)
    assert len(run.weights_by_step) == config.steps
    assert len(run.weights_by_replica) == config.replicas
    assert set(run.weights) == {weight.name for weight in net.weights}
    assert run.environment[targets.FRAMEWORKS[name].module]
    assert {slot.replica for slot in run.trace} == {0, 1}
    if name == "tensorflow":
        assert run.updates == config.steps * config.device_iterations


@pytest.mark.parametrize("schedule", ["grouped", "interleaved", "sequential"])
@on("tensorflow")
def test_the_slots_of_a_keras_model_follow_the_oracle_s_order(driver: Any, name: str, schedule: str) -> None:
    """Every stage takes micro-batches in the specified order on every replica, and the memory of each IPU is told."""
    net, told = nets.mlp(), []
    stages = tuple(3 * number // len(net.layers) for number in range(len(net.layers)))
    config = replace(CONFIGS[name], stages=stages, schedule=schedule, gradient_accumulation=6, replicas=2, steps=1)
    with notes.heard_by(lambda kind, facts: told.append(facts) if kind == "timeline" else None):
        run = driver.train(net, config, distinct_micro_batches(net, config))

    for replica in range(config.replicas):
        executed = [(str(slot.kind), slot.stage, slot.micro_batch) for slot in run.trace if slot.replica == replica]
        specified_order = list(slots(schedule, 3, 6, True))
        for what in [(kind, stage) for kind in ("forward", "backward") for stage in range(3)]:
            assert [each for each in executed if each[:2] == what] == [
                each for each in specified_order if each[:2] == what
            ]
        for micro_batch in range(6):
            assert [each for each in executed if each[2] == micro_batch] == [
                each for each in specified_order if each[2] == micro_batch
            ]
    (timeline,) = told
    assert [row["ipu"] for row in timeline["memory"]] == [0, 1, 2, 3]  # a replica has a power of two
    assert all(row["peak"] > row["weights"] > 0 for row in timeline["memory"][:3])


@on(*FRAMEWORKS)
def test_a_target_without_an_inspector_is_not_looked_into(
    driver: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What such a target does not show is None in the record."""
    monkeypatch.setattr(targets.Emulator, "inspector", targets.Target.inspector)
    net, config = nets.linear(), CONFIGS[name]
    run = driver.train(net, config, distinct_micro_batches(net, config))

    assert driver.inspect() is None
    assert (run.weights_by_replica, run.statistics_by_replica, run.trace) == (None, None, None)


@pytest.mark.parametrize(("schedule", "planned"), [("grouped", "popart"), ("sequential", "sequential")])
@on("poptorch", "paddle")
def test_a_plan_follows_the_strategy(driver: Any, name: str, schedule: str, planned: str) -> None:
    """Pipelined execution is planned by PopART's schedule, sharded execution one slot at a time."""
    plan = driver.inspect().plan(replace(paired(name), schedule=schedule))

    assert (plan.schedule.name, plan.stages, plan.replicas, plan.updates) == (planned, 2, 2, 2)


@on("poptorch")
def test_weights_of_steps_can_be_left_on_the_device(driver: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them weights come home once, at the end."""
    executor = driver.poptorch.PoplarExecutor
    calls = []
    original = executor.copyWeightsToHost

    def counted(self: Any) -> None:
        calls.append(self)
        original(self)

    monkeypatch.setattr(executor, "copyWeightsToHost", counted)
    net, config = nets.linear(), CONFIGS[name]
    run = driver.train(net, config, distinct_micro_batches(net, config), weights_of_steps=False)

    assert run.weights_by_step is None
    assert len(calls) == 1


@on("paddle")
def test_the_mode_is_put_back(driver: Any, name: str) -> None:
    """A driver that ran in static mode leaves dynamic mode as it found it."""
    import paddle

    paddle.disable_static()
    net, config = nets.linear(), CONFIGS[name]
    driver.native(net, config, distinct_micro_batches(net, config))

    assert paddle.in_dynamic_mode()


@on("tensorflow")
def test_a_net_with_dropout_drops(driver: Any, name: str) -> None:
    """What a net with dropout gives in training is not what the oracle gives with all values kept."""
    net, config = nets.dropout_net(), CONFIGS[name]
    data = distinct_micro_batches(net, config)
    kept = specified(net, data, config, masks=lambda layer, place, shape, rate: np.ones(shape))

    assert not np.allclose(driver.train(net, config, data).outputs[0], (kept.outputs or ())[0])
