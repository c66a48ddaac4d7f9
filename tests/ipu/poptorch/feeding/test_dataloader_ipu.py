"""poptorch.DataLoader: combined batches, remainders, streams, processes, rebatching and refusals."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, Tuple

import pytest

from ipu_conformance import check

from ..lazily import torch
from ..on_device import assert_refused
from .conftest import Loading
from .datasets import numbers, ranges, stream, values

_COUNTS = ((1, 1, 1, 1), (5, 1, 1, 1), (1, 3, 1, 1), (1, 1, 2, 1), (5, 3, 2, 1), (5, 3, 4, 2), (2, 3, 4, 4))
FACTORS = [pytest.param(d, g, r, group, id=f"D{d}-G{g}-R{r}-group{group}") for d, g, r, group in _COUNTS]


def assert_batches(loader: Any, *expected: Any) -> None:
    """A pass over the loader has these combined batches, and the loader's length, if it has one, is their number."""
    __tracebackhide__ = True
    check.equal(actual=values(loader), expected=tuple(map(tuple, expected)), what="the list of combined batches")
    if hasattr(loader.dataset, "__len__"):
        check.equal(actual=len(loader), expected=len(expected), what="the length of the loader")


@pytest.mark.parametrize(("d", "g", "r", "group"), FACTORS)
def test_a_combined_batch_is_what_one_call_consumes(loading: Loading, d: int, g: int, r: int, group: int) -> None:
    """It is the micro-batch times device iterations, accumulation and groups of replicas, in the dataset's order."""
    expected = 7 * d * g * r // group

    loader = loading.loader(numbers(2 * expected), d, g, r, group, batch_size=7)

    check.equal(actual=loader.combinedBatchSize, expected=expected, what="combinedBatchSize")
    assert_batches(loader, *ranges(expected, stop=2 * expected))


@pytest.mark.parametrize("arguments", [{}, {"drop_last": False}], ids=["dropped", "kept"])
@pytest.mark.parametrize("count", [5, 11, 12, 13, 17, 18])
def test_a_remainder_is_dropped_or_kept(loading: Loading, count: int, arguments: Dict[str, Any]) -> None:
    """Samples that do not fill a combined batch are left out by default; on request the last batch holds them."""
    loader = loading.loader(numbers(count), 3, batch_size=2, **arguments)

    assert_batches(loader, *ranges(6, stop=count if arguments else count - count % 6))


@pytest.mark.parametrize("mode", ["Sync", "Async", "AsyncRebatched"])
def test_batches_of_a_sampler_are_combined(loading: Loading, mode: str) -> None:
    """Two batches of three, from the end of the dataset to its beginning, make the batch of a call, in every mode."""
    sampler = torch.utils.data.BatchSampler(range(13, -1, -1), 3, drop_last=True)
    loader = loading.loader(numbers(14), 2, batch_sampler=sampler, mode=mode, async_options=None)

    check.equal(actual=loader.combinedBatchSize, expected=6, what="combinedBatchSize")
    assert_batches(loader, range(13, 7, -1), range(7, 1, -1))


def _with_rest(load: Callable[..., Any]) -> Any:
    sampler = torch.utils.data.BatchSampler(range(14), 3, drop_last=False)
    return load(numbers(14), 2, batch_sampler=sampler, mode="AsyncRebatched", async_options=None, drop_last=False)


BY_HAND: Dict[str, Any] = {"rank": 1, "batch_size": 2, "auto_distributed_partitioning": False}
PASSES: Dict[str, Tuple[Callable[[Any], Any], Any]] = {
    "two workers of torch": (lambda load: load(numbers(24), 2, batch_size=3, num_workers=2), ranges(6, stop=24)),
    "batch_size=None": (
        lambda load: load([torch.arange(6), torch.arange(6, 12)], 3, batch_size=None), ranges(6, stop=12)
    ),
    "a list of batches": (lambda load: load(numbers(6), batch_sampler=[[5, 0], [3, 2]]), [(5, 0), (3, 2)]),
    "the rest of a sampler": (_with_rest, ranges(6, stop=14)),
    "a stream": (lambda load: load(stream(14), 2, batch_size=3), ranges(6, stop=12)),
    "nothing to rebatch": (lambda load: load(numbers(12), 6, rebatched_worker_size=7), ranges(6, stop=12)),
    "all of a dataset": (lambda load: load(numbers(8), 2, **BY_HAND), ranges(4, stop=8)),
    "all of a stream": (lambda load: load(stream(8), 2, **BY_HAND), ranges(4, stop=8)),
}  # fmt: skip
"""Loaders and their combined batches; without partitioning a process loads the whole dataset that it was given."""


