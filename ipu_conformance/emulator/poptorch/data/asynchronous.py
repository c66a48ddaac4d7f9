"""Loading in another process, ahead of the model, into a buffer of a few batches."""

from __future__ import annotations

import os
import pickle
import queue
import tempfile
from multiprocessing import shared_memory
from multiprocessing.util import Finalize
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import torch
import torch.multiprocessing
from torch._utils import ExceptionWrapper
from torch.utils import _pytree

from ipu_conformance.emulator.poptorch.options.enums import SharingStrategy

_ELEMENT, _END, _FAILURE = "element", "end", "failure"
_POLL_SECONDS = 0.05
"""Seconds between checks that the other process is alive; an element wakes a waiting process at once."""


class _PickledDataset:
    """A dataset on its way to the worker, by value: nothing in it is shared with the process that it comes from."""

    def __init__(self, dataset: Any) -> None:
        self.content = pickle.dumps(dataset)

    def take(self) -> Any:
        """The dataset, once."""
        return pickle.loads(self.content)


class _DatasetFile(_PickledDataset):
    """A dataset that travels through a file."""

    def __init__(self, dataset: Any) -> None:
        handle, self.path = tempfile.mkstemp(prefix="ipu_conformance_dataset_")
        with os.fdopen(handle, "wb") as file:
            pickle.dump(dataset, file)

    def take(self) -> Any:
        try:
            with open(self.path, "rb") as file:
                return pickle.load(file)
        finally:
            os.remove(self.path)


class _SharedMemoryDataset(_PickledDataset):
    """A dataset that travels through a block of shared memory."""

    def __init__(self, dataset: Any) -> None:
        content = pickle.dumps(dataset)
        block = shared_memory.SharedMemory(create=True, size=len(content))
        buffer: Any = block.buf
        buffer[: len(content)] = content
        self.name = block.name
        block.close()

    def take(self) -> Any:
        block = shared_memory.SharedMemory(self.name)
        buffer: Any = block.buf
        try:
            return pickle.loads(bytes(buffer))
        finally:
            block.close()
            block.unlink()


_TRANSPORTS: Mapping[SharingStrategy, Callable[[Any], Any]] = {
    SharingStrategy.SharedMemory: _SharedMemoryDataset,
    SharingStrategy.FileSystem: _DatasetFile,
    SharingStrategy.Fork: lambda dataset: dataset,
    SharingStrategy.ForkServer: _PickledDataset,
}
"""How a dataset reaches the worker; one that is forked has it already."""


def rebatch(elements: Any, size: int, drop_last: bool) -> Iterator[Any]:
    """The elements' rows in order, ``size`` at a time, with a rest of fewer unless ``drop_last``."""
    held: List[List[torch.Tensor]] = []
    rows = 0
    structure = None
    for element in elements:
        tensors, structure = _pytree.tree_flatten(element)
        held.append(tensors)
        rows += len(tensors[0])
        while rows >= size:
            joined = [torch.cat(column) for column in zip(*held)]
            yield _pytree.tree_unflatten([column[:size].clone() for column in joined], structure)
            rows -= size
            held = [[column[size:] for column in joined]] if rows else []
    if rows and not drop_last and structure is not None:
        yield _pytree.tree_unflatten([torch.cat(column) for column in zip(*held)], structure)


