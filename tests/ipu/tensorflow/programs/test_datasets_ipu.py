"""Data sets that only an IPU needs, and measurements of how fast data sets are."""

from __future__ import annotations

import json
import time
from typing import Any, Dict

import numpy as np
import pytest

from ipu_conformance import check

STRUCTURES = ("one", "pair", "single", "dictionary")


def counting(tf: Any, structure: str, number: int) -> Any:
    """A data set of the first numbers, in elements of some structure."""
    numbers = np.arange(number, dtype=np.int32)
    values: Dict[str, Any] = {
        "one": numbers,
        "pair": (numbers, 2 * numbers),
        "single": (numbers,),
        "dictionary": {"a": numbers, "b": (numbers, numbers)},
    }
    return tf.data.Dataset.from_tensor_slices(values[structure])


def measured(ipu: Any, *arguments: Any, **settings: Any) -> Any:
    """What a benchmark says about each epoch."""
    result = ipu.dataset_benchmark.dataset_benchmark(*arguments, print_stats=False, **settings)
    return json.loads(result.numpy()[0])["epochs"]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_buffered_data_set_has_whole_groups(tf: Any, ipu: Any, structure: str) -> None:
    """A buffered data set has the elements of the other, but for the last ones that fill no buffer."""
    buffered, whole = ipu.data.ops.dataset_ops.BufferDataset, counting(tf, structure, 12)
    buffered = buffered(counting(tf, structure, 14), 4)

    elements, expected = list(buffered.as_numpy_iterator()), list(whole.as_numpy_iterator())
    check.equal(actual=elements, expected=expected, what="the elements of 14 in buffers of 4")
    check.equal(actual=buffered.element_spec, expected=whole.element_spec, what="the element_spec")


@pytest.mark.parametrize("copied", [True, False])
def test_a_data_set_is_measured(tf: Any, ipu: Any, copied: bool) -> None:
    """A benchmark counts the elements, bytes and time of each epoch, and derives the rates."""
    dataset = tf.data.Dataset.from_tensor_slices((np.zeros((6, 5), np.float16), np.zeros(6, np.int32))).repeat()

    epochs = measured(ipu, dataset, 3, 4, do_memcpy=copied)

    check.equal(actual=len(epochs), expected=3, what="the number of epochs")
    for number, epoch in enumerate(epochs):
        elapsed, size = epoch["time_elapsed"], 4 * (5 * 2 + 4)
        check.holds(elapsed > 0, f"epoch {number} takes {elapsed} s, which is not above 0.")
        expected = {"elements_processed": 4, "total_bytes_processed": size, "elements_per_second": 4 / elapsed}
        expected["bandwidth"] = size / 1e9 / elapsed
        check.equal(actual={name: epoch.get(name) for name in expected}, expected=expected, what=f"epoch {number}")


def test_a_slow_data_set_takes_its_time(tf: Any, ipu: Any) -> None:
    """An epoch takes at least as long as its elements do."""

    def wait(element: Any) -> Any:
        time.sleep(0.02)
        return element

    slow = lambda value: tf.ensure_shape(tf.numpy_function(wait, [value], tf.int32), [])  # noqa: E731
    (epoch,) = measured(ipu, counting(tf, "one", 6).map(slow), 1, 6)

    elapsed = epoch["time_elapsed"]  # the first element may be ready before the clock is read
    check.holds(elapsed >= 5 * 0.02, f"6 elements of 0.02 s each take {elapsed} s, less than 5 of them.")


@pytest.mark.parametrize("printed", [True, False])
def test_measurements_are_printed(tf: Any, ipu: Any, capsys: Any, printed: bool) -> None:
    """Every epoch is printed, or none is."""
    ipu.dataset_benchmark.dataset_benchmark(counting(tf, "one", 9), 3, 3, print_stats=printed)

    text = capsys.readouterr().out
    wrong = text.count("elements") < 3 if printed else text
    check.holds(not wrong, f"with print_stats={printed} the statistics of 3 epochs are {text!r}.")


def test_an_infeed_is_measured(tf: Any, ipu: Any) -> None:
    """The data set of an infeed is measured in a session."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(counting(tf, "one", 15))
        operation = ipu.dataset_benchmark.infeed_benchmark(queue, 3, 5, print_stats=False)
        epochs = json.loads(session.run(operation)[0])["epochs"]

    sizes = [epoch["total_bytes_processed"] for epoch in epochs]
    check.equal(actual=sizes, expected=[20, 20, 20], what="the bytes of 5 int32 an epoch")
