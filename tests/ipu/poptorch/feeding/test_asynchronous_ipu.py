"""Loading in another process: order, passes, buffers, rebatching, failures and the end of the worker."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ipu_conformance import check

from .conftest import Loading
from .datasets import Elements, dying, failing, numbers, pairs, ranges, rows, stream, twos, values

TWOS = tuple((i, i) for i in range(5))


def assert_passes(accessor: Any, times: int = 1, expected: Any = TWOS) -> None:
    """Each pass over an accessor or a loader has these elements, in order."""
    __tracebackhide__ = True
    for number in range(times):
        check.equal(actual=values(accessor), expected=tuple(map(tuple, expected)), what=f"pass {number}")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("sharing_strategy", strategy) for strategy in ("Fork", "ForkServer", "SharedMemory", "FileSystem")),
        *(("buffer_size", size) for size in (1, 2, 8)),
        ("load_indefinitely", False),
        *(("miss_sleep_time_in_ms", duration) for duration in (0, 0.5)),
    ],
)
def test_no_setting_changes_the_elements(poptorch: Any, loading: Loading, setting: str, value: Any) -> None:
    """However the dataset reaches the worker, and whatever its buffer, a pass has every element once, in order."""
    value = getattr(poptorch.SharingStrategy, value) if setting == "sharing_strategy" else value

    with check.accepted(f"{setting}={value}"):
        accessor = loading.accessor(Elements(5), **{setting: value})

    assert_passes(accessor)


@pytest.mark.parametrize("strategy", ["Fork", "ForkServer"])
def test_a_generator_sets_the_order_in_the_worker(poptorch: Any, torch: Any, loading: Loading, strategy: str) -> None:
    """A loader that shuffles by a generator gives in another process the order that it gives in this one."""
    orders = []
    for mode in ("Sync", "Async"):
        way: Any = {"async_options": {"sharing_strategy": getattr(poptorch.SharingStrategy, strategy)}, "mode": mode}
        generator = torch.Generator().manual_seed(3)
        loader = loading.loader(numbers(12), batch_size=4, shuffle=True, generator=generator, **way)
        orders.append([values(loader) for _ in range(2)])

    check.equal(actual=orders[1], expected=orders[0], what=f"the shuffled order of two passes with {strategy}")


def test_each_iterator_is_one_pass(loading: Loading) -> None:
    """An accessor that loads indefinitely gives the dataset again to each iterator, and its length is the dataset's."""
    accessor = loading.accessor(Elements(5))

    assert_passes(accessor, times=3)
    check.equal(actual=len(accessor), expected=5, what="the length of an accessor of 5 elements")


def test_a_pass_that_is_left_half_way_is_forgotten(loading: Loading) -> None:
    """An iterator made after another was left begins at the first element."""
    accessor = loading.accessor(Elements(5))
    iterator = iter(accessor)
    next(iterator), next(iterator)

    assert_passes(accessor)


def test_an_element_that_is_kept_stays_as_it_is(loading: Loading) -> None:
    """Later elements do not write over those that a program still holds, of this pass or of the one before."""
    accessor = loading.accessor(Elements(5), buffer_size=2)
    held = [element for _ in range(2) for element in accessor]

    seen = [tuple(value.tolist()) for value in held]
    check.equal(actual=seen, expected=[*TWOS] * 2, what="the elements of two passes")


def test_the_structure_of_an_element_is_kept(loading: Loading) -> None:
    """A dictionary of tensors comes back as it was made."""
    accessor = loading.accessor(Elements(3, pairs))
    elements = [{key: value.tolist() for key, value in element.items()} for element in accessor]

    check.equal(actual=elements, expected=[{"x": [i], "y": [-i, i]} for i in range(3)], what="the list of elements")


@pytest.mark.parametrize(("early", "least", "most"), [(True, 3, 5), (False, 0, 1)], ids=["early", "default"])
def test_early_preload_fills_the_buffer_before_it_is_read(
    loading: Loading, tmp_path: Path, early: bool, least: int, most: int
) -> None:
    """With early_preload the worker fills the buffer at once and stops; by default it waits for the first iterator."""

    def recorded(i: int) -> Any:
        (tmp_path / str(i)).touch()
        return twos(i)

    loading.accessor(Elements(20, recorded), early_preload=early, buffer_size=3)
    end = time.monotonic() + 5
    while len(list(tmp_path.iterdir())) < least and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.2)

    # Three wait in the buffer and one in the worker's hand; the first may be made early, to size the buffer.
    loaded = len(list(tmp_path.iterdir()))
    check.holds(least <= loaded <= most, f"the worker has made {loaded} elements, not {least} to {most}, unread.")


def test_small_elements_are_joined(loading: Loading) -> None:
    """rebatched_size joins elements into tensors of that many rows, and drops the remainder."""
    assert_passes(loading.accessor(Elements(5, rows), rebatched_size=4), expected=ranges(4, stop=12))


@pytest.mark.parametrize("size", [1, 0])
def test_one_element_is_not_joined(loading: Loading, size: int) -> None:
    """A rebatched_size is None or more than 1."""
    with check.raises(AssertionError, what=f"rebatched_size={size}"):
        loading.accessor(Elements(5, rows), rebatched_size=size)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("make", "text"), [(failing, "error occurred in the data fetcher"), (dying, "")], ids=["failing", "dying"]
)
def test_a_failure_in_the_worker_is_raised(loading: Loading, make: Any, text: str) -> None:
    """An exception of the dataset, or the death of the worker, is an AssertionError after the elements before it."""
    iterator = iter(loading.accessor(Elements(3, make)))
    next(iterator)

    with check.raises(AssertionError, match=text, what=f"reading on where the worker is {make.__name__}"):
        next(iterator)


@pytest.mark.timeout(60)
def test_nothing_comes_after_termination(loading: Loading) -> None:
    """Reading on after terminate() raises."""
    accessor = loading.accessor(Elements(50), buffer_size=1)
    next(iter(accessor))
    accessor.terminate()

    with check.raises(AssertionError, what="reading after terminate()"):
        values(accessor)


@pytest.mark.timeout(60)
def test_a_loader_loads_in_another_process(loading: Loading) -> None:
    """DataLoaderMode.Async gives the combined batches of Sync, pass after pass, until terminate() ends the worker."""
    loader = loading.loader(numbers(13), 2, mode="Async", batch_size=3)

    assert_passes(loader, times=3, expected=ranges(6, stop=12))
    check.equal(actual=len(loader), expected=2, what="the length of the loader")
    loader.terminate()
    with check.raises(AssertionError, what="reading from a loader after terminate()"):
        values(loader)


def test_rebatching_loses_only_one_rest_of_a_stream(loading: Loading) -> None:
    """The remainders of two workers at the end of a stream are joined: 22 of 23 samples make two batches of 11."""
    small: Any = {"mode": "AsyncRebatched", "batch_size": 11, "rebatched_worker_size": 3}
    batches = values(loading.loader(stream(23, split=True), num_workers=2, **small))

    check.equal(actual=[len(batch) for batch in batches], expected=[11, 11], what="the list of the batches' sizes")
    check.equal(actual=len({i for batch in batches for i in batch}), expected=22, what="the number of distinct samples")
