"""poptorch.DataLoader: combined batches, remainders, streams, processes, rebatching and refusals."""

from __future__ import annotations

import itertools
from typing import Any, Callable, List

import pytest

from ipu_conformance import check

from .datasets import numbers, stream, values


def _options(poptorch: Any, d: int = 1, g: int = 1, r: int = 1, group: int = 1) -> Any:
    options = poptorch.Options().deviceIterations(d).replicationFactor(r).inputReplicaGrouping(group)
    options.Training.gradientAccumulation(g)
    return options


def _process(poptorch: Any, rank: int, processes: int) -> Any:
    options = _options(poptorch, d=2)
    options.Distributed.configureProcessId(rank, processes)
    return options


_COUNTS = ((1, 1, 1, 1), (5, 1, 1, 1), (1, 3, 1, 1), (1, 1, 2, 1), (5, 3, 2, 1), (5, 3, 4, 2), (2, 3, 4, 4))
FACTORS = [pytest.param(d, g, r, group, id=f"D{d}-G{g}-R{r}-group{group}") for d, g, r, group in _COUNTS]


def assert_batches(loader: Any, *expected: Any) -> None:
    """A pass over the loader has these combined batches, and the loader's length is their number."""
    __tracebackhide__ = True
    check.equal(actual=values(loader), expected=tuple(map(tuple, expected)), what="the list of combined batches")
    check.equal(actual=len(loader), expected=len(expected), what="the length of the loader")


def ranges(size: int, *, stop: int) -> List[range]:
    """0 … stop-1 in ranges of one size; the last holds what is left."""
    return [range(first, min(first + size, stop)) for first in range(0, stop, size)]


@pytest.mark.parametrize(("d", "g", "r", "group"), FACTORS)
def test_a_combined_batch_is_what_one_call_consumes(poptorch: Any, d: int, g: int, r: int, group: int) -> None:
    """It is the micro-batch times device iterations, accumulation and groups of replicas, in the dataset's order."""
    expected = 7 * d * g * r // group

    loader = poptorch.DataLoader(_options(poptorch, d, g, r, group), numbers(2 * expected), batch_size=7)

    check.equal(actual=loader.combinedBatchSize, expected=expected, what="combinedBatchSize")
    assert_batches(loader, *ranges(expected, stop=2 * expected))


def test_samples_stay_together(poptorch: Any) -> None:
    """Every tensor of a sample lands at the same row."""
    loader = poptorch.DataLoader(_options(poptorch, 2), numbers(30), batch_size=3, shuffle=True)

    rows = sorted(row for x, y in loader for row in zip(x.tolist(), y.tolist()))
    check.equal(actual=rows, expected=[(i, -i) for i in range(30)], what="the sorted list of rows")


@pytest.mark.parametrize(("count", "full"), [(11, 1), (12, 2), (13, 2), (17, 2), (18, 3)])
def test_a_remainder_is_dropped_by_default(poptorch: Any, count: int, full: int) -> None:
    """Samples that do not fill a combined batch are left out, and the length counts full batches."""
    loader = poptorch.DataLoader(_options(poptorch, d=3), numbers(count), batch_size=2)

    assert_batches(loader, *ranges(6, stop=6 * full))


@pytest.mark.parametrize("count", [12, 13, 5])
def test_a_remainder_is_kept_on_request(poptorch: Any, count: int) -> None:
    """With drop_last=False the last batch holds what is left."""
    loader = poptorch.DataLoader(_options(poptorch, d=3), numbers(count), batch_size=2, drop_last=False)

    assert_batches(loader, *ranges(6, stop=count))


def test_shuffling_permutes_the_samples(poptorch: Any) -> None:
    """A shuffled pass has every sample once, in another order than the dataset and than the next pass."""
    loader = poptorch.DataLoader(_options(poptorch, d=2), numbers(60), batch_size=3, shuffle=True)

    passes = [tuple(itertools.chain(*values(loader))) for _ in range(2)]

    for number, order in enumerate(passes):
        check.equal(actual=sorted(order), expected=list(range(60)), what=f"the sorted list of samples of pass {number}")
        check.differs(actual=order, other=tuple(range(60)), what=f"the order of pass {number}")
    check.differs(actual=passes[1], other=passes[0], what="the order of the second pass")


