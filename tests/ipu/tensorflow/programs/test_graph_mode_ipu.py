"""Programs of TensorFlow 1: what stays between runs of a session, and what the host changes in between."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Callable, Iterator, Optional

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import RATE, START, Trained, check_trained, check_weight, counts, samples, trained


def training(graph: Device, queue: Any, steps: int, wrap: Callable[[Any], Any], momentum: float = 0.0) -> Any:
    """A program that trains one weight."""
    v1 = graph.tf.compat.v1

    def body(x: Any) -> Any:
        inner = v1.train.MomentumOptimizer(RATE, momentum) if momentum else v1.train.GradientDescentOptimizer(RATE)
        return wrap(inner).minimize(graph.variable("w0", START[0]) * x)

    return graph.compile(lambda: graph.ipu.loops.repeat(steps, body, [], queue))


@pytest.mark.parametrize(("replicas", "momentum"), [(1, 0.0), (1, 0.5), (4, 0.5)])
def test_runs_go_on_from_one_another(graph: Device, replicas: int, momentum: float) -> None:
    """Weights and slots stay on the device between runs; replicas add no variables to the graph."""
    queue, v1 = graph.open(replicas).infeed(samples(4 * replicas)), graph.tf.compat.v1
    go = training(graph, queue, 2, graph.ipu.optimizers.CrossReplicaOptimizer, momentum)
    go()
    go()

    check_weight(graph.read(["w0"])[0], counts(4, replicas=replicas, momentum=momentum))
    names = [[variable.name for variable in group] for group in (v1.global_variables(), v1.trainable_variables())]
    expected = [["w0:0", "w0/Momentum:0"] if momentum else ["w0:0"], ["w0:0"]]
    check.equal(actual=names, expected=expected, what="all variables and the trainable ones")


def test_replicas_keep_their_own_values(graph: Device) -> None:
    """Without a reduction replicas differ from run to run, until the host assigns one value to all of them."""
    queue, out = graph.open(4).infeed(samples(12)), graph.outfeed(last=True)
    add = lambda x: out.enqueue(graph.variable("total", 0.0).assign_add(x))  # noqa: E731
    go, rows = graph.compile(lambda: graph.ipu.loops.repeat(1, add, [], queue)), samples(12).reshape(3, 4)
    go()
    go()
    check.identical(actual=graph.dequeue(out), expected=rows[:2].sum(axis=0), what="the totals of 2 runs, by replica")
    graph.assign("total", 100.0)
    go()
    check.identical(actual=graph.dequeue(out), expected=100 + rows[2], what="the totals after the host's, by replica")


@pytest.mark.parametrize("looped", [False, True], ids=["program", "loop"])
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_program_computes_first_values(graph: Device, replicas: int, looped: bool) -> None:
    """A tensor of the program is the first value of its variable; the initializer computes it, in its own dtype."""
    tf, v1 = graph.open(replicas).tf, graph.tf.compat.v1

    def program() -> Any:
        before = tf.constant([1.5, 2.0], tf.float16)

        def body(total: Any) -> Any:
            with v1.variable_scope("scope", use_resource=True):
                narrow = v1.get_variable("narrow", initializer=before * 2)
                wide = v1.get_variable("wide", initializer=tf.range(3.0) + 0.25)
            return total + tf.reduce_sum(tf.cast(narrow, tf.float32)) + tf.reduce_sum(wide)

        return graph.ipu.loops.repeat(5, body, [0.0]) if looped else body(0.0)

    total = graph.compile(program)()[0]
    values = {variable.name: graph.session.run(variable) for variable in v1.global_variables()}

    check.equal(actual=sorted(values), expected=["scope/narrow:0", "scope/wide:0"], what="the variables")
    narrow, wide = np.asarray([3, 4], np.float16), np.asarray([0.25, 1.25, 2.25], np.float32)
    check.identical(actual=values["scope/narrow:0"], expected=narrow, what="the first value in half")
    check.identical(actual=values["scope/wide:0"], expected=wide, what="the other")
    check.identical(actual=total, expected=np.float32(10.75 * (5 if looped else 1)), what="the sum of both")


@pytest.mark.parametrize("replicas", [1, 4])
def test_a_checkpoint_restores_every_replica(graph: Device, replicas: int, tmp_path: Any) -> None:
    """Restored training goes on as if it had not been interrupted."""
    queue = graph.open(replicas).infeed(samples(6 * replicas))
    go = training(graph, queue, 2, graph.ipu.optimizers.CrossReplicaOptimizer, momentum=0.5)
    saver = graph.tf.compat.v1.train.Saver()
    go()
    path = saver.save(graph.session, str(tmp_path / "saved"))
    go()
    weights = graph.read(["w0"])
    saver.restore(graph.session, path)
    weights += graph.read(["w0"])
    go()
    weights += graph.read(["w0"])

    rows, ways = samples(6 * replicas).reshape(3, -1), {"before it is restored": [0, 1], "then": [0], "after": [0, 2]}
    for (when, runs), weight in zip(ways.items(), weights):
        config = counts(2 * len(runs), replicas=replicas, momentum=0.5)
        expected = trained(1, config, fed=rows[runs].ravel()).weights[0]
        check.identical(actual=weight, expected=expected, what=f"the weight {when}")


@pytest.mark.parametrize("replicas", [1, 4])
def test_variables_around_a_program_are_its_weights(graph: Device, replicas: int) -> None:
    """A variable that was made before, outside of any scope, has a value for each replica too."""
    queue, v1 = graph.open(replicas).infeed(samples(3 * replicas)), graph.tf.compat.v1
    weight = v1.get_variable("outside", initializer=START[0], use_resource=True)

    def body(x: Any) -> Any:
        opt = graph.ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(RATE))
        return opt.minimize(weight * x)

    graph.repeat(3, body, queue)

    check_weight(graph.session.run(weight), counts(3, replicas=replicas))


@pytest.mark.parametrize("replicas", [1, 4])
def test_layers_that_a_program_makes_are_made_once(graph: Device, replicas: int) -> None:
    """A Keras layer made inside the program has one kernel, with the same start on every replica."""
    layer = graph.open(replicas).tf.keras.layers.Dense
    rows = np.exp2(np.arange(2 * replicas, dtype=np.float32)).reshape(-1, 1, 1)  # products with them are exact
    products = graph.outfed(2, lambda x: layer(3, use_bias=False)(x), rows, last=True)
    variables = graph.tf.compat.v1.global_variables()

    check.equal(actual=[variable.shape for variable in variables], expected=[(1, 3)], what="the shapes of all kernels")
    expected = graph.session.run(variables[0]) * rows[replicas:]
    check.identical(actual=products.reshape(replicas, 1, 3), expected=expected, what="the products, by replica")


def test_two_programs_share_variables(graph: Device) -> None:
    """A program that trains and one that evaluates use the same weights on every replica."""
    queue, evaluated = graph.open(4).infeed(samples(8)), graph.outfeed(last=True)
    train = training(graph, queue, 2, graph.ipu.optimizers.CrossReplicaOptimizer)
    with graph.ipu.scopes.ipu_scope("/device:IPU:0"):
        evaluate = graph.ipu.ipu_compiler.compile(
            lambda: graph.ipu.loops.repeat(1, lambda: evaluated.enqueue(graph.variable("w0", START[0]) * 2), [])
        )
    train()
    graph.session.run(evaluate)

    expected = np.repeat(2 * trained(1, counts(2, replicas=4)).weights, 4)
    check.identical(actual=graph.dequeue(evaluated), expected=expected, what="twice the weight, by replica")


def test_the_global_step_is_counted(graph: Device) -> None:
    """An optimizer counts updates, not mini-batches."""
    queue, v1 = graph.open(1).infeed(samples(15)), graph.tf.compat.v1
    step = v1.get_variable("step", initializer=np.int64(0), use_resource=True, trainable=False)

    def body(x: Any) -> Any:
        opt = graph.ipu.optimizers.GradientAccumulationOptimizerV2(v1.train.GradientDescentOptimizer(RATE), 3)
        return opt.minimize(graph.variable("w0", START[0]) * x, global_step=step)

    graph.repeat(15, body, queue)

    check.equal(actual=graph.session.run(step), expected=5, what="the global step after 15 mini-batches, 3 an update")


def test_an_infeed_is_initialised_first(graph: Device) -> None:
    """A program whose infeed was not initialised fails."""
    graph.open(1)
    queue = graph.ipu.ipu_infeed_queue.IPUInfeedQueue(graph.tf.data.Dataset.from_tensor_slices(samples(4)))
    go = graph.compile(lambda: graph.ipu.loops.repeat(2, lambda total, x: total + x, [0.0], queue))

    with check.raises(graph.tf.errors.FailedPreconditionError, match="", what="a run before the initializer"):
        go()


@pytest.mark.emulator
def test_every_program_leaves_a_report(graph: Device, reports: Any) -> None:
    """Each program of a graph leaves a report, the oldest from the program that was compiled first."""
    graph.open(2)
    for name in ("second", "third", "first"):
        program = lambda: graph.tf.constant(1.0) * 2  # noqa: E731
        program.__name__ = name
        graph.run(program)
    programs = [json.loads((folder / "profile.json").read_text())["program"] for folder in reports()]

    found = [(program["name"], program["replicas"]) for program in programs]
    check.equal(actual=found, expected=[("second", 2), ("third", 2), ("first", 2)], what="the programs, oldest first")


@pytest.mark.parametrize("replicas", [1, 2])
def test_layers_that_stages_make_are_made_once(graph: Device, replicas: int) -> None:
    """Layers made inside the stages of a pipeline have one kernel each, for all micro-batches and replicas."""
    tf, v1, ops = graph.open(2 * replicas).tf, graph.tf.compat.v1, graph.ipu.pipelining_ops

    def layer(weight: float) -> Any:
        return tf.keras.layers.Dense(1, use_bias=False, kernel_initializer=tf.keras.initializers.Constant(weight))

    def optimizer_function(loss: Any) -> Any:
        opt = graph.ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(RATE))
        return ops.OptimizerFunctionOutput(opt, loss)

    stages = [lambda x: layer(START[0])(x), lambda x: tf.reduce_sum(layer(START[1])(x))]
    fed = samples(4 * replicas)[:, None, None]
    (losses,) = tf.nest.flatten(graph.pipe(stages, 4, fed, optimizer_function=optimizer_function))

    kernels = np.float32(graph.session.run(v1.global_variables())).ravel()
    check_trained(Trained(kernels, losses), 2, counts(1, 4, replicas))


class Steps:
    """A graph of three steps: each sums up what it is fed, and trains on the means over replicas."""

    def __init__(self, tf: Any, ipu: Any, device: int = 0) -> None:
        self.v1 = tf.compat.v1
        with tf.Graph().as_default() as self.graph:
            elements = tf.data.Dataset.from_tensor_slices(samples(24))
            queue = ipu.ipu_infeed_queue.IPUInfeedQueue(elements, device_ordinal=device)
            out = ipu.ipu_outfeed_queue.IPUOutfeedQueue(device_ordinal=device)

            def variable(name: str, value: float, trainable: bool = True) -> Any:
                return self.v1.get_variable(name, initializer=value, use_resource=True, trainable=trainable)

            def body(total: Any, x: Any) -> Any:
                weight, added = variable("weight", 1.0), variable("added", 0.0, trainable=False).assign_add(x)
                mean = ipu.optimizers.CrossReplicaOptimizer(self.v1.train.GradientDescentOptimizer(0.5))
                step = mean.minimize(weight * x, var_list=[weight])
                return total + x, out.enqueue({"element": x, "twice": 2 * x}), step, added.op

            with ipu.scopes.ipu_scope(f"/device:IPU:{device}"):
                (self.total,) = ipu.ipu_compiler.compile(lambda: [ipu.loops.repeat(3, body, [0.0], queue)])
            self.taken, self.begin = out.dequeue(), [self.v1.global_variables_initializer(), queue.initializer]
            self.variables = {variable.op.name: variable for variable in self.v1.global_variables()}

    @contextlib.contextmanager
    def session(self) -> Iterator[Callable[[], Any]]:
        """What begins and runs the graph in a new session: the sum, what is outfed, and the variables afterwards."""
        parts = (self.begin, self.total, self.taken, self.variables)
        with self.v1.Session(graph=self.graph) as session:
            yield lambda: [session.run(part) for part in parts][1:]


BUILT = [
    pytest.param(None, 4, False, id="unconfigured"),
    *(pytest.param(before, 4, False, id=str(before)) for before in (1, 2, 8)),
    pytest.param(4, 1, False, id="4-1"),
    *(pytest.param(before, 4, True, id=f"ran-{before}", marks=pytest.mark.ipus(8)) for before in (1, 2, 8)),
]


@pytest.mark.parametrize(("before", "ipus", "ran"), BUILT)
def test_a_graph_may_be_built_under_another_configuration(
    tf: Any, ipu: Any, configure: Any, before: Optional[int], ipus: int, ran: bool
) -> None:
    """The replicas of a program are those of the configuration in force when it runs, not when it was built."""
    ipu.utils.reset_ipu_configuration()
    if before is not None:
        configure(before)
    steps = Steps(tf, ipu)
    if ran:
        with steps.session() as run:
            run()
        configure(ipus)
    with steps.session() as run:
        configure(ipus)
        total, outfed, variables = run()

    fed = samples(24)[: 3 * ipus].reshape(3, ipus)
    expected = fed if ipus > 1 else fed[:, 0]
    check.identical(actual=outfed["element"], expected=expected, what="the elements by iteration and replica")
    check.identical(actual=outfed["twice"], expected=2 * expected, what="twice the elements")
    check.identical(actual=total, expected=fed[:, 0].sum(), what="the sum of replica 0")
    check.identical(actual=variables["added"], expected=fed[:, 0].sum(), what="what replica 0 added to a variable")
    moved = np.float32(1 - 0.5 * fed.astype(np.float64).mean(axis=1).sum())
    check.identical(actual=variables["weight"], expected=moved, what="the weight after three steps of means")


@pytest.mark.ipus(5)
@pytest.mark.parametrize(("before", "ipus"), [(1, 4), (4, 1)])
def test_a_graph_of_another_device_is_built_for_its_ipus(
    tf: Any, ipu: Any, configure: Any, before: int, ipus: int
) -> None:
    """The replicas of a program for the second device are those of that device, whatever the first one has."""
    configure([1, before])
    steps = Steps(tf, ipu, device=1)
    with steps.session() as run:
        configure([1, ipus])
        _, outfed, _ = run()

    fed = samples(24)[: 3 * ipus].reshape(3, ipus)
    expected = fed if ipus > 1 else fed[:, 0]
    check.identical(actual=outfed["element"], expected=expected, what="the elements by iteration and replica")


@pytest.mark.emulator
def test_a_session_that_has_run_is_not_compiled_again(tf: Any, ipu: Any, configure: Any) -> None:
    """A session that has run its graph would run it as it was: it is refused where the IPUs are others."""
    configure(2)
    with Steps(tf, ipu).session() as run:
        run()
        configure(4)
        with check.raises(RuntimeError, match="another session", what="a run after another configuration"):
            run()
