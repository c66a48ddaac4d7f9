"""Programs of TensorFlow 1: what stays between runs of a session, and what the host changes in between."""

from __future__ import annotations

import json
from typing import Any, Callable, List, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import RATE, START, check_weight, counts, samples, trained


@pytest.fixture
def graph(tf: Any, ipu: Any, configure: Any) -> Any:
    """A device that runs programs in a session."""
    device = Device(tf, ipu, configure, "graph")
    yield device
    device.close()


def weight_of(graph: Device) -> Any:
    """The weight, made on the device."""
    return graph.variable("w0", START[0])


def training(graph: Device, queue: Any, steps: int, wrap: Callable[[Any], Any], momentum: float = 0.0) -> Any:
    """A program that trains one weight."""
    v1 = graph.tf.compat.v1

    def body(x: Any) -> Any:
        weight = weight_of(graph)
        inner = v1.train.MomentumOptimizer(RATE, momentum) if momentum else v1.train.GradientDescentOptimizer(RATE)
        return wrap(inner).minimize(weight * x)

    return graph.compile(lambda: graph.ipu.loops.repeat(steps, body, [], queue))


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_runs_go_on_from_one_another(graph: Device, replicas: int, momentum: float) -> None:
    """Weights and slots stay on the device between runs of a session."""
    graph.open(replicas)
    queue = graph.infeed(samples(4 * replicas))
    go = training(graph, queue, 2, graph.ipu.optimizers.CrossReplicaOptimizer, momentum)
    go()
    go()

    check_weight(graph.read(["w0"])[0], counts(4, replicas=replicas, momentum=momentum))


@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_are_no_variables_of_the_graph(graph: Device, replicas: int) -> None:
    """A graph has the variables that the program makes, however many replicas there are; a saver saves only them."""
    graph.open(replicas)
    queue = graph.infeed(samples(2 * replicas))
    training(graph, queue, 2, graph.ipu.optimizers.CrossReplicaOptimizer, momentum=0.5)
    v1 = graph.tf.compat.v1

    assert [variable.name for variable in v1.global_variables()] == ["w0:0", "w0/Momentum:0"]
    assert [variable.name for variable in v1.trainable_variables()] == ["w0:0"]


def test_replicas_keep_their_own_values(graph: Device) -> None:
    """Without a reduction replicas go apart, and stay apart from run to run."""
    graph.open(2)
    queue, out = graph.infeed(samples(8)), graph.outfeed(last=True)

    def body(x: Any) -> Any:
        total = graph.variable("total", 0.0)
        return out.enqueue(total.assign_add(x))

    go = graph.compile(lambda: graph.ipu.loops.repeat(2, body, [], queue))
    go()
    go()

    check.identical(actual=graph.dequeue(out), expected=samples(8).reshape(4, 2).sum(axis=0), what="the totals")


def test_the_host_writes_to_all_replicas(graph: Device) -> None:
    """A variable that the host assigns has that value on every replica in the next run."""
    graph.open(2)
    queue, out = graph.infeed(samples(8)), graph.outfeed(last=True)

    def body(x: Any) -> Any:
        total = graph.variable("total", 0.0)
        return out.enqueue(total.assign_add(x))

    go = graph.compile(lambda: graph.ipu.loops.repeat(2, body, [], queue))
    go()
    graph.assign("total", 100.0)
    go()

    expected = 100 + samples(8).reshape(4, 2)[2:].sum(axis=0)
    check.identical(actual=graph.dequeue(out), expected=expected, what="the totals")


def stepped(state: Tuple[float, float], gradients: Sequence[float]) -> Tuple[float, float]:
    """A weight and its velocity after steps with these gradients."""
    weight, velocity = state
    for gradient in gradients:
        velocity = 0.5 * velocity + gradient
        weight -= RATE * velocity
    return weight, velocity


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_checkpoint_restores_every_replica(graph: Device, replicas: int, tmp_path: Any) -> None:
    """Training that is restored goes on as if it had not been interrupted."""
    graph.open(replicas)
    queue = graph.infeed(samples(6 * replicas))
    go = training(graph, queue, 2, graph.ipu.optimizers.CrossReplicaOptimizer, momentum=0.5)
    saver = graph.tf.compat.v1.train.Saver()
    go()
    path = saver.save(graph.session, str(tmp_path / "saved"))
    go()
    after = graph.read(["w0"])
    saver.restore(graph.session, path)
    restored = graph.read(["w0"])
    go()

    rows = samples(6 * replicas).reshape(3, 2, replicas).mean(axis=2).tolist()
    saved = stepped((START[0], 0.0), rows[0])
    expected = [stepped(saved, rows[1])[0], saved[0], stepped(saved, rows[2])[0]]
    assert [after[0], restored[0], graph.read(["w0"])[0]] == expected


@pytest.mark.parametrize("replicas", [1, 2])
def test_variables_around_a_program_are_its_weights(graph: Device, replicas: int) -> None:
    """A variable that was made before, outside of any scope, has a value for each replica too."""
    graph.open(replicas)
    v1 = graph.tf.compat.v1
    queue = graph.infeed(samples(3 * replicas))
    weight = v1.get_variable("outside", initializer=START[0], use_resource=True)

    def body(x: Any) -> Any:
        opt = graph.ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(RATE))
        return opt.minimize(weight * x)

    go = graph.compile(lambda: graph.ipu.loops.repeat(3, body, [], queue))
    go()

    check_weight(graph.session.run(weight), counts(3, replicas=replicas))