def test_a_seed_alone_shuffles_nothing(poptorch: Any) -> None:
    """Without shuffle=True every process has its samples in the order of the dataset, whatever the seed."""
    for rank in range(3):
        options = _process(poptorch, rank, 3).randomSeed(11)
        loader = poptorch.DataLoader(options, numbers(36), batch_size=3)

        assert_batches(loader, *(range(first, first + 6) for first in (12 * rank, 12 * rank + 6)))


def test_the_random_seed_sets_the_shuffled_order(poptorch: Any) -> None:
    """Two programs with the same Options.randomSeed shuffle alike, and one with another does not."""

    def order(seed: int) -> Any:
        options = _options(poptorch).randomSeed(seed)
        return values(poptorch.DataLoader(options, numbers(40), batch_size=4, shuffle=True))

    check.equal(actual=order(5), expected=order(5), what="the order that the seed 5 gives again")
    check.differs(actual=order(6), other=order(5), what="the order that the seed 6 gives")


def test_a_loader_takes_its_options_into_use(poptorch: Any) -> None:
    """The options of a loader can be read from it and not changed any more."""
    options = _options(poptorch, d=2)
    loader = poptorch.DataLoader(options, numbers(4))

    check.holds(loader.options is options, f"the loader's options are {loader.options}, not the object that it took.")
    with check.raises(AttributeError, what="changing the options of a loader"):
        options.deviceIterations(3)


def test_a_loader_is_a_torch_loader(poptorch: Any, torch: Any) -> None:
    """The loader is a torch DataLoader, and takes its other arguments."""
    loader = poptorch.DataLoader(_options(poptorch, d=3), numbers(6), collate_fn=len)

    check.instance(actual=loader, expected=torch.utils.data.DataLoader, what="the loader")
    check.equal(actual=list(loader), expected=[3, 3], what="what collate_fn=len makes of the batches")


def test_workers_of_torch_keep_the_order(poptorch: Any) -> None:
    """Two workers give the batches in the order of the dataset."""
    loader = poptorch.DataLoader(_options(poptorch, d=2), numbers(24), batch_size=3, num_workers=2)

    assert_batches(loader, *ranges(6, stop=24))


def test_without_a_batch_size_the_dataset_makes_the_batches(poptorch: Any, torch: Any) -> None:
    """With batch_size=None the dataset's elements come as they are."""
    loader = poptorch.DataLoader(_options(poptorch, d=3), [torch.arange(6), torch.arange(6, 12)], batch_size=None)

    assert_batches(loader, *ranges(6, stop=12))


@pytest.mark.parametrize("mode", ["Sync", "Async"])
def test_without_a_batch_size_a_stream_makes_the_batches(poptorch: Any, torch: Any, mode: str) -> None:
    """With batch_size=None the elements of an iterable dataset come as they are, from another process too."""
    dataset = torch.utils.data.ChainDataset([stream(6), stream(4)])
    options = {"sharing_strategy": poptorch.SharingStrategy.Fork}
    kind = getattr(poptorch.DataLoaderMode, mode)
    loader = poptorch.DataLoader(_options(poptorch, d=3), dataset, batch_size=None, mode=kind, async_options=options)
    elements = [int(element) for element in loader]
    loader.terminate()

    check.equal(actual=elements, expected=[*range(6), *range(4)], what="the list of elements")


def test_a_batch_sampler_sets_the_batches(poptorch: Any) -> None:
    """A batch sampler says which samples form a batch, for a model that takes one micro-batch a call."""
    loader = poptorch.DataLoader(_options(poptorch), numbers(6), batch_sampler=[[5, 0], [3, 2]])

    assert_batches(loader, (5, 0), (3, 2))


