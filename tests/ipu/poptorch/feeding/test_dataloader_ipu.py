"""poptorch.DataLoader: combined batches, remainders, streams, processes, rebatching and refusals."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from .datasets import numbers, stream, values


def _options(poptorch: Any, d: int = 1, g: int = 1, r: int = 1, group: int = 1) -> Any:
    options = poptorch.Options().deviceIterations(d).replicationFactor(r).inputReplicaGrouping(group)
    options.Training.gradientAccumulation(g)
    return options


def _process(poptorch: Any, rank: int, processes: int) -> Any:
    options = _options(poptorch, d=2)
    options.Distributed.configureProcessId(rank, processes)
    return options


FACTORS = [
    pytest.param(d, g, r, group, id=f"D{d}-G{g}-R{r}-group{group}")
    for d, g, r, group in [
        (1, 1, 1, 1),
        (5, 1, 1, 1),
        (1, 3, 1, 1),
        (1, 1, 2, 1),
        (5, 3, 2, 1),
        (5, 3, 4, 2),
        (2, 3, 4, 4),
    ]
]


@pytest.mark.parametrize(("d", "g", "r", "group"), FACTORS)
def test_a_combined_batch_is_what_one_call_consumes(poptorch: Any, d: int, g: int, r: int, group: int) -> None:
    """A combined batch is the micro-batch times device iterations, accumulation and groups of replicas."""
    expected = 7 * d * g * r // group

    loader = poptorch.DataLoader(_options(poptorch, d, g, r, group), numbers(2 * expected), batch_size=7)

    assert loader.combinedBatchSize == expected
    assert [len(x) for x, _ in loader] == [expected, expected]


@pytest.mark.parametrize(("d", "g", "r", "group"), FACTORS[4:6])
def test_one_call_of_a_model_takes_a_combined_batch(poptorch: Any, d: int, g: int, r: int, group: int) -> None:
    """The samples of a combined batch follow one another as in the dataset."""
    size = 2 * d * g * r // group

    loader = poptorch.DataLoader(_options(poptorch, d, g, r, group), numbers(2 * size), batch_size=2)

    assert values(loader) == (tuple(range(size)), tuple(range(size, 2 * size)))


def test_samples_stay_together(poptorch: Any) -> None:
    """Every tensor of a sample lands at the same row."""
    for x, y in poptorch.DataLoader(_options(poptorch, 2), numbers(30), batch_size=3, shuffle=True):
        assert (x == -y).all()


@pytest.mark.parametrize(("count", "full"), [(11, 1), (12, 2), (13, 2), (17, 2), (18, 3)])
def test_a_remainder_is_dropped_by_default(poptorch: Any, count: int, full: int) -> None:
    """Samples that do not fill a combined batch are left out, and the length counts full batches."""
    loader = poptorch.DataLoader(_options(poptorch, d=3), numbers(count), batch_size=2)

    assert [len(x) for x, _ in loader] == [6] * full
    assert len(loader) == full


@pytest.mark.parametrize(("count", "sizes"), [(12, [6, 6]), (13, [6, 6, 1]), (5, [5])])
def test_a_remainder_is_kept_on_request(poptorch: Any, count: int, sizes: Any) -> None:
    """With drop_last=False the last batch holds what is left."""
    loader = poptorch.DataLoader(_options(poptorch, d=3), numbers(count), batch_size=2, drop_last=False)

    assert [len(x) for x, _ in loader] == sizes
    assert len(loader) == len(sizes)


def test_shuffling_permutes_the_samples(poptorch: Any) -> None:
    """A shuffled pass has every sample once, in another order than the dataset and than the next pass."""
    loader = poptorch.DataLoader(_options(poptorch, d=2), numbers(60), batch_size=3, shuffle=True)

    first, second = (list(itertools.chain(*values(loader))) for _ in range(2))

    assert sorted(first) == sorted(second) == list(range(60))
    assert len({tuple(first), tuple(second), tuple(range(60))}) == 3


def test_the_random_seed_sets_the_shuffled_order(poptorch: Any) -> None:
    """Two programs with the same Options.randomSeed shuffle alike."""

    def order() -> Any:
        return values(poptorch.DataLoader(_options(poptorch).randomSeed(5), numbers(40), batch_size=4, shuffle=True))

    assert order() == order()


def test_a_loader_takes_its_options_into_use(poptorch: Any) -> None:
    """The options of a loader can be read from it and not changed any more."""
    options = _options(poptorch, d=2)
    loader = poptorch.DataLoader(options, numbers(4))

    assert loader.options is options
    with pytest.raises(AttributeError):
        options.deviceIterations(3)


def test_a_loader_is_a_torch_loader(poptorch: Any, torch: Any) -> None:
    """The loader passes where a torch DataLoader is asked for, and takes its other arguments."""
    loader = poptorch.DataLoader(_options(poptorch, d=3), numbers(6), collate_fn=len)

    assert isinstance(loader, torch.utils.data.DataLoader)
    assert list(loader) == [3, 3]


def test_workers_of_torch_keep_the_order(poptorch: Any) -> None:
    """Two workers give the batches in the order of the dataset."""
    loader = poptorch.DataLoader(_options(poptorch, d=2), numbers(24), batch_size=3, num_workers=2)

    assert values(loader) == tuple(tuple(range(i, i + 6)) for i in range(0, 24, 6))


def test_without_a_batch_size_the_dataset_makes_the_batches(poptorch: Any, torch: Any) -> None:
    """With batch_size=None the dataset's elements come as they are."""
    loader = poptorch.DataLoader(_options(poptorch, d=3), [torch.arange(6), torch.arange(6, 12)], batch_size=None)

    assert values(loader) == (tuple(range(6)), tuple(range(6, 12)))


