"""Loading in another process, ahead of the model, into a buffer of a few batches."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
from multiprocessing import forkserver, spawn
from multiprocessing.util import Finalize
from typing import Any, Callable, Iterator, Mapping, Optional, Tuple
from unittest import mock

import torch
import torch.multiprocessing

from ipu_conformance.emulator.poptorch.data import worker
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.options.enums import SharingStrategy
from ipu_conformance.emulator.poptorch.refusals import models as refusals

_TRANSPORTS: Mapping[SharingStrategy, Callable[[bytes], Any]] = {
    SharingStrategy.SharedMemory: worker.SharedMemoryDataset,
    SharingStrategy.FileSystem: worker.DatasetFile,
    SharingStrategy.ForkServer: worker.PickledDataset,
}
"""How a dataset reaches the worker; one that is forked has it already."""


def _started(dataset: Any, strategy: SharingStrategy, shared: worker.Channel, context: Any, settings: Any) -> Any:
    """The process of the worker, running."""
    program: Any = contextlib.nullcontext()
    if strategy != SharingStrategy.Fork:
        content = pickle.dumps(dataset)
        dataset = _TRANSPORTS[strategy](content)
        if b"__main__" not in content:
            program = _without_the_program()
    # Not a daemon: the dataset may be a loader with workers of its own.
    process = context.Process(target=worker.work, args=(dataset, shared, settings), daemon=False)
    with program:
        process.start()
    return process


@contextlib.contextmanager
def _without_the_program() -> Iterator[None]:
    """Processes that are started do not import the program that runs: a worker needs it only for what it defines."""
    original = spawn.get_preparation_data

    def reduced(name: str) -> Mapping[str, Any]:
        return {key: value for key, value in original(name).items() if not key.startswith("init_main")}

    with mock.patch.object(spawn, "get_preparation_data", reduced):
        yield


def _leave_the_server() -> None:
    """A forked process lets go of the server, which lives as long as anybody holds this end of its pipe."""
    server: Any = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = server._forkserver_address = server._forkserver_pid = None


os.register_at_fork(after_in_child=_leave_the_server)


class AsynchronousDataAccessor:
    """Iterates over a dataset that another process loads ahead, ``buffer_size`` elements at most.

    With ``load_indefinitely`` the worker goes on to the next pass by itself; with ``early_preload`` it begins before
    the first iterator is made. Each iterator is one pass from the start. ``rebatched_size`` joins small elements
    into tensors of that many rows. ``miss_sleep_time_in_ms`` has no effect: a reader is woken by the next element.
    A failure in the worker is an AssertionError here, and so is its death.
    """

    _drop_last = True

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: Optional[int] = None,
    ) -> None:
        if isinstance(buffer_size, bool) or not isinstance(buffer_size, int) or buffer_size < 1:
            raise AssertionError(f"buffer_size={buffer_size!r} was given: use 1 or more")
        if not isinstance(sharing_strategy, SharingStrategy):
            raise AssertionError(f"{sharing_strategy!r} was given: use one of poptorch.SharingStrategy")
        if not miss_sleep_time_in_ms >= 0:
            raise AssertionError(f"miss_sleep_time_in_ms={miss_sleep_time_in_ms} was given: use 0 or more")
        refusals.REBATCHED_SIZE(size=rebatched_size)
        if getattr(dataset, "_accessor", None) is not None:
            raise Error(
                "The DataLoader already uses an AsynchronousDataAccessor internally: iterate over it as it is, or make "
                "it with mode=poptorch.DataLoaderMode.Sync"
            )
        self._dataset = dataset
        self._rebatched_size = rebatched_size
        self._pass = 0
        self._consumed = 0
        self._ended = True
        context = torch.multiprocessing.get_context(
            "fork" if sharing_strategy == SharingStrategy.Fork else "forkserver"
        )
        if sharing_strategy != SharingStrategy.Fork:
            context.set_forkserver_preload([worker.__name__])
        self._shared = worker.Channel(context, buffer_size, first_pass=1 if early_preload else 0)
        settings = {
            "load_indefinitely": load_indefinitely,
            "rebatched_size": rebatched_size,
            "drop_last": self._drop_last,
            "reader": os.getpid(),
            # Drawn here, so that a seeded program shuffles the same way each time.
            "seed": int(torch.empty((), dtype=torch.int64).random_().item()),
        }
        self._process = _started(dataset, sharing_strategy, self._shared, context, settings)
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
            if kind == worker.FAILURE:
                self._ended = True
                raise AssertionError(f"An error occurred in the data fetcher, {item.where}: {item.exc_msg}")
            if kind == worker.END:
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
                received, kind, item = self._shared.buffer.get(timeout=worker.POLL_SECONDS)
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


def _end(process: Any, shared: worker.Channel) -> None:
    """Ask the worker to end, and end it when it does not; what is left in the buffer is dropped."""
    shared.stop.set()
    process.join(timeout=2.0)
    if process.is_alive():
        process.terminate()
        process.join()
    shared.buffer.close()
    shared.buffer.cancel_join_thread()


class PartialAccessor(AsynchronousDataAccessor):
    """Gives the rest of fewer rows too, where it joins elements."""

    _drop_last = False
