"""Ways for programs to be placed, fed, reduced, updated and brought home wrongly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Tuple

import numpy as np

from ipu_conformance.emulator.faults.catalogue import Fault, Wrong, always, argument, patch, register, result
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
):  # fmt: skip
    register(Fault(_name, _area, _place, _what, _wrong), __name__)


@patch("paddle-update-per-micro-batch", "update", "core.plan:plan", "accumulated micro-batches update one by one")
def _one_by_one(original: Original, where: Any, by: Any, micro_batches: int, **settings: Any) -> Any:
    iterations = micro_batches * settings.pop("device_iterations", 1)
    return original(where, by, 1, device_iterations=iterations, **settings)


@patch("paddle-first-use-only", "reduce", f"{PROGRAMS}._accumulation",
       "a shared weight gets the gradient of its first stage only")  # fmt: skip
def _first_use_only(original: Original, programs: Any, stage: Any) -> Any:
    owned = {weight: name for weight, name in stage.gradients.items() if programs.owner[weight] == stage.number}
    return original(programs, replace(stage, gradients=owned))


@patch("paddle-norm-of-one-stage", "reduce", f"{PROGRAMS}._before",
       "clipping sees the gradients of the first stage only")  # fmt: skip
def _norm_of_one_stage(original: Original, programs: Any, key: Any) -> Any:
    ops, kept = original(programs, key)
    unseen = {programs.raw[weight] for sources in programs.sources[1:] for weight in sources}
    for op in ops:
        if op.type() == "scale" and op.output("Out")[0] in unseen:
            op._set_attr("scale", 0.0)
    return ops, kept


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
