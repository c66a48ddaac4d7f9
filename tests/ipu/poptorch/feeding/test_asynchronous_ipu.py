"""Loading in another process: order, passes, buffers, rebatching, failures and the end of the worker."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Iterator, List

import pytest

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


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("sharing_strategy", strategy) for strategy in ("Fork", "ForkServer", "SharedMemory", "FileSystem")),
        *(("buffer_size", size) for size in (1, 2, 8)),
        ("load_indefinitely", False),
    ],
)
def test_no_setting_changes_the_elements(poptorch: Any, access: Access, setting: str, value: Any) -> None:
    """However the dataset reaches the worker, and whatever its buffer, a pass has every element once, in order."""
    value = getattr(poptorch.SharingStrategy, value) if setting == "sharing_strategy" else value

    assert values(access.accessor(Batches(5), **{setting: value})) == TWOS


@pytest.mark.parametrize("strategy", ["Fork", "ForkServer"])
def test_a_generator_sets_the_order_in_the_worker(poptorch: Any, torch: Any, strategy: str) -> None:
    """A loader that shuffles by a generator gives in another process the order that it gives in this one."""

    def order(**arguments: Any) -> Any:
        generator = torch.Generator().manual_seed(3)
        with poptorch.DataLoader(
            poptorch.Options(), numbers(12), batch_size=4, shuffle=True, generator=generator, **arguments
        ) as loader:
            return [values(loader) for _ in range(2)]

    way = {"sharing_strategy": getattr(poptorch.SharingStrategy, strategy)}

    assert order(mode=poptorch.DataLoaderMode.Async, async_options=way) == order()


def test_each_iterator_is_one_pass(access: Access) -> None:
    """An accessor that loads indefinitely gives the dataset again to each iterator."""
    accessor = access.accessor(Batches(5))

    assert [values(accessor) for _ in range(3)] == [TWOS] * 3


def test_a_pass_that_is_left_half_way_is_forgotten(access: Access) -> None:
    """An iterator made after another was left begins at the first element."""
    accessor = access.accessor(Batches(5))
    iterator = iter(accessor)
    next(iterator), next(iterator)

    assert values(accessor) == TWOS


def test_the_length_is_that_of_the_dataset(access: Access) -> None:
    """len() of an accessor is len() of what it reads."""
    assert len(access.accessor(Batches(5))) == 5


def test_the_structure_of_an_element_is_kept(access: Access) -> None:
    """Dictionaries and tuples of tensors come back as they were made."""
    elements = list(access.accessor(Pairs(3)))

    assert [(e["x"].tolist(), e["rest"][0].tolist()) for e in elements] == [([i], [-i]) for i in range(3)]


def _loaded(folder: Path, at_least: int) -> int:
    """How many elements the worker has made, after waiting for so many."""
    end = time.monotonic() + 5
    while len(list(folder.iterdir())) < at_least and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.2)
    return len(list(folder.iterdir()))


def test_early_preload_fills_the_buffer_before_it_is_read(access: Access, tmp_path: Path) -> None:
    """With early_preload the worker begins at once, and stops when the buffer is full."""
    access.accessor(Recording(20, str(tmp_path)), early_preload=True, buffer_size=2)

    # Two wait in the buffer and one in the worker's hand.
    assert 2 <= _loaded(tmp_path, 2) <= 4


def test_without_early_preload_nothing_is_loaded_yet(access: Access, tmp_path: Path) -> None:
    """By default the worker waits for the first iterator."""
    access.accessor(Recording(20, str(tmp_path)))

    assert _loaded(tmp_path, 0) == 0


def test_small_elements_are_joined(access: Access) -> None:
    """rebatched_size joins elements into tensors of so many rows, and drops a rest."""
    assert values(access.accessor(Rows(5), rebatched_size=4)) == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))


def test_a_failure_in_the_worker_is_raised(access: Access) -> None:
    """An exception of the dataset reaches whoever reads, after the elements before it."""
    iterator = iter(access.accessor(Failing(3)))
    next(iterator)

    with pytest.raises(ValueError, match="sample 1 cannot be read"):
        next(iterator)


@pytest.mark.timeout(60)
def test_the_death_of_the_worker_is_an_error(poptorch: Any, access: Access) -> None:
    """A worker that is gone is an error for whoever reads, not a wait without end."""
    iterator = iter(access.accessor(Dying(3)))
    next(iterator)

    with pytest.raises(poptorch.Error):
        next(iterator)


@pytest.mark.timeout(60)
def test_nothing_comes_after_termination(poptorch: Any, access: Access) -> None:
    """Reading on after terminate() raises."""
    accessor = access.accessor(Batches(50), buffer_size=1)
    next(iter(accessor))
    accessor.terminate()

    with pytest.raises(poptorch.Error):
        values(accessor)


def test_a_loader_loads_in_another_process(access: Access) -> None:
    """DataLoaderMode.Async gives the combined batches of DataLoaderMode.Sync, pass after pass."""
    loader = access.loader(numbers(13), batch_size=3)

    assert [values(loader) for _ in range(2)] == [(tuple(range(6)), tuple(range(6, 12)))] * 2
    assert len(loader) == 2


def test_a_loader_is_a_context(poptorch: Any, access: Access) -> None:
    """Leaving the block ends the worker; the elements before are whole."""
    with access.loader(numbers(12), batch_size=3) as loader:
        assert values(loader) == (tuple(range(6)), tuple(range(6, 12)))


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [6, 6]), (False, [6, 6, 1])], ids=["dropped", "kept"])
def test_a_loader_joins_what_small_batches_bring(access: Access, drop_last: bool, sizes: Any) -> None:
    """AsyncRebatched makes combined batches of workers' smaller tensors, in order, and treats the rest as asked."""
    loader = access.loader(numbers(13), "AsyncRebatched", batch_size=3, rebatched_worker_size=4, drop_last=drop_last)

    batches = values(loader)

    assert [len(batch) for batch in batches] == sizes
    assert [i for batch in batches for i in batch] == list(range(sum(sizes)))
    assert len(loader) == len(sizes)


def test_rebatching_loses_only_one_rest_of_a_stream(access: Access) -> None:
    """What two workers leave over at the end of a stream is joined: 22 of 23 samples make two batches of 11."""
    loader = access.loader(
        stream(23, split=True), "AsyncRebatched", 1, batch_size=11, rebatched_worker_size=3, num_workers=2
    )

    assert [len(batch) for batch in values(loader)] == [11, 11]


def test_a_stream_with_a_remainder_must_be_rebatched(poptorch: Any, access: Access) -> None:
    """drop_last=False with an iterable dataset in another process is refused unless it is rebatched."""
    with pytest.raises(AssertionError):
        access.loader(stream(13), drop_last=False)


@pytest.mark.parametrize("arguments", [{"buffer_size": 0}, {"sharing_strategy": "fork"}], ids=["buffer", "strategy"])
def test_a_wrong_setting_is_refused(access: Access, arguments: Any) -> None:
    """A buffer of nothing and an unknown strategy are refused before a process starts."""
    with pytest.raises((AssertionError, ValueError)):
        access.accessor(Batches(2), **arguments)