@pytest.mark.parametrize("what", PASSES)
def test_a_pass_has_its_batches(loading: Loading, what: str) -> None:
    """Batches come in the order of the dataset, of its sampler or of its stream, without the remainder."""
    make, expected = PASSES[what]

    assert_batches(make(loading.loader), *expected)


@pytest.mark.parametrize("mode", ["Sync", "Async"])
def test_without_a_batch_size_a_stream_makes_the_batches(loading: Loading, mode: str) -> None:
    """With batch_size=None the elements of an iterable dataset come as they are, from another process too."""
    dataset = torch.utils.data.ChainDataset([stream(6), stream(4)])
    elements = [int(element) for element in loading.loader(dataset, 3, batch_size=None, mode=mode)]

    check.equal(actual=elements, expected=[*range(6), *range(4)], what="the list of elements")


def test_batches_of_a_sampler_are_collated_one_by_one(loading: Loading) -> None:
    """A collate function sees each batch of the sampler; what it makes of them is joined for a call of the model."""
    sampler = torch.utils.data.BatchSampler(range(12), 3, drop_last=True)

    def collate(batch: Any) -> Any:
        samples = torch.stack([sample[0] for sample in batch])
        return {"first": samples[:1], "sums": (samples.sum(), ["three"])}

    loader = loading.loader(numbers(12), 2, batch_sampler=sampler, collate_fn=collate)

    actual = [(part["first"].tolist(), part["sums"][0].tolist(), part["sums"][1]) for part in loader]
    expected = [([0, 3], [3, 12], ["three", "three"]), ([6, 9], [21, 30], ["three", "three"])]
    check.equal(actual=actual, expected=expected, what="the batches of two calls")


@pytest.mark.emulator
def test_a_sampler_of_batches_sets_the_order(loading: Loading) -> None:
    """It cannot be shuffled besides, as torch's loader says."""
    with check.raises(ValueError, match="shuffle", what="shuffle=True with a batch_sampler"):
        loading.loader(numbers(6), batch_sampler=[[5, 0], [3, 2]], shuffle=True)


def _samples(loader: Any) -> Tuple[int, ...]:
    """The samples of a pass in their order."""
    return tuple(itertools.chain(*values(loader)))


def test_shuffling_permutes_the_samples(loading: Loading) -> None:
    """A shuffled pass has every sample once, and whole, in another order than the dataset and than the next pass."""
    loader, samples = loading.loader(numbers(60), 2, batch_size=3, shuffle=True), [(i, -i) for i in range(60)]

    passes = [[row for x, y in loader for row in zip(x.tolist(), y.tolist())] for _ in range(2)]

    for number, rows in enumerate(passes):
        check.equal(actual=sorted(rows), expected=sorted(samples), what=f"the sorted list of samples of pass {number}")
        check.differs(actual=rows, other=samples, what=f"the order of pass {number}")
    check.differs(actual=passes[1], other=passes[0], what="the order of the second pass")


def test_a_seed_alone_shuffles_nothing(loading: Loading) -> None:
    """Without shuffle=True every process has its samples in the order of the dataset, whatever the seed."""
    for rank in range(3):
        loader = loading.loader(numbers(36), 2, rank=rank, seed=11, batch_size=3)

        assert_batches(loader, *ranges(6, first=12 * rank, stop=12 * rank + 12))


def test_the_random_seed_sets_the_shuffled_order(loading: Loading) -> None:
    """Two programs with the same Options.randomSeed shuffle alike, and one with another does not."""
    first, again, other = (
        values(loading.loader(numbers(40), seed=seed, batch_size=4, shuffle=True)) for seed in (5, 5, 6)
    )

    check.equal(actual=again, expected=first, what="the order that the seed 5 gives again")
    check.differs(actual=other, other=first, what="the order that the seed 6 gives")


@pytest.mark.parametrize("shuffle", [False, True], ids=["in-order", "shuffled"])
def test_each_process_has_its_own_samples(loading: Loading, shuffle: bool) -> None:
    """Three processes load equally many samples, and none in common."""
    shares = [
        _samples(loading.loader(numbers(40), 2, rank=rank, seed=11, batch_size=2, shuffle=shuffle)) for rank in range(3)
    ]

    check.equal(actual=[len(share) for share in shares], expected=[12] * 3, what="the number of samples by process")
    check.equal(actual=len(set(itertools.chain(*shares))), expected=36, what="the number of distinct samples in all")