def test_a_batch_sampler_sets_the_batches(poptorch: Any) -> None:
    """A batch sampler says which samples form a batch, for a model that takes one micro-batch a call."""
    loader = poptorch.DataLoader(_options(poptorch), numbers(6), batch_sampler=[[5, 0], [3, 2]])

    assert values(loader) == ((5, 0), (3, 2))


def test_a_stream_is_batched(poptorch: Any) -> None:
    """An iterable dataset gives combined batches in its own order, without the remainder."""
    loader = poptorch.DataLoader(_options(poptorch, d=2), stream(14), batch_size=3)

    assert values(loader) == (tuple(range(6)), tuple(range(6, 12)))


def test_a_stream_cannot_be_shuffled(poptorch: Any) -> None:
    """shuffle=True with an iterable dataset is refused."""
    with pytest.raises(ValueError, match="shuffle"):
        poptorch.DataLoader(_options(poptorch), stream(4), shuffle=True)


@pytest.mark.parametrize("shuffle", [False, True], ids=["in-order", "shuffled"])
def test_each_process_has_its_own_samples(poptorch: Any, shuffle: bool) -> None:
    """Three processes load equally many samples, and none in common."""
    shares = []
    for rank in range(3):
        options = _process(poptorch, rank, 3).randomSeed(11)
        loader = poptorch.DataLoader(options, numbers(40), batch_size=2, shuffle=shuffle)
        shares.append(list(itertools.chain(*values(loader))))

    assert [len(share) for share in shares] == [12, 12, 12]
    assert len(set(itertools.chain(*shares))) == 36


def test_each_process_reads_its_part_of_a_stream(poptorch: Any) -> None:
    """Two processes that read the same stream keep different samples, and together all of it."""
    shares = [values(poptorch.DataLoader(_process(poptorch, rank, 2), stream(16), batch_size=2)) for rank in range(2)]

    assert sorted(itertools.chain(*shares[0], *shares[1])) == list(range(16))
    assert len(shares[0]) == len(shares[1]) == 2


def test_processes_partition_by_hand_on_request(poptorch: Any) -> None:
    """With auto_distributed_partitioning=False a process loads the dataset that it was given."""
    loader = poptorch.DataLoader(
        _process(poptorch, 1, 2), numbers(8), batch_size=2, auto_distributed_partitioning=False
    )

    assert values(loader) == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_processes_shuffle_by_a_common_seed_only(poptorch: Any) -> None:
    """Shuffling in several processes without a random seed is refused: their samples would overlap."""
    with pytest.raises(AssertionError):
        poptorch.DataLoader(_process(poptorch, 0, 2), numbers(8), shuffle=True)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"rebatched_worker_size": 2}, id="worker-size-without-rebatching"),
        pytest.param({"mode": "AsyncRebatched", "rebatched_worker_size": 7}, id="worker-size-above-the-combined"),
        pytest.param({"mode": "AsyncRebatched", "batch_size": None}, id="rebatching-without-a-size"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(poptorch: Any, arguments: Any) -> None:
    """Rebatching needs its mode, a batch size, and workers' tensors no larger than the combined batch."""
    arguments = {**arguments, "mode": getattr(poptorch.DataLoaderMode, arguments.get("mode", "Sync"))}

    with pytest.raises(AssertionError):
        poptorch.DataLoader(_options(poptorch, d=6), numbers(12), **arguments)