@pytest.mark.parametrize("mode", ["Sync", "Async", "AsyncRebatched"])
def test_batches_of_a_sampler_are_combined(poptorch: Any, torch: Any, mode: str) -> None:
    """Two batches of three, from the end of the dataset to its beginning, make the batch of a call, in every mode."""
    sampler = torch.utils.data.BatchSampler(range(13, -1, -1), 3, drop_last=True)
    chosen = getattr(poptorch.DataLoaderMode, mode)
    loader = poptorch.DataLoader(_options(poptorch, d=2), numbers(14), batch_sampler=sampler, mode=chosen)
    try:
        check.equal(actual=loader.combinedBatchSize, expected=6, what="combinedBatchSize")
        assert_batches(loader, range(13, 7, -1), range(7, 1, -1))
    finally:
        loader.terminate()


def test_batches_of_a_sampler_are_collated_one_by_one(poptorch: Any, torch: Any) -> None:
    """A collate function sees each batch of the sampler; what it makes of them is joined for a call of the model."""
    sampler = torch.utils.data.BatchSampler(range(12), 3, drop_last=True)

    def collate(batch: Any) -> Any:
        samples = torch.stack([sample[0] for sample in batch])
        return {"first": samples[:1], "sums": (samples.sum(), ["three"])}

    loader = poptorch.DataLoader(_options(poptorch, d=2), numbers(12), batch_sampler=sampler, collate_fn=collate)

    actual = [(part["first"].tolist(), part["sums"][0].tolist(), part["sums"][1]) for part in loader]
    expected = [([0, 3], [3, 12], ["three", "three"]), ([6, 9], [21, 30], ["three", "three"])]
    check.equal(actual=actual, expected=expected, what="the batches of two calls")


def test_a_loader_that_loads_ahead_is_not_loaded_ahead_again(poptorch: Any) -> None:
    """An accessor of a loader that has one already is refused."""
    loader = poptorch.DataLoader(_options(poptorch), numbers(4), batch_size=2, mode=poptorch.DataLoaderMode.Async)
    try:
        with check.raises(poptorch.Error, match="already", what="an accessor of an asynchronous loader"):
            poptorch.AsynchronousDataAccessor(loader)
    finally:
        loader.terminate()


def test_processes_do_not_share_what_has_no_size(poptorch: Any) -> None:
    """Without a batch size the data of several processes cannot be dealt out."""
    options = _options(poptorch)
    options.Distributed.configureProcessId(0, 2)

    with check.raises(AssertionError, match="batch_size=None", what="batch_size=None in two processes"):
        poptorch.DataLoader(options, numbers(4), batch_size=None)


def test_a_rest_is_announced(poptorch: Any, said: Callable[[], str]) -> None:
    """A loader that keeps a smaller last batch says so when it is made."""
    poptorch.DataLoader(_options(poptorch, d=2), numbers(14), batch_size=3, drop_last=False)

    check.contains(actual=said(), expected="not divisible", what="what is said of 14 samples in batches of 6")


def test_a_stream_that_workers_repeat_is_announced(poptorch: Any, said: Callable[[], str]) -> None:
    """Workers of a stream that nobody tells apart each give all of it."""
    poptorch.DataLoader(_options(poptorch), stream(6), num_workers=3)

    check.contains(actual=said(), expected="worker_init_fn", what="what is said of a stream with three workers")


def test_a_rest_of_a_sampler_is_kept_on_request(poptorch: Any, torch: Any) -> None:
    """With drop_last=False the last batch of a call has what the sampler's last batches have."""
    sampler = torch.utils.data.BatchSampler(range(14), 3, drop_last=False)
    mode = poptorch.DataLoaderMode.AsyncRebatched
    loader = poptorch.DataLoader(
        _options(poptorch, d=2), numbers(14), batch_sampler=sampler, mode=mode, drop_last=False
    )
    try:
        assert_batches(loader, *ranges(6, stop=14))
    finally:
        loader.terminate()


def test_a_stream_is_batched(poptorch: Any) -> None:
    """An iterable dataset gives combined batches in its own order, without the remainder."""
    loader = poptorch.DataLoader(_options(poptorch, d=2), stream(14), batch_size=3)

    batches = (tuple(range(6)), tuple(range(6, 12)))
    check.equal(actual=values(loader), expected=batches, what="the list of combined batches")


