"""Outfeeds: what the host gets of what a program enqueues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import samples


def squares(device: Device, steps: int, replicas: int, last: bool) -> Any:
    """A program that takes elements and enqueues their squares; it, its queue and what it computes."""
    device.open(replicas)
    queue, out = device.infeed(samples(3 * steps * replicas)), device.outfeed(last)
    go = device.compile(lambda: device.ipu.loops.repeat(steps, lambda x: out.enqueue(x * x), [], queue))
    rows = samples(3 * steps * replicas) ** 2
    return go, out, rows.reshape((3, steps, replicas) if replicas > 1 else (3, steps))


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("steps", [1, 3])
def test_all_gives_every_enqueue(device: Device, steps: int, replicas: int) -> None:
    """In mode ALL the host gets [enqueues, (replicas,) …]."""
    go, out, expected = squares(device, steps, replicas, last=False)
    go()

    check.identical(actual=device.dequeue(out), expected=expected[0], what="the outfeed")


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("steps", [1, 3])
def test_last_gives_the_last_enqueue(device: Device, steps: int, replicas: int) -> None:
    """In mode LAST the host gets [(replicas,) …] of the last iteration."""
    go, out, expected = squares(device, steps, replicas, last=True)
    go()

    check.identical(actual=device.dequeue(out), expected=expected[0, -1], what="the outfeed")


@pytest.mark.parametrize("replicas", [1, 2])
def test_enqueues_of_several_runs_wait(device: Device, replicas: int) -> None:
    """What two runs enqueue comes out of one dequeue."""
    go, out, expected = squares(device, 2, replicas, last=False)
    go()
    go()

    check.identical(
        actual=device.dequeue(out), expected=expected[:2].reshape(-1, *expected.shape[2:]), what="the outfeed"
    )


@pytest.mark.parametrize("replicas", [1, 2])
def test_dequeue_drains(device: Device, replicas: int) -> None:
    """What was dequeued does not come again: then the queue is empty, and later holds what came after."""
    go, out, expected = squares(device, 2, replicas, last=False)
    go()
    device.dequeue(out)
    empty = device.dequeue(out)
    go()

    check.shape(actual=empty, expected=(0, *expected.shape[2:]), what="an empty outfeed")
    check.identical(actual=device.dequeue(out), expected=expected[1], what="the outfeed")


def test_the_last_value_comes_once(device: Device) -> None:
    """In mode LAST a second dequeue without a run in between finds nothing."""
    go, out, _ = squares(device, 2, 1, last=True)
    go()
    device.dequeue(out)

    with pytest.raises(device.tf.errors.FailedPreconditionError, match="before it was executed"):
        device.dequeue(out)


def test_the_last_value_needs_a_run(device: Device) -> None:
    """In mode LAST a dequeue before anything was executed fails."""
    if device.mode == "graph":
        _, out, _ = squares(device, 2, 1, last=True)
    else:
        out = device.open().outfeed(last=True)

    with pytest.raises(device.tf.errors.FailedPreconditionError, match="before it was executed"):
        device.dequeue(out)


def test_a_queue_that_nothing_is_enqueued_to_cannot_be_dequeued(device: Device) -> None:
    """The shapes of what is dequeued are known from what is enqueued."""
    out = device.open().outfeed()

    with pytest.raises(ValueError, match="enqueue"):
        device.dequeue(out)


def test_an_outfeed_is_enqueued_once(device: Device) -> None:
    """A program enqueues to a queue in one place."""
    device.open()
    queue, out = device.infeed(samples(4)), device.outfeed()

    with pytest.raises(ValueError, match=r"An outfeed can only be enqueued once\."):
        device.repeat(2, lambda x: (out.enqueue(x), out.enqueue(x)), queue)


def test_a_queue_knows_whether_it_is_used(device: Device) -> None:
    """A queue is enqueued as soon as a program is built that enqueues to it."""
    device.open()
    out = device.outfeed()
    before = out.enqueued
    device.run(lambda: device.ipu.loops.repeat(2, lambda: out.enqueue(device.tf.constant(1.0)), []))

    assert (before, out.enqueued) == (False, True)


@pytest.mark.parametrize("kind", ["list", "tuple", "dict", "tensor"])
@pytest.mark.parametrize("last", [False, True], ids=["all", "last"])
def test_structures_come_out_as_they_went_in(device: Device, kind: str, last: bool) -> None:
    """Lists, tuples and dictionaries of tensors keep their structure, their shapes and their types."""
    device.open()
    tf, queue, out = device.tf, device.infeed(samples(2)), device.outfeed(last)
    kinds = {
        "list": lambda x: [x, tf.cast(4 * x, tf.int32)],
        "tuple": lambda x: (x, tf.cast(4 * x, tf.int32)),
        "dict": lambda x: {"second": tf.cast(4 * x, tf.int32), "first": x},
        "tensor": lambda x: tf.stack([x, 4 * x]),
    }
    device.repeat(2, lambda x: out.enqueue(kinds[kind](x)), queue)
    taken = device.dequeue(out)

    wanted = samples(2)[-1:].reshape(()) if last else samples(2)
    if kind == "tensor":
        check.identical(actual=taken, expected=np.stack([wanted, np.float32(4) * wanted], axis=-1), what="the outfeed")
        return
    assert type(taken).__name__ == kind
    first, second = (taken["first"], taken["second"]) if kind == "dict" else taken
    check.identical(actual=first, expected=wanted, what="the first tensor")
    check.identical(actual=second, expected=np.asarray(4 * wanted).astype(np.int32), what="the second tensor")


@pytest.mark.parametrize("last", [False, True], ids=["all", "last"])
def test_an_outfeed_can_be_iterated_over(tf: Any, ipu: Any, configure: Any, last: bool) -> None:
    """In eager mode a queue gives one enqueue after the other and then ends; in mode LAST there is one."""
    device = Device(tf, ipu, configure, "function")
    go, out, expected = squares(device, 3, 1, last)
    nothing = [item.numpy() for item in out]
    go()
    got = [float(item) for item in out]
    again = list(out)

    assert nothing == again == []
    assert got == expected[0].tolist()[-1 if last else 0 :]


def test_a_graph_cannot_be_iterated_over(tf: Any, ipu: Any) -> None:
    """In a graph there is nothing to iterate over."""
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="eager"):
        iter(ipu.ipu_outfeed_queue.IPUOutfeedQueue())


@pytest.mark.parametrize(("name", "value"), [("ALL", "all"), ("LAST", "get_last")])
def test_modes_have_the_vendors_values(ipu: Any, name: str, value: str) -> None:
    """The modes of an outfeed are two."""
    modes = ipu.ipu_outfeed_queue.IPUOutfeedMode

    assert modes[name].value == value
    assert len(modes) == 2


@pytest.mark.parametrize(("name", "value"), [("outfeed_mode", "all"), ("buffer_depth", 0)])
def test_wrong_settings_are_refused(ipu: Any, name: str, value: Any) -> None:
    """A mode is a member of the enumeration, and a buffer holds at least one."""
    with pytest.raises(ValueError, match=name):
        ipu.ipu_outfeed_queue.IPUOutfeedQueue(**{name: value})
