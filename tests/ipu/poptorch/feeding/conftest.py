"""What the cases of feeding share."""

from __future__ import annotations

from typing import Any, Iterator, List

import pytest


class Loading:
    """Opens accessors and loaders, with workers that are forked, which starts at once, and ends them after the case."""

    def __init__(self, poptorch: Any) -> None:
        self.poptorch, self.forked = poptorch, {"sharing_strategy": poptorch.SharingStrategy.Fork}
        self.opened: List[Any] = []

    def accessor(self, dataset: Any, **arguments: Any) -> Any:
        self.opened.append(self.poptorch.AsynchronousDataAccessor(dataset, **{**self.forked, **arguments}))
        return self.opened[-1]

    def loader(
        self, dataset: Any, d: int = 1, g: int = 1, r: int = 1, group: int = 1, rank: Any = None, **arguments: Any
    ) -> Any:
        """A loader for options with these counts, of the process of a ``rank`` among three, with a random seed."""
        options = self.poptorch.Options().deviceIterations(d).replicationFactor(r).inputReplicaGrouping(group)
        options.Training.gradientAccumulation(g)
        mode, seed = arguments.pop("mode", "Sync"), arguments.pop("seed", None)
        if rank is not None:
            options.Distributed.configureProcessId(rank, 3)
        if seed is not None:
            options.randomSeed(seed)
        if mode != "Sync":
            arguments.setdefault("async_options", self.forked)
        kind = getattr(self.poptorch.DataLoaderMode, mode)
        self.opened.append(self.poptorch.DataLoader(options, dataset, mode=kind, **arguments))
        return self.opened[-1]


@pytest.fixture
def loading(poptorch: Any) -> Iterator[Loading]:
    """What opens accessors and loaders and ends them."""
    loading = Loading(poptorch)
    yield loading
    for opened in loading.opened:
        opened.terminate()
