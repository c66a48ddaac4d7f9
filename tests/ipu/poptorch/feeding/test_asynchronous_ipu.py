"""Loading in another process: order, passes, buffers, rebatching, failures and the end of the worker."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from ipu_conformance import check

from .datasets import Batches, Dying, Failing, Pairs, Recording, Rows, numbers, stream, values


class Access:
    """Opens accessors and loaders whose worker is forked, which starts at once, and ends them after the case."""

    def __init__(self, poptorch: Any) -> None:
        self.poptorch = poptorch
        self.opened: List[Any] = []

    def accessor(self, dataset: Any, **arguments: Any) -> Any:
        arguments.setdefault("sharing_strategy", self.poptorch.SharingStrategy.Fork)
        self.opened.append(self.poptorch.AsynchronousDataAccessor(dataset, **arguments))
        return self.opened[-1]

    def loader(self, dataset: Any, mode: str = "Async", device_iterations: int = 2, **arguments: Any) -> Any:
        options = self.poptorch.Options().deviceIterations(device_iterations)
        forked = {"sharing_strategy": self.poptorch.SharingStrategy.Fork}
        kind = getattr(self.poptorch.DataLoaderMode, mode)
        self.opened.append(self.poptorch.DataLoader(options, dataset, mode=kind, async_options=forked, **arguments))
        return self.opened[-1]


@pytest.fixture
def access(poptorch: Any) -> Iterator[Access]:
    """What opens accessors and ends them."""
    access = Access(poptorch)
    yield access
    for accessor in access.opened:
        accessor.terminate()


TWOS = tuple((i, i) for i in range(5))


def assert_passes(accessor: Any, times: int = 1, expected: Any = TWOS) -> None:
    """Each pass over an accessor or a loader has these elements, in order."""
    __tracebackhide__ = True
    for number in range(times):
        check.equal(actual=values(accessor), expected=expected, what=f"pass {number}")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("sharing_strategy", strategy) for strategy in ("Fork", "ForkServer", "SharedMemory", "FileSystem")),
        *(("buffer_size", size) for size in (1, 2, 8)),
        ("load_indefinitely", False),
        *(("miss_sleep_time_in_ms", duration) for duration in (0, 0.5)),
    ],
)
def test_no_setting_changes_the_elements(poptorch: Any, access: Access, setting: str, value: Any) -> None:
    """However the dataset reaches the worker, and whatever its buffer, a pass has every element once, in order."""
    value = getattr(poptorch.SharingStrategy, value) if setting == "sharing_strategy" else value

    with check.accepted(f"{setting}={value}"):
        accessor = access.accessor(Batches(5), **{setting: value})

    assert_passes(accessor)


@pytest.mark.parametrize("strategy", ["Fork", "ForkServer"])
def test_a_generator_sets_the_order_in_the_worker(poptorch: Any, torch: Any, strategy: str) -> None:
    """A loader that shuffles by a generator gives in another process the order that it gives in this one."""

    def order(**arguments: Any) -> Any:
        generator = torch.Generator().manual_seed(3)
        loader = poptorch.DataLoader(
            poptorch.Options(), numbers(12), batch_size=4, shuffle=True, generator=generator, **arguments
        )
        try:
            return [values(loader) for _ in range(2)]
        finally:
            loader.terminate()

    way = {"sharing_strategy": getattr(poptorch.SharingStrategy, strategy)}

    actual = order(mode=poptorch.DataLoaderMode.Async, async_options=way)
    check.equal(actual=actual, expected=order(), what=f"the shuffled order of two passes with {strategy}")


def test_each_iterator_is_one_pass(access: Access) -> None:
    """An accessor that loads indefinitely gives the dataset again to each iterator."""
    assert_passes(access.accessor(Batches(5)), times=3)


def test_a_pass_that_is_left_half_way_is_forgotten(access: Access) -> None:
    """An iterator made after another was left begins at the first element."""
    accessor = access.accessor(Batches(5))
    iterator = iter(accessor)
    next(iterator), next(iterator)

    assert_passes(accessor)


def test_an_element_that_is_kept_stays_as_it_is(access: Access) -> None:
    """Later elements do not write over those that a program still holds, of this pass or of the one before."""
    accessor = access.accessor(Batches(5), buffer_size=2)
    held = [element for _ in range(2) for element in accessor]

    seen = [tuple(value.tolist()) for value in held]
    check.equal(actual=seen, expected=[*TWOS] * 2, what="the elements of two passes")


def test_the_length_is_that_of_the_dataset(access: Access) -> None:
    """len() of an accessor is len() of what it reads."""
    check.equal(actual=len(access.accessor(Batches(5))), expected=5, what="the length of an accessor of 5 elements")


def test_the_structure_of_an_element_is_kept(access: Access) -> None:
    """A dictionary of tensors comes back as it was made."""
    elements = [{key: value.tolist() for key, value in element.items()} for element in access.accessor(Pairs(3))]

    check.equal(actual=elements, expected=[{"x": [i], "y": [-i, i]} for i in range(3)], what="the list of elements")


def _loaded(folder: Path, at_least: int) -> int:
    """The number of elements that the worker has made, after waiting until it has made ``at_least``."""
    end = time.monotonic() + 5
    while len(list(folder.iterdir())) < at_least and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.2)
    return len(list(folder.iterdir()))


@pytest.mark.parametrize(("early", "least", "most"), [(True, 3, 5), (False, 0, 1)], ids=["early", "default"])
def test_early_preload_fills_the_buffer_before_it_is_read(
    access: Access, tmp_path: Path, early: bool, least: int, most: int
) -> None:
    """With early_preload the worker fills the buffer at once and stops; by default it waits for the first iterator."""
    access.accessor(Recording(20, str(tmp_path)), early_preload=early, buffer_size=3)

    # Three wait in the buffer and one in the worker's hand; the first may be made early, to size the buffer.
    loaded = _loaded(tmp_path, least)
    check.holds(least <= loaded <= most, f"the worker has made {loaded} elements, not {least} to {most}, unread.")


def test_small_elements_are_joined(access: Access) -> None:
    """rebatched_size joins elements into tensors of that many rows, and drops the remainder."""
    rebatched = ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
    assert_passes(access.accessor(Rows(5), rebatched_size=4), expected=rebatched)


@pytest.mark.parametrize("size", [1, 0])
def test_one_element_is_not_joined(access: Access, size: int) -> None:
    """A rebatched_size is None or more than 1."""
    with check.raises(AssertionError, what=f"rebatched_size={size}"):
        access.accessor(Rows(5), rebatched_size=size)


@pytest.mark.parametrize("mode", ["Async", "AsyncRebatched"])
def test_the_mode_sets_what_is_joined(poptorch: Any, mode: str) -> None:
    """A rebatched_size among the async_options of a DataLoader is refused."""
    kind = getattr(poptorch.DataLoaderMode, mode)
    options = poptorch.Options().deviceIterations(4)
    with check.raises(AssertionError, what="rebatched_size among async_options"):
        poptorch.DataLoader(options, numbers(13), mode=kind, async_options={"rebatched_size": 4})


def test_a_failure_in_the_worker_is_raised(access: Access) -> None:
    """An exception of the dataset is an AssertionError for whoever reads, after the elements before it."""
    iterator = iter(access.accessor(Failing(3)))
    next(iterator)

    failed = "error occurred in the data fetcher"
    with check.raises(AssertionError, match=failed, what="reading past the dataset's failure"):
        next(iterator)


@pytest.mark.timeout(60)
def test_the_death_of_the_worker_is_an_error(access: Access) -> None:
    """A worker that is gone is an error for whoever reads, not a wait without end."""
    iterator = iter(access.accessor(Dying(3)))
    next(iterator)

    with check.raises(AssertionError, what="reading from a worker that has died"):
        next(iterator)


@pytest.mark.timeout(60)
def test_nothing_comes_after_termination(access: Access) -> None:
    """Reading on after terminate() raises."""
    accessor = access.accessor(Batches(50), buffer_size=1)
    next(iter(accessor))
    accessor.terminate()

    with check.raises(AssertionError, what="reading after terminate()"):
        values(accessor)


def test_a_loader_loads_in_another_process(access: Access) -> None:
    """DataLoaderMode.Async gives the combined batches of DataLoaderMode.Sync, pass after pass."""
    loader = access.loader(numbers(13), batch_size=3)

    assert_passes(loader, times=3, expected=(tuple(range(6)), tuple(range(6, 12))))
    check.equal(actual=len(loader), expected=2, what="the length of the loader")


@pytest.mark.timeout(60)
def test_a_loader_ends_its_worker(access: Access) -> None:
    """The elements before terminate() are whole; nothing can be read after it."""
    loader = access.loader(numbers(12), batch_size=3)
    assert_passes(loader, expected=(tuple(range(6)), tuple(range(6, 12))))
    loader.terminate()

    with check.raises(AssertionError, what="reading from a loader after terminate()"):
        values(loader)


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [6, 6]), (False, [6, 6, 1])], ids=["dropped", "kept"])
def test_a_loader_joins_what_small_batches_bring(access: Access, drop_last: bool, sizes: Any) -> None:
    """AsyncRebatched joins workers' smaller tensors into combined batches, in order, and drops the remainder or not."""
    loader = access.loader(numbers(13), "AsyncRebatched", batch_size=3, rebatched_worker_size=4, drop_last=drop_last)

    rest = iter(range(sum(sizes)))
    assert_passes(loader, expected=tuple(tuple(itertools.islice(rest, size)) for size in sizes))
    check.equal(actual=len(loader), expected=len(sizes), what="the length of the loader")


def test_rebatching_loses_only_one_rest_of_a_stream(access: Access) -> None:
    """The remainders of two workers at the end of a stream are joined: 22 of 23 samples make two batches of 11."""
    loader = access.loader(
        stream(23, split=True), "AsyncRebatched", 1, batch_size=11, rebatched_worker_size=3, num_workers=2
    )

    batches = values(loader)
    check.equal(actual=[len(batch) for batch in batches], expected=[11, 11], what="the list of the batches' sizes")
    check.equal(actual=len({i for batch in batches for i in batch}), expected=22, what="the number of distinct samples")


@pytest.mark.parametrize("kind", [stream, numbers], ids=["stream", "map"])
def test_a_remainder_must_be_rebatched(access: Access, kind: Any) -> None:
    """drop_last=False in another process is refused unless the batches are joined there."""
    with check.raises(AssertionError, what="drop_last=False in another process"):
        access.loader(kind(13), drop_last=False)
