"""Data sets that only an IPU needs, and measurements of how fast data sets are."""

from __future__ import annotations

import json
from typing import Any, Dict

import numpy as np
import pytest

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


def measured(tf: Any, result: Any) -> Any:
    """What a measurement says about each epoch."""
    return json.loads(result.numpy()[0])["epochs"]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_buffered_data_set_has_whole_groups(tf: Any, ipu: Any, structure: str) -> None:
    """A data set that is buffered has its elements, without the last ones that fill no buffer."""
    buffered = ipu.data.ops.dataset_ops.BufferDataset(counting(tf, structure, 10), 4)

    expected = list(counting(tf, structure, 8).as_numpy_iterator())
    assert list(buffered.as_numpy_iterator()) == expected
    assert buffered.element_spec == counting(tf, structure, 8).element_spec


def test_a_buffer_holds_something(tf: Any, ipu: Any) -> None:
    """A buffer of no element is refused."""
    with pytest.raises(ValueError, match="buffer_size"):
        ipu.data.ops.dataset_ops.BufferDataset(counting(tf, "one", 4), 0)


@pytest.mark.parametrize("copied", [True, False])
def test_a_data_set_is_measured(tf: Any, ipu: Any, copied: bool) -> None:
    """A measurement counts elements, their bytes and the time of each epoch, and divides them."""
    dataset = tf.data.Dataset.from_tensor_slices((np.zeros((6, 5), np.float16), np.zeros(6, np.int32))).repeat()

    result = ipu.dataset_benchmark.dataset_benchmark(dataset, 3, 4, print_stats=False, do_memcpy=copied)

    epochs = measured(tf, result)
    assert len(epochs) == 3
    for epoch in epochs:
        assert (epoch["elements_processed"], epoch["total_bytes_processed"]) == (4, 4 * (5 * 2 + 4))
        assert epoch["time_elapsed"] > 0
        assert epoch["elements_per_second"] == epoch["elements_processed"] / epoch["time_elapsed"]
        assert epoch["bandwidth"] == epoch["total_bytes_processed"] / 1e9 / epoch["time_elapsed"]


def test_a_slow_data_set_takes_its_time(tf: Any, ipu: Any) -> None:
    """The time of an epoch is not less than what the elements need."""

    def slow(value: Any) -> Any:
        def wait(element: Any) -> Any:
            import time

            time.sleep(0.02)
            return element

        return tf.ensure_shape(tf.numpy_function(wait, [value], tf.int32), [])

    dataset = counting(tf, "one", 6).map(slow)

    (epoch,) = measured(tf, ipu.dataset_benchmark.dataset_benchmark(dataset, 1, 6, print_stats=False))

    assert epoch["time_elapsed"] >= 5 * 0.02  # the first element may be ready before the clock is read


def test_measurements_are_printed(tf: Any, ipu: Any, capsys: Any) -> None:
    """Every epoch is printed, unless it is not wanted."""
    ipu.dataset_benchmark.dataset_benchmark(counting(tf, "one", 4), 2, 2)

    assert capsys.readouterr().out.count("elements") >= 2
    ipu.dataset_benchmark.dataset_benchmark(counting(tf, "one", 4), 2, 2, print_stats=False)
    assert capsys.readouterr().out == ""


def test_an_infeed_is_measured(tf: Any, ipu: Any) -> None:
    """The data set of an infeed is measured in a session, and the infeed still has all its elements."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(counting(tf, "one", 4))
        operation = ipu.dataset_benchmark.infeed_benchmark(queue, 2, 2, print_stats=False)
        epochs = json.loads(session.run(operation)[0])["epochs"]

    assert [epoch["total_bytes_processed"] for epoch in epochs] == [8, 8]


def test_a_data_set_that_ends_too_early_is_an_error(tf: Any, ipu: Any) -> None:
    """More elements than there are cannot be measured."""
    with pytest.raises(tf.errors.OutOfRangeError):
        ipu.dataset_benchmark.dataset_benchmark(counting(tf, "one", 4), 2, 3, print_stats=False)


@pytest.mark.parametrize(("epochs", "elements"), [(0, 1), (1, 0)])
def test_something_is_measured(tf: Any, ipu: Any, epochs: int, elements: int) -> None:
    """No epochs, and epochs of no element, are refused."""
    with pytest.raises(ValueError, match="epochs"):
        ipu.dataset_benchmark.dataset_benchmark(counting(tf, "one", 4), epochs, elements)


def test_only_data_sets_are_measured(tf: Any, ipu: Any) -> None:
    """What is no data set, and no infeed, is refused, as are shapes that are not known."""
    with pytest.raises(TypeError, match="dataset"):
        ipu.dataset_benchmark.dataset_benchmark([1, 2], 1, 1)
    with pytest.raises(TypeError, match="infeed_queue"):
        ipu.dataset_benchmark.infeed_benchmark(counting(tf, "one", 4), 1, 1)
    with pytest.raises(ValueError, match="not fully defined"):
        ipu.dataset_benchmark.dataset_benchmark(counting(tf, "one", 4).batch(3), 1, 1)