class _Channel:
    """What the two processes share: the buffer, the number of the pass that is wanted, and the signal to stop."""

    def __init__(self, context: Any, buffer_size: int, first_pass: int) -> None:
        self.buffer = context.Queue(maxsize=buffer_size)
        self.asked = context.Value("q", first_pass)
        self.stop = context.Event()

    def offer(self, number: int, kind: str, item: Any) -> bool:
        """Put an item into the buffer; False when the reader no longer wants it."""
        while not self.stop.is_set() and self.asked.value <= number and _parent_lives():
            try:
                self.buffer.put((number, kind, item), timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return self.asked.value > number and not self.stop.is_set()


def _parent_lives() -> bool:
    parent = torch.multiprocessing.parent_process()
    return parent is None or parent.is_alive()


def _work(dataset: Any, shared: _Channel, settings: Dict[str, Any]) -> None:
    """The worker: one pass over the dataset after another, as long as they are wanted."""
    torch.set_num_threads(1)
    torch.manual_seed(settings["seed"])
    if isinstance(dataset, _PickledDataset):
        dataset = dataset.take()
    number = 0
    while _parent_lives():
        number = max(number + 1, shared.asked.value)
        while shared.asked.value < number and not (settings["load_indefinitely"] and number > 1):
            if shared.stop.wait(_POLL_SECONDS) or not _parent_lives():
                break
        if shared.stop.is_set() or not _load(dataset, shared, number, settings):
            break
    shared.buffer.cancel_join_thread()


def _load(dataset: Any, shared: _Channel, number: int, settings: Dict[str, Any]) -> bool:
    """One pass; False when the worker is to stop."""
    size = settings["rebatched_size"]
    try:
        for element in dataset if size is None else rebatch(dataset, size, settings["drop_last"]):
            if not shared.offer(number, _ELEMENT, element):
                return False
            if shared.asked.value > number:
                return True
    except Exception:
        # The failure travels to whoever reads: it must not look like the end of the data.
        return shared.offer(number, _FAILURE, ExceptionWrapper(where="in the process that loads data"))
    return shared.offer(number, _END, None)


class AsynchronousDataAccessor:
    """Iterates over a dataset that another process loads ahead, ``buffer_size`` elements at most.

    With ``load_indefinitely`` the worker goes on to the next pass by itself; with ``early_preload`` it begins before
    the first iterator is made. Each iterator is one pass from the start. ``rebatched_size`` joins small elements
    into tensors of that many rows. ``miss_sleep_time_in_ms`` has no effect: a reader is woken by the next element.
    A failure in the worker is an AssertionError here, and so is its death.
    """

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: Optional[int] = None,
        drop_last: bool = True,
    ) -> None:
        if isinstance(buffer_size, bool) or not isinstance(buffer_size, int) or buffer_size < 1:
            raise AssertionError(f"buffer_size={buffer_size!r} was given: use 1 or more")
        if not isinstance(sharing_strategy, SharingStrategy):
            raise AssertionError(f"{sharing_strategy!r} was given: use one of poptorch.SharingStrategy")
        if not miss_sleep_time_in_ms > 0:
            raise AssertionError(f"miss_sleep_time_in_ms={miss_sleep_time_in_ms} was given: use more than 0")
        self._dataset = dataset
        self._rebatched_size, self._drop_last = rebatched_size, drop_last
        self._pass = 0
        self._consumed = 0
        self._ended = True
        context = torch.multiprocessing.get_context(
            "fork" if sharing_strategy == SharingStrategy.Fork else "forkserver"
        )
        if sharing_strategy != SharingStrategy.Fork:
            # The server that forks workers has torch already, so the second worker starts fast.
            context.set_forkserver_preload(["__main__", "torch"])
        self._shared = _Channel(context, buffer_size, first_pass=1 if early_preload else 0)
        settings = {
            "load_indefinitely": load_indefinitely,
            "rebatched_size": rebatched_size,
            "drop_last": drop_last,
            # Drawn here, so that a seeded program shuffles the same way each time.
            "seed": int(torch.empty((), dtype=torch.int64).random_().item()),
        }
        sent = _TRANSPORTS[sharing_strategy](dataset)
        # Not a daemon: the dataset may be a loader with workers of its own.
        self._process = context.Process(target=_work, args=(sent, self._shared, settings), daemon=False)
        self._process.start()
        self._finalizer = Finalize(self, _end, args=(self._process, self._shared), exitpriority=10)

    def terminate(self) -> None:
        """End the worker; asking for another element is an AssertionError."""
        self._finalizer()

    def __len__(self) -> int:
        if self._rebatched_size is None:
            return len(self._dataset)
        full, rest = divmod(len(self._dataset), self._rebatched_size)
        return full if self._drop_last or not rest else full + 1

    def __iter__(self) -> Iterator[Any]:
        if self._ended or self._consumed:
            self._pass += 1
            self._consumed, self._ended = 0, False
        with self._shared.asked.get_lock():
            self._shared.asked.value = max(self._shared.asked.value, self._pass)
        return self._elements(self._pass)

    def _elements(self, number: int) -> Iterator[Any]:
        while number == self._pass and not self._ended:
            kind, item = self._receive(number)
            if kind == _FAILURE:
                self._ended = True
                raise AssertionError(f"An error occurred in the data fetcher, {item.where}: {item.exc_msg}")
            if kind == _END:
                self._ended = True
                return
            self._consumed += 1
            yield item

    def _receive(self, number: int) -> Tuple[str, Any]:
        """The next item of a pass; items of an earlier, abandoned pass are dropped."""
        while True:
            if not self._finalizer.still_active():
                raise AssertionError("The loader was terminated: make a new one to go on")
            living = self._process.is_alive()
            try:
                received, kind, item = self._shared.buffer.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                # It may have died after its last item: only one that was dead before an empty look gives no more.
                if not living:
                    raise AssertionError(
                        "An error occurred in the data fetcher: its process is gone (exit code "
                        f"{self._process.exitcode}); make a new loader"
                    ) from None
                continue
            if received == number:
                return kind, item


def _end(process: Any, shared: _Channel) -> None:
    """Ask the worker to end, and end it when it does not; what is left in the buffer is dropped."""
    shared.stop.set()
    process.join(timeout=2.0)
    if process.is_alive():
        process.terminate()
        process.join()
    shared.buffer.close()
    shared.buffer.cancel_join_thread()
