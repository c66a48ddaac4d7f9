"""Ways for programs to be placed, fed, reduced, updated and brought home wrongly."""

from __future__ import annotations

from typing import Any, Callable

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import Fault, Wrong, always, at, never, where
from ipu_conformance.emulator.faults.decisions import paddle_execution

POINT = paddle_execution.point


def _not_synced(by: str) -> Wrong:
    return where("sync", lambda value, *, why, **context: value and why != by)


def _synced(by: str) -> Wrong:
    return where("sync", lambda value, *, why, **context: value or why == by)


def _without(position: int) -> Wrong:
    """A draw does not depend on one of its parts."""
    return at("what a draw depends on", lambda parts: (*parts[:position], 0, *parts[position + 1 :]))


def _leading(order: Callable[..., Any]) -> Wrong:
    """The dimensions in front of a fetched shape are others; ``order`` has the right ones, and the layout's factors."""

    def change(shape: Any, *, layout: Any, own: int, **context: Any) -> Any:
        return (*order(tuple(shape[: len(shape) - own]), layout), *shape[len(shape) - own :])

    return where("fetched shape", change)


for _name, _area, _what, _wrong in (
    ("paddle-factor-without-switch", "plan", "a factor counts though its switch is off",
     at("refuse a factor that is off", never)),
    ("paddle-pipeline-on-one-ipu", "plan", "one IPU is accepted as a pipeline", at("pipelining needs IPUs", never)),
    ("paddle-uneven-replicas", "plan", "replicas need not divide the IPUs", at("check num_ipus", never)),
    ("paddle-stages-backwards", "plan", "a stage reads what a later one makes", at("check stage order", never)),
    ("paddle-shallow-pipeline", "plan", "a pipeline of any depth is accepted", at("check depth", never)),
    ("paddle-stages-by-index", "plan", "the stages that are set do not count",
     at("stage of op", always(None))),
    ("paddle-shards-without-switch", "plan", "shards count though manual sharding is off",
     at("sharded by hand", always(True))),
    ("paddle-always-pipelined", "plan", "sharded programs are pipelined", at("pipelined", always(True))),
    ("paddle-batches-accumulated", "update", "a pipeline without accumulation updates at the end of the run",
     at("update at once", never)),
    ("paddle-update-per-micro-batch", "update", "accumulated micro-batches update one by one",
     at("update once", lambda value: (1, value[0] * value[1]))),
    ("paddle-loss-scale-stays", "reduce", "gradients keep the scale of the loss",
     where("factor of gradients", lambda value, *, loss_scale, **context: value * loss_scale)),
    ("paddle-accumulation-not-in-mean", "reduce", "the mean is over the replicas alone",
     where("factor of gradients", lambda value, *, accumulation, **context: value * accumulation)),
    ("paddle-reduction-type-ignored", "reduce", "a sum of gradients is a mean", at("mean", always(True))),
    ("paddle-running-mean-is-sum", "reduce", "a running mean is accumulated as a sum",
     at("running mean", always((1.0, 1.0)))),
    ("paddle-gradients-carried-over", "reduce", "gradients of earlier updates stay in the accumulators",
     at("forget gradients", never)),
    ("paddle-first-use-only", "reduce", "a shared weight gets the gradient of its first stage only",
     where("every use", lambda value, *, first, **context: first)),
    ("paddle-norm-of-one-stage", "reduce", "clipping sees the gradients of the first stage only",
     where("part of the norm", lambda value, *, stage, **context: value if stage == 0 else 0.0)),
    ("paddle-rate-of-compilation", "update", "the learning rate stays as it was when the program was compiled",
     at("set rates", never)),
    ("paddle-evaluation-trains", "update", "evaluation moves the weights", at("no rate in evaluation", never)),
    ("paddle-evaluation-decays", "update", "weight decay is part of the moments in evaluation",
     at("no decay in evaluation", never)),
    ("paddle-power-comes-home", "weights", "the power of beta1 comes home instead of the steps",
     at("count steps", never)),
    ("paddle-host-follows", "weights", "the host's weights follow the device's by themselves",
     at("host stays stale", never)),
    ("paddle-inference-comes-home", "weights", "a program that does not train overwrites the host's weights",
     at("training comes home", always(True))),
    ("paddle-last-replica-comes-home", "weights", "the host gets the statistics of the last replica",
     at("replica that comes home", always(-1))),
    ("paddle-detach-copies-weights", "weights", "detaching overwrites the host's weights", _synced("detach")),
    ("paddle-reset-copies-weights", "weights", "a reset overwrites the host's weights", _synced("reset")),
    ("paddle-scope-copies-weights", "weights", "another scope overwrites the weights of the first",
     _synced("set_scope")),
    ("paddle-strategy-copies-weights", "weights", "another strategy overwrites the host's weights",
     _synced("set_ipu_strategy")),
    ("paddle-saving-loses-weights", "weights", "saving the model leaves the trained weights behind",
     _not_synced("save_model_proto")),
    ("paddle-replaced-program-runs", "plan", "a program that was replaced still runs",
     at("only the last one runs", never)),
    ("paddle-detached-runs", "plan", "a detached device still runs", at("detached does not run", never)),
    ("paddle-any-feed", "streams", "a feed of any size is cut or repeated", at("check feeds", never)),
    ("paddle-other-fetch", "streams", "what was not compiled is looked for when it is fetched",
     at("refuse other fetches", never)),
    ("paddle-fetches-sorted", "streams", "fetches come back in another order than asked for",
     at("order of fetches", lambda names: sorted(names))),
    ("paddle-shape-in-slot-order", "streams", "batches per step come first in a fetched shape",
     _leading(lambda leading, layout: leading[::-1])),
    ("paddle-one-batch-reported", "streams", "one batch per step has a dimension of its own",
     _leading(lambda leading, layout: (*leading, 1) if layout.device_iterations == 1 else leading)),
    ("paddle-scalar-without-dimension", "streams", "a fetched scalar has no dimension",
     where("fetched shape", lambda shape, *, own, **context: shape if own else shape[:-1])),
    ("paddle-never-traps", "numerics", "floating-point checks are never made", at("trap", never)),
    ("paddle-memory-without-end", "plan", "a program of any size fits", at("refuse what does not fit", never)),
    ("paddle-drops-without-seed", "streams", "dropout ignores the seed", _without(0)),
    ("paddle-drops-same-for-every-micro-batch", "streams", "all micro-batches are dropped alike", _without(3)),
):  # fmt: skip
    faults.register(Fault(_name, _area, POINT, _what, _wrong), __name__)