def test_a_stream_cannot_be_shuffled(poptorch: Any) -> None:
    """shuffle=True with an iterable dataset is refused."""
    with check.raises(ValueError, match="shuffle", what="shuffling a stream"):
        poptorch.DataLoader(_options(poptorch), stream(4), shuffle=True)


@pytest.mark.parametrize("shuffle", [False, True], ids=["in-order", "shuffled"])
def test_each_process_has_its_own_samples(poptorch: Any, shuffle: bool) -> None:
    """Three processes load equally many samples, and none in common."""
    shares = []
    for rank in range(3):
        options = _process(poptorch, rank, 3).randomSeed(11)
        loader = poptorch.DataLoader(options, numbers(40), batch_size=2, shuffle=shuffle)
        shares.append(list(itertools.chain(*values(loader))))

    check.equal(actual=[len(share) for share in shares], expected=[12] * 3, what="the number of samples by process")
    check.equal(actual=len(set(itertools.chain(*shares))), expected=36, what="the number of distinct samples in all")


def test_each_pass_has_an_order_of_its_own(poptorch: Any) -> None:
    """Three processes that shuffle load other samples in each of three passes, and in no pass two of them the same."""
    loaders = [
        poptorch.DataLoader(_process(poptorch, rank, 3).randomSeed(11), numbers(36), batch_size=2, shuffle=True)
        for rank in range(3)
    ]
    passes = [[tuple(itertools.chain(*values(loader))) for loader in loaders] for _ in range(3)]

    distinct = [len(set(itertools.chain(*shares))) for shares in passes]
    check.equal(actual=distinct, expected=[36] * 3, what="the number of distinct samples of all processes by pass")
    check.equal(actual=len({shares[2] for shares in passes}), expected=3, what="the number of orders in process 2")
    sorted_shares = [share for shares in passes for share in shares if list(share) == sorted(share)]
    check.equal(actual=sorted_shares, expected=[], what="the list of shares in the order of the dataset")


def test_a_stream_is_not_shared_among_processes(poptorch: Any) -> None:
    """Several processes cannot deal an iterable dataset out among themselves: its loader is refused."""
    with check.raises(AssertionError, what="a stream in the second of three processes"):
        poptorch.DataLoader(_process(poptorch, 1, 3), stream(24), batch_size=2)


@pytest.mark.parametrize("kind", [numbers, stream], ids=["map", "stream"])
def test_processes_partition_by_hand_on_request(poptorch: Any, kind: Any) -> None:
    """With auto_distributed_partitioning=False a process loads the whole dataset that it was given."""
    options = _process(poptorch, 1, 3)
    loader = poptorch.DataLoader(options, kind(8), batch_size=2, auto_distributed_partitioning=False)

    batches = tuple(map(tuple, ranges(4, stop=8)))
    check.equal(actual=values(loader), expected=batches, what="the list of combined batches")


def test_processes_shuffle_by_a_common_seed_only(poptorch: Any) -> None:
    """Shuffling in several processes without a random seed is refused: their samples would overlap."""
    with check.raises(AssertionError, what="shuffling in two processes without a seed"):
        poptorch.DataLoader(_process(poptorch, 0, 2), numbers(8), shuffle=True)


def test_workers_tensors_fit_into_the_combined_batch(poptorch: Any) -> None:
    """Tensors of workers that are larger than the combined batch cannot be joined to one."""
    mode = poptorch.DataLoaderMode.AsyncRebatched

    with check.raises(AssertionError, what="rebatched_worker_size=7 for a combined batch of 6"):
        poptorch.DataLoader(_options(poptorch, d=6), numbers(12), mode=mode, rebatched_worker_size=7)


def test_the_size_of_workers_tensors_is_for_rebatching_alone(poptorch: Any) -> None:
    """Where nothing is joined, rebatched_worker_size has no effect."""
    loader = poptorch.DataLoader(_options(poptorch, d=6), numbers(12), rebatched_worker_size=7)

    assert_batches(loader, *ranges(6, stop=12))
