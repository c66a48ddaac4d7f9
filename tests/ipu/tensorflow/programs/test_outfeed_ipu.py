"""Outfeeds: what the host gets of what a program enqueues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import samples


def squares(device: Device, steps: int, replicas: int, last: bool) -> Any:
    """A program that enqueues the squares of its elements, its outfeed, and the squares by run."""
    queue, out = device.open(replicas).infeed(samples(3 * steps * replicas)), device.outfeed(last)
    go = device.compile(lambda: device.ipu.loops.repeat(steps, lambda x: out.enqueue(x * x), [], queue))
    rows = samples(3 * steps * replicas) ** 2
    return go, out, rows.reshape((3, steps, replicas) if replicas > 1 else (3, steps))


@pytest.mark.parametrize(("steps", "replicas"), [(1, 1), (3, 1), (1, 4), (3, 2)])
def test_all_gives_every_enqueue(device: Device, steps: int, replicas: int) -> None:
    """In mode ALL a dequeue gives [enqueues, (replicas,) …] of all runs since the last one, and then nothing more."""
    go, out, expected = squares(device, steps, replicas, last=False)
    go()
    check.identical(actual=device.dequeue(out), expected=expected[0], what="the outfeed of the first run")
    check.shape(actual=device.dequeue(out), expected=(0, *expected.shape[2:]), what="the outfeed that was drained")
    go()
    go()
    waiting = expected[1:].reshape(-1, *expected.shape[2:])
    check.identical(actual=device.dequeue(out), expected=waiting, what="the outfeed of the second and the third run")


@pytest.mark.parametrize(("steps", "replicas"), [(1, 1), (3, 1), (1, 4), (3, 2)])
def test_last_gives_the_last_enqueue(device: Device, steps: int, replicas: int) -> None:
    """In mode LAST a dequeue gives [(replicas,) …] of the last iteration, and the next one needs another run."""
    go, out, expected = squares(device, steps, replicas, last=True)
    go()
    check.identical(actual=device.dequeue(out), expected=expected[0, -1], what="the outfeed of the first run")
    unexecuted = device.tf.errors.FailedPreconditionError
    with check.raises(unexecuted, match="before it was executed", what="a second dequeue in mode LAST"):
        device.dequeue(out)
    go()
    check.identical(actual=device.dequeue(out), expected=expected[1, -1], what="the outfeed of the second run")


def test_the_last_value_needs_a_run(device: Device) -> None:
    """In mode LAST a dequeue before anything was executed fails."""
    out = squares(device, 2, 1, last=True)[1] if device.mode == "graph" else device.open().outfeed(last=True)

    unexecuted = device.tf.errors.FailedPreconditionError
    with check.raises(unexecuted, match="before it was executed", what="a dequeue before any run"):
        device.dequeue(out)


def test_a_queue_that_nothing_is_enqueued_to_cannot_be_dequeued(device: Device) -> None:
    """A dequeue needs an enqueue, from which it knows the shapes."""
    with check.raises(ValueError, match="enqueue", what="the dequeue of an outfeed without an enqueue"):
        device.dequeue(device.open().outfeed())


def test_an_outfeed_is_enqueued_once(device: Device) -> None:
    """A program enqueues to a queue in one place."""
    queue, out = device.open().infeed(samples(4)), device.outfeed()

    with check.raises(ValueError, match=r"An outfeed can only be enqueued once\.", what="a second enqueue"):
        device.repeat(2, lambda x: (out.enqueue(x), out.enqueue(x)), queue)


def test_a_queue_knows_whether_it_is_used(device: Device) -> None:
    """``enqueued`` is true as soon as a program that enqueues is built."""
    out = device.open().outfeed()
    before = out.enqueued
    device.repeat(2, lambda: out.enqueue(device.tf.constant(1.0)))

    check.equal(actual=(before, out.enqueued), expected=(False, True), what="enqueued before and after the program")


@pytest.mark.parametrize("kind", ["list", "tuple", "dict", "tensor"])
@pytest.mark.parametrize("last", [False, True], ids=["all", "last"])
def test_structures_come_out_as_they_went_in(device: Device, kind: str, last: bool) -> None:
    """Lists, tuples and dictionaries of tensors keep their structure, their shapes and their types."""
    tf, queue, out = device.open().tf, device.infeed(samples(3)), device.outfeed(last)
    kinds = {
        "list": lambda x: [x, tf.cast(4 * x, tf.int32)],
        "tuple": lambda x: (x, tf.cast(4 * x, tf.int32)),
        "dict": lambda x: {"second": tf.cast(4 * x, tf.int32), "first": x},
        "tensor": lambda x: tf.stack([x, 4 * x]),
    }
    device.repeat(3, lambda x: out.enqueue(kinds[kind](x)), queue)
    taken, wanted = device.dequeue(out), samples(3)[-1:].reshape(()) if last else samples(3)

    if kind == "tensor":
        check.identical(actual=taken, expected=np.stack([wanted, np.float32(4) * wanted], axis=-1), what="the outfeed")
        return
    check.equal(actual=type(taken).__name__, expected=kind, what="the type of the outfeed")
    first, second = (taken["first"], taken["second"]) if kind == "dict" else taken
    check.identical(actual=first, expected=wanted, what="the first tensor")
    check.identical(actual=second, expected=np.asarray(4 * wanted).astype(np.int32), what="the second tensor")


@pytest.mark.parametrize("last", [False, True], ids=["all", "last"])
def test_an_outfeed_can_be_iterated_over(tf: Any, ipu: Any, configure: Any, last: bool) -> None:
    """In eager mode a queue gives one enqueue after the other and then ends; in mode LAST there is one."""
    go, out, expected = squares(Device(tf, ipu, configure, "function"), 3, 1, last)
    before = [float(item) for item in out]
    go()
    results = (before, [float(item) for item in out], [float(item) for item in out])

    enqueued = expected[0].tolist()[-1 if last else 0 :]
    check.equal(actual=results, expected=([], enqueued, []), what="the outfeed before a run, after it and again")


def test_a_graph_cannot_be_iterated_over(tf: Any, ipu: Any) -> None:
    """The outfeed of a graph cannot be iterated over."""
    with tf.Graph().as_default(), check.raises(RuntimeError, match="eager", what="iterating over a graph's outfeed"):
        iter(ipu.ipu_outfeed_queue.IPUOutfeedQueue())


def test_modes_have_the_vendors_values(ipu: Any) -> None:
    """An outfeed has two modes."""
    modes = {mode.name: mode.value for mode in ipu.ipu_outfeed_queue.IPUOutfeedMode}

    check.equal(actual=modes, expected={"ALL": "all", "LAST": "get_last"}, what="IPUOutfeedMode")


@pytest.mark.parametrize(("name", "value"), [("outfeed_mode", "all"), ("buffer_depth", 0)])
def test_wrong_settings_are_refused(ipu: Any, name: str, value: Any) -> None:
    """A mode is a member of the enumeration, and a buffer holds at least one."""
    with check.raises(ValueError, match=name, what=f"an outfeed with {name}={value!r}"):
        ipu.ipu_outfeed_queue.IPUOutfeedQueue(**{name: value})