@pytest.mark.parametrize("replicas", [1, 2])
def test_layers_that_a_program_makes_are_made_once(graph: Device, replicas: int) -> None:
    """A Keras layer that is made inside the program has one kernel, with the same start on every replica."""
    graph.open(replicas)
    tf, out = graph.tf, graph.outfeed(last=True)
    queue = graph.infeed(samples(2 * replicas)[:, None, None])

    def body(x: Any) -> Any:
        layer = tf.keras.layers.Dense(3, use_bias=False)
        return out.enqueue(layer(x) / x)

    go = graph.compile(lambda: graph.ipu.loops.repeat(2, body, [], queue))
    go()
    variables: List[Any] = tf.compat.v1.global_variables()
    (kernel,) = graph.session.run(variables)
    got = graph.dequeue(out).reshape(replicas, 3)
    allowed = 2 * np.spacing(np.abs(kernel[0]))

    assert len(variables) == 1
    assert (np.abs(got - kernel[0]) <= allowed).all(), "a product and a quotient are each rounded once"


def test_two_programs_share_variables(graph: Device) -> None:
    """A program that trains and one that evaluates use the same weights, on their own numbers of replicas."""
    graph.open(2)
    queue, evaluated = graph.infeed(samples(4)), graph.outfeed(last=True)
    train = training(graph, queue, 2, graph.ipu.optimizers.CrossReplicaOptimizer)
    with graph.ipu.scopes.ipu_scope("/device:IPU:0"):
        evaluate = graph.ipu.ipu_compiler.compile(
            lambda: graph.ipu.loops.repeat(1, lambda: evaluated.enqueue(weight_of(graph) * 2), [])
        )
    train()
    graph.session.run(evaluate)

    weight = trained(1, counts(2, replicas=2)).weights[0]
    check.identical(
        actual=graph.dequeue(evaluated), expected=np.asarray([2 * weight] * 2, np.float32), what="what it evaluates"
    )


def test_the_global_step_is_counted(graph: Device) -> None:
    """An optimizer counts updates, not mini-batches."""
    graph.open(1)
    v1, queue = graph.tf.compat.v1, graph.infeed(samples(6))
    step = v1.get_variable("step", initializer=np.int64(0), use_resource=True, trainable=False)

    def body(x: Any) -> Any:
        opt = graph.ipu.optimizers.GradientAccumulationOptimizerV2(v1.train.GradientDescentOptimizer(RATE), 3)
        return opt.minimize(weight_of(graph) * x, global_step=step)

    graph.compile(lambda: graph.ipu.loops.repeat(6, body, [], queue))()

    assert graph.session.run(step) == 2


def test_an_infeed_is_initialised_first(graph: Device) -> None:
    """A program that is run before its infeed was initialised fails."""
    graph.open(1)
    queue = graph.ipu.ipu_infeed_queue.IPUInfeedQueue(graph.tf.data.Dataset.from_tensor_slices(samples(4)))
    go = graph.compile(lambda: graph.ipu.loops.repeat(2, lambda total, x: total + x, [0.0], queue))

    with pytest.raises(graph.tf.errors.FailedPreconditionError):
        go()


def test_every_program_leaves_a_report(graph: Device, reports: Any) -> None:
    """Two programs of a graph leave two reports, the older one from the program that was compiled first."""
    graph.open(2)

    def first() -> Any:
        return graph.tf.constant(1.0) * 2

    def second() -> Any:
        return graph.tf.constant(3.0) * 4

    for program in (first, second):
        graph.run(program)
    profiles = [json.loads((folder / "profile.json").read_text()) for folder in reports()]

    assert [profile["program"]["name"] for profile in profiles] == ["first", "second"]
    assert [profile["program"]["replicas"] for profile in profiles] == [2, 2]


@pytest.mark.parametrize("replicas", [1, 2])
def test_layers_that_stages_make_are_made_once(graph: Device, replicas: int) -> None:
    """Layers made inside the stages of a pipeline have one kernel each, for all micro-batches and replicas."""
    graph.open(2 * replicas)
    tf, v1, ops = graph.tf, graph.tf.compat.v1, graph.ipu.pipelining_ops
    queue, out = graph.infeed(samples(4 * replicas)[:, None, None]), graph.outfeed()

    def layer(weight: float) -> Any:
        return tf.keras.layers.Dense(1, use_bias=False, kernel_initializer=tf.keras.initializers.Constant(weight))

    def optimizer_function(loss: Any) -> Any:
        opt = graph.ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(RATE))
        return ops.OptimizerFunctionOutput(opt, loss)

    go = graph.compile(
        lambda: ops.pipeline(
            [lambda x: layer(START[0])(x), lambda x: tf.reduce_sum(layer(START[1])(x))],
            gradient_accumulation_count=4,
            infeed_queue=queue,
            outfeed_queue=out,
            optimizer_function=optimizer_function,
        )
    )
    go()
    variables: List[Any] = v1.global_variables()
    got = np.float32(graph.session.run(variables)).ravel()

    expected = trained(2, counts(1, 4, replicas))
    check.identical(actual=got, expected=expected.weights, what="the kernels")
    check.identical(actual=graph.dequeue(out), expected=expected.losses, what="the losses")
