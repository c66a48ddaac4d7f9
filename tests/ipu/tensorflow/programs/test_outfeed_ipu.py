"""Outfeeds: what the host gets of what a program enqueues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import samples

UNEXECUTED = "before it was executed"


@pytest.mark.parametrize(("steps", "replicas"), [(1, 1), (3, 1), (1, 6), (3, 2)])
def test_outfeeds_give_what_runs_enqueue(device: Device, steps: int, replicas: int) -> None:
    """Mode ALL gives [enqueues, (replicas,) …] of all runs since the last dequeue, mode LAST the last iteration's.

    Either queue of the program holds what was enqueued to itself, with all its bits.
    """
    fed = samples(3 * steps * replicas)
    queue, every, last = device.open(replicas).infeed(fed), device.outfeed(), device.outfeed(last=True)
    body = lambda x: [every.enqueue(x * x * x * x), last.enqueue(-x)]  # noqa: E731
    go = device.compile(lambda: device.ipu.loops.repeat(steps, body, [], queue))
    of_last = -fed.reshape((3, steps, replicas) if replicas > 1 else (3, steps))
    rows = np.square(np.square(of_last))  # more bits than float16 has, and no more than float32

    go()
    check.identical(actual=device.dequeue(every), expected=rows[0], what="mode ALL after the first run")
    check.identical(actual=device.dequeue(last), expected=of_last[0, -1], what="mode LAST after the first run")
    check.shape(actual=device.dequeue(every), expected=(0, *rows.shape[2:]), what="mode ALL without another run")
    with check.raises(device.tf.errors.FailedPreconditionError, match=UNEXECUTED, what="mode LAST without another run"):
        device.dequeue(last)
    go()
    go()
    waiting = rows[1:].reshape(-1, *rows.shape[2:])
    check.identical(actual=device.dequeue(every), expected=waiting, what="mode ALL after two more runs")
    check.identical(actual=device.dequeue(last), expected=of_last[2, -1], what="mode LAST after two more runs")


def test_a_queue_knows_whether_it_is_used(device: Device) -> None:
    """``enqueued`` is true as soon as a program that enqueues is built."""
    out = device.open().outfeed()
    before = out.enqueued
    device.repeat(2, lambda: out.enqueue(device.tf.constant(1.0)))

    check.equal(actual=(before, out.enqueued), expected=(False, True), what="enqueued before and after the program")


def test_structures_come_out_as_they_went_in(device: Device) -> None:
    """Lists, tuples and dictionaries of tensors keep their structure, their shapes, their types and every bit."""
    integers = np.array([2**28 + 3, -(2**29) - 5, 7], np.int32)  # more bits than float32 has
    tf, queue = device.open().tf, device.infeed((samples(3), integers))
    kinds = {
        "list": lambda x, y: [x, y],
        "tuple": lambda x, y: (x, y),
        "dict": lambda x, y: {"second": y, "first": x},
        "ndarray": lambda x, y: tf.stack([x, tf.cast(y, tf.float32)]),
    }
    outfeeds = {(kind, last): device.outfeed(last) for kind in kinds for last in (False, True)}

    def body(x: Any, y: Any) -> Any:
        return [out.enqueue(kinds[kind](x, y)) for (kind, _), out in outfeeds.items()]

    device.repeat(3, body, queue)

    for (kind, last), out in outfeeds.items():
        taken, rows, what = device.dequeue(out), -1 if last else slice(None), f"a {kind} in mode {last=}"
        check.equal(actual=type(taken).__name__, expected=kind, what=f"the type of {what}")
        first, second = (taken["first"], taken["second"]) if kind == "dict" else taken.T if kind == "ndarray" else taken
        check.identical(actual=first, expected=samples(3)[rows], what=f"the first tensor of {what}")
        expected = integers[rows].astype(np.float32 if kind == "ndarray" else np.int32)
        check.identical(actual=second, expected=expected, what=f"the second tensor of {what}")


@pytest.mark.parametrize("last", [False, True], ids=["all", "last"])
def test_an_outfeed_can_be_iterated_over(eager: Device, last: bool) -> None:
    """In eager mode a queue gives one enqueue after the other and then ends; in mode LAST there is one."""
    queue, out = eager.open().infeed(samples(7)), eager.outfeed(last)
    results = [[float(item) for item in out]]
    eager.repeat(7, lambda x: out.enqueue(x * x), queue)
    results += [[float(item) for item in out] for _ in range(2)]

    enqueued = (samples(7) ** 2).tolist()[-1 if last else 0 :]
    check.equal(actual=results, expected=[[], enqueued, []], what="the outfeed before a run, after it and again")


def test_modes_have_the_vendors_values(ipu: Any) -> None:
    """An outfeed has two modes."""
    modes = {mode.name: mode.value for mode in ipu.ipu_outfeed_queue.IPUOutfeedMode}

    check.equal(actual=modes, expected={"ALL": "all", "LAST": "get_last"}, what="IPUOutfeedMode")
