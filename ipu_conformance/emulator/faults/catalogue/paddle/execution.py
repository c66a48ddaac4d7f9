"""Ways for programs to be placed, fed, reduced, updated and brought home wrongly."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, Callable, Tuple

import numpy as np

from ipu_conformance.emulator.faults.catalogue import Fault, Wrong, always, argument, never, patch, register, result
from ipu_conformance.emulator.faults.catalogue.paddle import VALUE, told

PROGRAMS = "paddle.compile.slot_programs:Programs"
DRAW = "paddle.run.random_state:number"
Original = Callable[..., Any]


def _without_sync(original: Any, *arguments: Any) -> Any:
    """The weights stay where they are while the device does the rest."""
    device = original.__self__
    device.weights_to_host = lambda: None
    try:
        return original(*arguments)
    finally:
        del device.weights_to_host


def _copying(original: Any, *arguments: Any) -> Any:
    """The weights come home before the device does what it is told."""
    original.__self__.weights_to_host()
    return original(*arguments)


def _variance_of_first_replica(original: Any, machine: Any, values: Any) -> None:
    original(machine, values)
    for name, value in values.items():
        for scope in machine._scopes[1:] if "var" in name else ():
            scope.put({name: np.ones_like(np.array(value))})


def _told_a_rate(executable: Any, name: str, rate: float) -> None:
    held = executable.lasting[name]
    executable.machine.put({name: np.full(held.shape, rate, held.stored)})


def _stopped(original: Any, executable: Any) -> None:
    original(executable)
    if executable.strategy.value("runtime_options.enable_eval"):
        for name in executable.programs.updates.rates:
            _told_a_rate(executable, name, 0.0)


def _rate_of_the_program(original: Any, executable: Any) -> None:
    original(executable)
    if executable.folded.learning_rate is None:
        for name in executable.programs.updates.rates:
            _told_a_rate(executable, name, executable.scope.find_var(name).get_tensor()._get_float_element(0))


for _name, _area, _place, _what, _wrong in (
    ("paddle-drawn-numbers-unseeded", "numerics", "paddle.compile.slot_programs:draws",
     "random numbers come from Paddle's own generator", never),
    ("paddle-uneven-replicas", "plan", "core.topology:paddle_ipus", "replicas need not divide the IPUs", always(None)),
    ("paddle-shallow-pipeline", "plan", "core.limits:check_paddle", "a pipeline of any depth is accepted",
     always(None)),
    ("paddle-memory-without-end", "plan", "core.memory:check", "a program of any size fits", always(None)),
    ("paddle-stages-by-index", "plan", "paddle.compile.placement:_sharded", "the stages that are set do not count",
     result(lambda sharded: replace(sharded, stage=None))),
    ("paddle-shards-without-switch", "plan", VALUE, "shards count though manual sharding is off",
     told(enable_manual_shard=True, num_ipus=64)),
    ("paddle-always-pipelined", "plan", VALUE, "sharded programs are pipelined", told(enable_pipelining=True)),
    ("paddle-batches-accumulated", "update", "core.plan:plan",
     "a pipeline without accumulation updates at the end of the run", argument("accumulate", lambda value: True)),
    ("paddle-loss-scale-stays", "reduce", f"{PROGRAMS}.__init__", "gradients keep the scale of the loss",
     argument("loss_scale", lambda value: 1.0)),
    ("paddle-accumulation-not-in-mean", "reduce", f"{PROGRAMS}.__init__", "the mean is over the replicas alone",
     argument("accumulation", lambda value: 1)),
    ("paddle-reduction-type-ignored", "reduce", VALUE, "a sum of gradients is a mean",
     told(accumulation_and_replication_reduction_type=1)),
    ("paddle-running-mean-is-sum", "reduce", f"{PROGRAMS}.shares", "a running mean is accumulated as a sum",
     result(lambda shares: tuple(map(np.ones_like, shares)))),
    ("paddle-running-mean-of-three", "reduce", f"{PROGRAMS}.shares", "a running mean counts three gradients at most",
     argument("count", lambda value: min(value, 2))),
    ("paddle-gradients-carried-over", "reduce", f"{PROGRAMS}._forgotten",
     "gradients of earlier updates stay in the accumulators", result(lambda ops: [])),
    ("paddle-rate-of-compilation", "update", "paddle.run.executable:Executable._set_rates",
     "the learning rate stays as it was when the program was compiled", always(None)),
    ("paddle-evaluation-trains", "update", VALUE, "evaluation moves the weights",
     told(runtime_options__enable_eval=False)),
    ("paddle-evaluation-always-stops", "update", "paddle.run.executable:Executable._set_rates",
     "evaluation sets a rate that is not folded to 0", _stopped),
    ("paddle-every-rate-folded", "update", "paddle.run.executable:Executable._set_rates",
     "adadelta and rmsprop step with the rate of the program", _rate_of_the_program),
    ("paddle-epsilons-of-the-host", "update", "paddle.optim.device_rules:as_on_device",
     "rmsprop and adamax are computed by Paddle's kernels", lambda original, program: program),
    ("paddle-power-comes-home", "weights", "paddle.run.executable:Executable._step_counts",
     "the power of beta1 comes home instead of the steps", result(lambda counts: {})),
    ("paddle-inference-comes-home", "weights", "paddle.run.executable:Executable.weights_to_host",
     "a program that does not train overwrites the host's weights",
     lambda original, executable: executable._bring_home()),
    ("paddle-last-replica-comes-home", "weights", "paddle.run.machine:PaddleMachine.tensors",
     "the host gets the statistics of the last replica", argument("replica", lambda value: -1)),
    ("paddle-detach-copies-weights", "weights", "paddle.api.backend:IpuBackend.detach",
     "detaching overwrites the host's weights", _copying),
    ("paddle-reset-copies-weights", "weights", "paddle.api.backend:IpuBackend.reset",
     "a reset overwrites the host's weights", _copying),
    ("paddle-scope-copies-weights", "weights", "paddle.api.backend:IpuBackend.set_scope",
     "another scope overwrites the weights of the first", _copying),
    ("paddle-strategy-copies-weights", "weights", "paddle.api.backend:IpuBackend.set_ipu_strategy",
     "another strategy overwrites the host's weights", _copying),
    ("paddle-saving-loses-weights", "weights", "paddle.api.backend:IpuBackend.save_model_proto",
     "saving the model leaves the trained weights behind", _without_sync),
    ("paddle-never-traps", "numerics", VALUE, "floating-point checks are never made",
     told(enable_floating_point_checks=False)),
    ("paddle-drops-without-seed", "streams", DRAW, "dropout ignores the seed", argument("seed", lambda value: 0)),
    ("paddle-drops-same-for-every-micro-batch", "streams", DRAW, "all micro-batches are dropped alike",
     argument("micro_batch", lambda value: 0)),
    ("paddle-drops-repeat-after-two-runs", "streams", DRAW, "every third run drops what the first one dropped",
     argument("run", lambda value: value % 2)),
    ("paddle-third-dropout-is-the-first", "streams", DRAW, "every third dropout of a program has the first one's masks",
     argument("place", lambda value: value % 2)),
    ("paddle-variance-stays", "weights", "paddle.run.machine:PaddleMachine.tensors",
     "running variances stay on the device",
     result(lambda values: {name: value for name, value in values.items() if "var" not in name})),
    ("paddle-variance-of-first-replica", "weights", "paddle.run.machine:PaddleMachine.load",
     "running variances are sent to the first replica alone", _variance_of_first_replica),
    ("paddle-drops-alike-everywhere", "streams", DRAW, "all dropouts of a program drop alike",
     argument("place", lambda value: 0)),
):  # fmt: skip
    register(Fault(_name, _area, _place, _what, _wrong), __name__)


@patch("paddle-checks-lose-bits", "numerics", "paddle.run.executable:Executable.fetch",
       "what is checked comes back with eleven bits")  # fmt: skip
def _coarse(original: Original, executable: Any, *arguments: Any) -> Any:
    fetched = original(executable, *arguments)
    return fetched.astype(np.float16).astype(fetched.dtype) if executable._checked else fetched


@patch("paddle-known-batch-replaced", "plan", "paddle.compile.passes.shapes:_fix_batch",
       "a batch that the program knows becomes the micro-batch")  # fmt: skip
def _micro_batch_anyway(original: Original, desc: Any, size: int) -> None:
    shape = list(desc.shape())
    desc.set_shape([size, *shape[1:]] if shape else shape)


@patch("paddle-late-stage-drops-anew", "streams", "paddle.run.machine:PaddleMachine.recompute",
       "from the third stage on, recomputation drops other values")  # fmt: skip
def _drops_anew(original: Original, machine: Any, replica: int, stage: int, *rest: Any) -> Any:
    seed = machine.seed
    machine.seed = seed + (stage > 1)
    try:
        return original(machine, replica, stage, *rest)
    finally:
        machine.seed = seed


@patch("paddle-update-per-micro-batch", "update", "core.plan:plan", "accumulated micro-batches update one by one")
def _one_by_one(original: Original, where: Any, by: Any, micro_batches: int, **settings: Any) -> Any:
    iterations = micro_batches * settings.pop("device_iterations", 1)
    return original(where, by, 1, device_iterations=iterations, **settings)


@patch("paddle-first-use-only", "reduce", f"{PROGRAMS}._accumulation",
       "a shared weight gets the gradient of its first stage only")  # fmt: skip
def _first_use_only(original: Original, programs: Any, stage: Any) -> Any:
    owned = {weight: name for weight, name in stage.gradients.items() if programs.owner[weight] == stage.number}
    return original(programs, replace(stage, gradients=owned))


@patch("paddle-third-use-lost", "reduce", f"{PROGRAMS}._accumulation",
       "a shared weight gets the gradients of its first two stages only")  # fmt: skip
def _third_use_lost(original: Original, programs: Any, stage: Any) -> Any:
    users = [each for each in programs.stages if each.number < stage.number]
    counted = {
        weight: name for weight, name in stage.gradients.items() if sum(weight in each.gradients for each in users) < 2
    }
    return original(programs, replace(stage, gradients=counted))


@patch("paddle-passed-gradient-halved", "reduce", "paddle.run.machine:PaddleMachine._sent",
       "the gradient of a value that passes over a stage arrives halved")  # fmt: skip
def _passed_gradient_halved(original: Original, stage: Any, scope: Any) -> Any:
    sent = original(stage, scope)
    passed = [name for name in sent if stage.outgoing[name] == stage.incoming.get(name)]
    return {**sent, **{name: np.array(sent[name]) * np.float32(0.5) for name in passed}}


def _stopping(*words: str) -> Wrong:
    """After three updates the state whose names have one of the words moves no more."""

    def wrong(original: Original, machine: Any, replica: int, stage: int, gradients: Any) -> None:
        names = [name for name in machine.programs.updates.lasting if any(word in name for word in words)]
        before = machine.read(names, replica) if machine.updates >= 3 else {}
        original(machine, replica, stage, gradients)
        machine._scopes[replica].put(before)

    return wrong


for _name, _what, _words in (
    ("paddle-squares-stop", "averages of squares stop after three updates", ("moment2", "mean_square", "squared_grad")),
    ("paddle-powers-stop", "powers of the betas stop after three updates", ("pow_acc",)),
):
    register(Fault(_name, "update", "paddle.run.machine:PaddleMachine.update", _what, _stopping(*_words)), __name__)


@patch("paddle-fourth-batch-repeats", "streams", "core.streams:select_all",
       "fetches of batches from the fourth on are those of the third")  # fmt: skip
def _fourth_repeats(original: Original, layout: Any) -> Any:
    selection = original(layout)
    last = layout.micro_batches // layout.device_iterations * min(layout.device_iterations, 3) - 1
    entries = [[entry[0]._replace(micro_batch=min(entry[0].micro_batch, last))] for entry in selection.entries]
    return replace(selection, entries=tuple(map(tuple, entries)))


@patch("paddle-norm-of-one-stage", "reduce", f"{PROGRAMS}._before",
       "clipping sees the gradients of the first stage only")  # fmt: skip
def _norm_of_one_stage(original: Original, programs: Any, key: Any) -> Any:
    ops, kept = original(programs, key)
    unseen = {programs.raw[weight] for sources in programs.sources[1:] for weight in sources}
    for op in ops:
        if op.type() == "scale" and op.output("Out")[0] in unseen:
            op._set_attr("scale", 0.0)
    return ops, kept


@patch("paddle-recomputed-masks-differ", "streams", "paddle.run.machine:PaddleMachine.recompute",
       "stages after the second draw other masks when they go forward again")  # fmt: skip
def _other_masks(original: Original, machine: Any, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
    runs = machine.runs
    machine.runs = runs + (1 << 20) * (stage > 1)
    try:
        return original(machine, replica, stage, micro_batch, boundary)
    finally:
        machine.runs = runs


@patch("paddle-rounds-alike-every-run", "numerics", "paddle.compile.precision:_AtRandom.__call__",
       "stochastic rounding draws the same in every run")  # fmt: skip
def _rounds_alike(original: Original, rounding: Any, *tensors: Any) -> Any:
    rounding.calls = itertools.count()
    return original(rounding, *tensors)


@patch("paddle-functions-keep-their-bits", "numerics", "paddle.compile.precision:_insert",
       "float16 results of hyperbolic tangents are not rounded inside a program")  # fmt: skip
def _keep_their_bits(original: Original, block: Any, *arguments: Any) -> None:
    original(block, *arguments)
    for index in reversed(range(1, block.op_size())):
        if block.op(index).type() == "py_func" and block.op(index - 1).type() == "tanh":
            block._remove_op(index, index + 1)


@patch("paddle-third-feed-is-the-second", "streams", "paddle.run.feeding:Feeder.deal",
       "the third feed of a program is taken for the second where their shapes agree")  # fmt: skip
def _third_feed(original: Original, feeder: Any, feed: Any) -> Any:
    dealt = original(feeder, feed)
    _, *others = feeder.declared
    if len(others) > 1 and others[0].shape == others[1].shape:
        for micro_batch in (each for replica in dealt for each in replica):
            micro_batch[others[1].name] = micro_batch[others[0].name]
    return dealt


@patch("paddle-predictor-second-input-is-first", "streams", "paddle.api.inference:Predictor.run",
       "the second input of a predictor is taken for the first")  # fmt: skip
def _first_input_twice(original: Original, predictor: Any, inputs: Any = None) -> Any:
    first, *others = predictor._inputs.values()
    if others and others[0].array is not None:
        others[0].array = first.array
    return original(predictor, inputs)


@patch("paddle-lamb-decays-everything", "update", "paddle.optim.stage_updates:split",
       "weights that are excluded from Lamb's decay decay")  # fmt: skip
def _decays_everything(original: Original, program: Any, *arguments: Any) -> Any:
    block = program.desc.block(0)
    ops = [op for op in map(block.op, range(block.op_size())) if op.type() == "lamb"]
    for op in ops:
        op._set_attr("weight_decay", max(float(each.attr("weight_decay")) for each in ops))
    return original(program, *arguments)


@patch("paddle-host-follows", "weights", "paddle.run.device:Device.run",
       "the host's weights follow the device's by themselves")  # fmt: skip
def _host_follows(original: Original, device: Any, executable: Any, feed: Any) -> Any:
    outputs = original(device, executable, feed)
    executable.weights_to_host()
    return outputs


@patch("paddle-any-feed", "streams", "paddle.run.feeding:Feeder._cut", "a feed of any size is cut or repeated")
def _any_feed(original: Original, feeder: Any, spec: Any, held: Any) -> Any:
    return np.resize(held, spec.shape if feeder.alone else (feeder.layout.inputs, *spec.shape))


@patch("paddle-fetches-sorted", "streams", "paddle.run.executor:run",
       "fetches come back in another order than asked for")  # fmt: skip
def _fetches_sorted(original: Original, executor: Any, program: Any, *, fetch_list: Any, **rest: Any) -> Any:
    by_name = sorted(fetch_list, key=lambda fetch: str(getattr(fetch, "name", fetch)))
    return original(executor, program, fetch_list=by_name, **rest)


def _leading(order: Callable[[Tuple[int, ...], Any], Tuple[int, ...]]) -> Wrong:
    """Other dimensions stand in front of a fetched shape: ``order`` of the right ones and the layout's factors."""

    def wrong(original: Original, fetcher: Any, shape: Any) -> Any:
        right = tuple(original(fetcher, shape))
        own = len(right) - len(shape)
        return (*order(right[:own], fetcher.layout), *right[own:])

    return wrong


for _name, _what, _shape in (
    ("paddle-shape-in-slot-order", "batches per step come first in a fetched shape",
     _leading(lambda leading, layout: leading[::-1])),
    ("paddle-one-batch-reported", "one batch per step has a dimension of its own",
     _leading(lambda leading, layout: (*leading, 1) if layout.device_iterations == 1 else leading)),
    ("paddle-scalar-without-dimension", "a fetched scalar has no dimension",
     lambda original, fetcher, shape: original(fetcher, shape)[: None if len(shape) else -1]),
):  # fmt: skip
    register(Fault(_name, "streams", "paddle.run.feeding:Fetcher.shape", _what, _shape), __name__)