def test_each_pass_has_an_order_of_its_own(loading: Loading) -> None:
    """Three processes that shuffle load other samples in each of three passes, and in no pass two of them the same."""
    loaders = [loading.loader(numbers(36), 2, rank=rank, seed=11, batch_size=2, shuffle=True) for rank in range(3)]
    passes = [[_samples(loader) for loader in loaders] for _ in range(3)]

    distinct = [len(set(itertools.chain(*shares))) for shares in passes]
    check.equal(actual=distinct, expected=[36] * 3, what="the number of distinct samples of all processes by pass")
    check.equal(actual=len({shares[2] for shares in passes}), expected=3, what="the number of orders in process 2")
    in_order = [share for shares in passes for share in shares if list(share) == sorted(share)]
    check.equal(actual=in_order, expected=[], what="the list of shares in the order of the dataset")


def test_a_loader_takes_its_options_into_use(poptorch: Any) -> None:
    """The options of a loader can be read from it and not changed any more."""
    options = poptorch.Options().deviceIterations(2)
    loader = poptorch.DataLoader(options, numbers(4))

    check.holds(loader.options is options, f"the loader's options are {loader.options}, not the object that it took.")
    with check.raises(AttributeError, what="changing the options of a loader"):
        options.deviceIterations(3)


def test_a_loader_is_a_torch_loader(loading: Loading) -> None:
    """The loader is a torch DataLoader, and takes its other arguments."""
    loader = loading.loader(numbers(6), 3, collate_fn=len)

    check.instance(actual=loader, expected=torch.utils.data.DataLoader, what="the loader")
    check.equal(actual=list(loader), expected=[3, 3], what="what collate_fn=len makes of the batches")


SURPRISES: Dict[str, Callable[[Any], Any]] = {
    "not divisible": lambda load: load(numbers(14), 2, batch_size=3, drop_last=False),
    "worker_init_fn": lambda load: load(stream(6), num_workers=3),
}


@pytest.mark.parametrize("word", SURPRISES)
def test_a_surprise_is_announced(loading: Loading, said: Callable[[], str], word: str) -> None:
    """A loader that keeps a smaller last batch says so, and one whose workers would each give all of a stream."""
    SURPRISES[word](loading.loader)

    check.contains(actual=said(), expected=word, what="what is said when the loader is made")


JOINED: Dict[str, Any] = {"async_options": {"rebatched_size": 4}}
REFUSED: Dict[str, Tuple[Any, str, Callable[[Any], Any]]] = {
    "batch_size=None in three processes": (
        AssertionError, "batch_size=None", lambda load: load(numbers(4), rank=0, batch_size=None)
    ),
    "shuffling a stream": (ValueError, "shuffle", lambda load: load(stream(4), shuffle=True)),
    "a stream in the second of three processes": (
        AssertionError, "", lambda load: load(stream(24), 2, rank=1, batch_size=2)
    ),
    "shuffling in three processes without a seed": (
        AssertionError, "", lambda load: load(numbers(8), 2, rank=0, shuffle=True)
    ),
    "rebatched_worker_size=7 for a combined batch of 6": (
        AssertionError, "", lambda load: load(numbers(12), 6, mode="AsyncRebatched", rebatched_worker_size=7)
    ),
    "rebatched_size for a worker": (AssertionError, "", lambda load: load(numbers(13), 4, mode="Async", **JOINED)),
    "rebatched_size for a worker that joins": (
        AssertionError, "", lambda load: load(numbers(13), 4, mode="AsyncRebatched", **JOINED)
    ),
    "the rest of a stream from a worker": (
        AssertionError, "", lambda load: load(stream(13), 2, mode="Async", drop_last=False)
    ),
    "the rest of a dataset from a worker": (
        AssertionError, "", lambda load: load(numbers(13), 2, mode="Async", drop_last=False)
    ),
}  # fmt: skip
"""Samples of processes that shuffle by themselves would overlap; a rest from another process must be rebatched."""


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_loader_cannot_do_is_refused(loading: Loading, what: str) -> None:
    """The loader is not made."""
    error, text, call = REFUSED[what]

    assert_refused(what, error, text, lambda: call(loading.loader))


def test_a_loader_that_loads_ahead_is_not_loaded_ahead_again(poptorch: Any, loading: Loading) -> None:
    """An accessor of a loader that has one already is refused."""
    loader = loading.loader(numbers(4), batch_size=2, mode="Async")

    with check.raises(poptorch.Error, match="already", what="an accessor of an asynchronous loader"):
        loading.accessor(loader)


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [6, 6]), (False, [6, 6, 1])], ids=["dropped", "kept"])
def test_a_loader_joins_what_small_batches_bring(loading: Loading, drop_last: bool, sizes: Any) -> None:
    """AsyncRebatched joins workers' smaller tensors into combined batches, in order, and drops the remainder or not."""
    small: Any = {"mode": "AsyncRebatched", "batch_size": 3, "rebatched_worker_size": 4}
    loader = loading.loader(numbers(13), 2, drop_last=drop_last, **small)

    assert_batches(loader, *ranges(6, stop=sum(sizes)))
