"""The virtual IPU's core trains as specified: batching, accumulation, replication, schedules, recomputation, outputs.

No framework takes part: the suite's nets run on a machine of NumPy kernels.
"""

from dataclasses import replace

import pytest

from ipu_conformance import check, nets
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.oracle.tolerance import runs
from ipu_conformance.oracle.training.train import train as specified
from ipu_conformance.run import RunConfig, learning_rate, optimizer
from tests.unit.emulator.core import net_machine

FACTORS = RunConfig(
    device_iterations=2,
    gradient_accumulation=6,
    replicas=3,
    learning_rate=learning_rate(base=0.25),
    optimizer=optimizer("sgd", momentum=0.5),
)
"""Every factor differs from every other, and 6 micro-batches fill a pipeline of 3 stages under every schedule."""

SCHEDULES = ("sequential", "grouped", "interleaved")
NETS = ("linear", "mlp", "convnet", "bn_convnet", "residual", "tied_weights")


def staged(name, config, stages):
    """A configuration with a net cut into stages."""
    return replace(config, stages=nets.NETS[name]().cut(stages))


def compare_with_oracle(net, config, **options):
    """Train on the core and on the oracle, and compare losses, outputs, weights and statistics."""
    data = distinct_micro_batches(net, config)
    run = net_machine.train(net, config, data, **options)
    fields = ["losses", "outputs", "weights"] + (["statistics"] if net.statistics else [])
    # Stages change when things are computed, not what: one tolerance serves every cut and schedule.
    uncut = replace(config, stages=(), schedule=FACTORS.schedule, recompute=False)
    tolerance = runs.for_run(net, data, uncut)
    check.runs_equivalent(actual=run, expected=specified(net, data, config), tolerance=tolerance, fields=fields)
    return run


@pytest.mark.parametrize("name", NETS)
def test_a_net_trains_as_specified(name):
    """Unpipelined training with accumulation and replicas gives the oracle's losses, outputs and weights."""
    run = compare_with_oracle(nets.NETS[name](), FACTORS)

    assert run.updates == FACTORS.steps * FACTORS.device_iterations


@pytest.mark.parametrize("recompute", [False, True], ids=["stashed", "recomputed"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["mlp", "bn_convnet", "residual", "tied_weights"])
def test_a_pipeline_trains_as_specified(name, schedule, recompute):
    """Three stages under every schedule give the oracle's run, with and without recomputation."""
    config = replace(staged(name, FACTORS, 3), schedule=schedule, recompute=recompute)

    compare_with_oracle(nets.NETS[name](), config)


@pytest.mark.parametrize("stages", [2, 3])
def test_the_popart_schedule_trains_as_specified(stages):
    """PopART's merged last stage changes when slots run, not what they compute."""
    config = staged("mlp", FACTORS, stages)

    compare_with_oracle(nets.mlp(), config, schedule="popart")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pipelined_and_unpipelined_runs_are_bit_identical(schedule):
    """Cutting a net into stages changes no bit of its losses, outputs and weights."""
    net, data = nets.convnet(), distinct_micro_batches(nets.convnet(), FACTORS)
    whole = net_machine.train(net, FACTORS, data)
    cut = net_machine.train(net, replace(staged("convnet", FACTORS, 3), schedule=schedule), data)

    check.runs_identical(actual=cut, expected=whole, fields=["losses", "outputs", "weights"])


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_replicas_hold_identical_weights(replicas):
    """After an update every replica holds the same bits."""
    config = replace(FACTORS, replicas=replicas)
    run = net_machine.train(nets.bn_convnet(), config, distinct_micro_batches(nets.bn_convnet(), config))

    check.replicas_identical(run.weights_by_replica, step=config.steps)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["accumulation_reduction", "replica_reduction"])
def test_gradients_are_reduced_as_asked(kind, reduction):
    """Mean and sum, over micro-batches and over replicas, are four different trainings."""
    config = replace(FACTORS, learning_rate=learning_rate(base=0.03125), **{kind: reduction})

    compare_with_oracle(nets.mlp(), config)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop", "lamb"])
def test_an_optimizer_steps_as_specified(name):
    """State is kept across steps, per weight and per stage, while the learning rate changes from step to step."""
    rule = optimizer(name, epsilon=0.0625) if name != "sgd" else optimizer(name, momentum=0.75, weight_decay=0.125)
    halved = learning_rate("step", base=0.0625, size=1, gamma=0.5)
    config = replace(staged("mlp", FACTORS, 3), optimizer=rule, learning_rate=halved, device_iterations=1, steps=2)

    compare_with_oracle(nets.mlp(), config)


def test_loss_scaling_cancels():
    """A power of two as the loss scale changes no bit of the weights."""
    data = distinct_micro_batches(nets.mlp(), FACTORS)
    plain = net_machine.train(nets.mlp(), FACTORS, data)
    scaled = net_machine.train(nets.mlp(), replace(FACTORS, loss_scale=64.0), data)

    check.runs_identical(actual=scaled, expected=plain, fields=["losses", "weights"])


@pytest.mark.parametrize(
    ("mode", "period"), [("all", 1), ("every_n", 4), ("final", 1), ("sum", 1)], ids=["all", "every-4", "final", "sum"]
)
def test_outputs_come_back_as_the_mode_says(mode, period):
    """Each output mode returns its entries, in order, with the specified shape."""
    config = replace(FACTORS, output_mode=mode, output_period=period)

    compare_with_oracle(nets.mlp(), config)


def test_losses_come_back_in_the_order_of_the_feed():
    """The losses of all micro-batches stand in the order [device iteration, accumulation, replica]."""
    net, data = nets.mlp(), distinct_micro_batches(nets.mlp(), FACTORS)
    run = net_machine.train(net, FACTORS, data)

    check.outputs_in_order(
        actual=run.losses[0],
        expected=specified(net, data, FACTORS).losses[0],
        tolerance=runs.for_run(net, data, FACTORS).losses[0],
        what="the losses",
        factors={"device iteration": 2, "accumulation": 6, "replica": 3},
    )


@pytest.mark.parametrize("recompute", [False, True], ids=["stashed", "recomputed"])
@pytest.mark.parametrize("schedule", [*SCHEDULES, "popart"])
def test_what_is_executed_is_what_was_planned(schedule, recompute):
    """The trace of a run holds exactly the slots of its plan, in order."""
    config = replace(staged("mlp", FACTORS, 3), recompute=recompute)
    run = net_machine.train(nets.mlp(), config, distinct_micro_batches(nets.mlp(), config), schedule=schedule)

    check.trace_equals_plan(trace=run.trace, plan=net_machine.plan_of(config, schedule).slots())
