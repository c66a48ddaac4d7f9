"""The loader of combined batches: what one call of a model consumes, from one or several processes."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from ipu_conformance.emulator.poptorch.data.asynchronous import AsynchronousDataAccessor, PartialAccessor
from ipu_conformance.emulator.poptorch.data.collating import BatchesOf, CollateEach
from ipu_conformance.emulator.poptorch.options import Options
from ipu_conformance.emulator.poptorch.options.diagnostics import logger
from ipu_conformance.emulator.poptorch.options.enums import DataLoaderMode
from ipu_conformance.emulator.poptorch.refusals import models as refusals


def micro_batches_per_call(options: Options) -> int:
    """How many micro-batches one call consumes: device iterations × accumulation × groups of replicas."""
    groups, rest = divmod(options.replication_factor, options.input_group_size)
    if rest:
        raise AssertionError(
            f"{options.replication_factor} replicas cannot be grouped by {options.input_group_size}: the size of a "
            "group must divide the number of replicas"
        )
    return int(options.device_iterations * options.Training.gradient_accumulation * groups)


class _CombinedBatchSampler(torch.utils.data.Sampler):
    """Takes ``count`` batches of another sampler at a time."""

    def __init__(self, batches: Any, count: int, drop_last: bool) -> None:
        self.batches, self.count, self.drop_last = batches, count, drop_last

    def __iter__(self) -> Iterator[List[List[int]]]:
        taken: List[List[int]] = []
        for batch in self.batches:
            taken.append(list(batch))
            if len(taken) == self.count:
                yield taken
                taken = []
        if taken and not self.drop_last:
            yield taken

    def samples(self) -> int:
        """How many samples a pass has, if every batch but the last is full."""
        full = len(self.batches) * int(self.batches.batch_size)
        dropping = getattr(self.batches, "drop_last", True)
        return full if dropping else min(full, len(self.batches.sampler))

    def __len__(self) -> int:
        return len(self.batches) // self.count if self.drop_last else -(-len(self.batches) // self.count)


class _PartitionSampler(torch.utils.data.Sampler):
    """The samples of one process: an equal, contiguous part of an order that all processes share."""

    def __init__(self, total: int, step: int, options: Options, shuffle: bool) -> None:
        processes = options.Distributed.numProcesses
        self.total = total
        self.length = total // (step * processes) * step
        self.begin = options.Distributed.processId * self.length
        self.seed = options.random_seed if shuffle else None
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        order: Sequence[int] = range(self.total)
        if self.seed is not None:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(self.total, generator=generator).tolist()
            self.epoch += 1
        return iter(order[self.begin : self.begin + self.length])

    def __len__(self) -> int:
        return self.length


class DataLoader(torch.utils.data.DataLoader):
    """A torch loader whose batches feed one call of a model.

    ``batch_size`` is the micro-batch; what it gives is that times the device iterations, the gradient accumulation
    and the groups of replicas of ``options``. The options are frozen from then on.
    """

    def __init__(
        self,
        options: Options,
        dataset: Any,
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: Optional[bool] = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: Optional[Dict[str, Any]] = None,
        rebatched_worker_size: Optional[int] = None,
        batch_sampler: Any = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(options, Options):
            raise AssertionError(f"{type(options).__name__} was given as options: use poptorch.Options")
        if not isinstance(mode, DataLoaderMode):
            raise AssertionError(f"{mode!r} was given as mode: use one of poptorch.DataLoaderMode")
        options._freeze()
        self._accessor: Optional[AsynchronousDataAccessor] = None
        self._options = options
        self._mode = mode
        factor = micro_batches_per_call(options)
        self._combined_batch_size = _combined(batch_size, batch_sampler, factor)
        iterable = isinstance(dataset, torch.utils.data.IterableDataset)
        shuffle = bool(shuffle)
        rebatched = mode == DataLoaderMode.AsyncRebatched and self._combined_batch_size is not None
        _check_mode(mode, self._combined_batch_size, rebatched_worker_size, drop_last)

        if batch_sampler is not None:
            if shuffle:
                raise ValueError("shuffle=True was given with a batch_sampler: the sampler sets the order")
            joined = _CombinedBatchSampler(batch_sampler, factor, drop_last and not rebatched)
            collate = kwargs.pop("collate_fn", None) or torch.utils.data.default_collate
            sampling: Dict[str, Any] = {"batch_sampler": joined, "collate_fn": CollateEach(collate)}
            dataset = BatchesOf(dataset)
        else:
            sampling = {"batch_size": self._combined_batch_size, "shuffle": shuffle}
            if self._combined_batch_size is not None:
                sampling["drop_last"] = drop_last
        self._warn(dataset, iterable, num_workers, drop_last, kwargs)
        if auto_distributed_partitioning and options.Distributed.numProcesses > 1 and batch_sampler is None:
            refusals.DISTRIBUTED_STREAM(iterable=iterable)
            refusals.DISTRIBUTED_BATCHES(batch_size=batch_size)
            self._partition(dataset, sampling, shuffle)
        self._drop_last = bool(sampling.get("drop_last", drop_last))
        if mode == DataLoaderMode.AsyncRebatched and batch_sampler is None:
            # What a worker gives may be incomplete: the pieces are put together, and a rest dropped, afterwards.
            sampling.update(batch_size=rebatched_worker_size or self._combined_batch_size, drop_last=False)

        arguments = {
            **sampling,
            "num_workers": num_workers,
            "persistent_workers": num_workers > 0 if persistent_workers is None else persistent_workers,
            **kwargs,
        }
        super().__init__(dataset, **arguments)
        if mode != DataLoaderMode.Sync:
            self._accessor = self._access(torch.utils.data.DataLoader(dataset, **arguments), async_options or {})

    def _warn(self, dataset: Any, iterable: bool, num_workers: int, drop_last: bool, settings: Dict[str, Any]) -> None:
        """Log what gives other batches than a program may expect."""
        size = self._combined_batch_size
        if iterable:
            if num_workers > 1 and "worker_init_fn" not in settings:
                logger.warning(
                    "IterableDataset used with num_workers=%d but no worker_init_fn specified: every element comes "
                    "%d times", num_workers, num_workers,
                )  # fmt: skip
        elif not drop_last and size is not None and len(dataset) % size:
            logger.warning(
                "The number of elements in the dataset (%d) is not divisible by the number of elements processed per "
                "step (%d) and drop_last=False: the last tensor has a batch size of %d",
                len(dataset), size, len(dataset) % size,
            )  # fmt: skip

    def _partition(self, dataset: Any, sampling: Dict[str, Any], shuffle: bool) -> None:
        """Give this process its part of the dataset."""
        step = self._combined_batch_size or 1
        refusals.UNSEEDED_SHUFFLE(shuffle=shuffle, seed=self._options.random_seed)
        processes = self._options.Distributed.numProcesses
        if not sampling.get("drop_last", True) and len(dataset) % (step * processes):
            logger.warning(
                "%d samples cannot be shared by %d processes in batches of %d: drop_last=False is ignored",
                len(dataset), processes, step,
            )  # fmt: skip
            sampling["drop_last"] = True
        sampling["sampler"] = _PartitionSampler(len(dataset), step, self._options, shuffle)
        sampling["shuffle"] = False

    def _access(self, loader: Any, async_options: Dict[str, Any]) -> AsynchronousDataAccessor:
        refusals.REBATCHED_TWICE(async_options=async_options)
        if self._mode != DataLoaderMode.AsyncRebatched:
            return AsynchronousDataAccessor(loader, **async_options)
        kind = AsynchronousDataAccessor if self._drop_last else PartialAccessor
        return kind(loader, rebatched_size=self._combined_batch_size, **async_options)

    @property
    def combinedBatchSize(self) -> Optional[int]:
        """How many samples one call of the model consumes; None where the dataset makes its own batches."""
        return self._combined_batch_size

    @property
    def options(self) -> Options:
        """The options that the loader took into use."""
        return self._options

    def terminate(self) -> None:
        """End the loading process, if there is one; the loader gives nothing from then on."""
        if self._accessor is not None:
            self._accessor.terminate()

    def __len__(self) -> int:
        size = self._combined_batch_size
        if self._mode != DataLoaderMode.AsyncRebatched or size is None:
            return super().__len__()
        if isinstance(self.batch_sampler, _CombinedBatchSampler):
            samples = self.batch_sampler.samples()
        else:
            samples = len(self.dataset) if self.sampler is None or self._is_iterable() else len(self.sampler)
        return samples // size if self._drop_last else math.ceil(samples / size)

    def _is_iterable(self) -> bool:
        return isinstance(self.dataset, torch.utils.data.IterableDataset)

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__() if self._accessor is None else iter(self._accessor)


def _combined(batch_size: Optional[int], batch_sampler: Any, factor: int) -> Optional[int]:
    """The size of a combined batch; None when it is the dataset that makes batches, or a sampler of any size."""
    if batch_sampler is not None:
        if batch_size not in (None, 1):
            raise ValueError(f"batch_size={batch_size} was given with a batch_sampler: the sampler sets the size")
        size = getattr(batch_sampler, "batch_size", None)
        return None if size is None else int(size) * factor
    if batch_size is None:
        return None
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size={batch_size!r} was given: use 1 or more")
    return batch_size * factor


def _check_mode(mode: DataLoaderMode, combined: Optional[int], worker_size: Optional[int], drop_last: bool) -> None:
    """Refuse settings that do not go together; those of another mode than the loader's have no effect."""
    refused: Tuple[Tuple[bool, str], ...] = (
        (
            mode == DataLoaderMode.AsyncRebatched
            and worker_size is not None
            and combined is not None
            and not 0 < worker_size <= combined,
            f"rebatched_worker_size={worker_size} was given: use 1 to the combined batch size {combined}",
        ),
        (
            mode == DataLoaderMode.Async and not drop_last and combined not in (None, 1),
            "drop_last=False was given in DataLoaderMode.Async: use AsyncRebatched",
        ),
    )
    for wrong, sentence in refused:
        if wrong:
            raise AssertionError(sentence)
