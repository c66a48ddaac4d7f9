"""The process that loads data ahead of a model: all that it imports, which is torch.

A server process forks the workers. It imports this module and nothing of the program that asked for them, so a worker
starts at once and then imports what its dataset needs.
"""

from __future__ import annotations

import os
import pickle
import queue
import select
import signal
import tempfile
import threading
from multiprocessing import shared_memory
from typing import Any, Dict, Iterator, List

import torch
import torch.multiprocessing
from torch._utils import ExceptionWrapper
from torch.utils import _pytree

ELEMENT, END, FAILURE = "element", "end", "failure"
POLL_SECONDS = 0.05
"""Seconds between checks that the other process is alive; an element wakes a waiting process at once."""


class PickledDataset:
    """A dataset on its way to the worker, by value: nothing in it is shared with the process that it comes from."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def take(self) -> Any:
        """The dataset, once."""
        return pickle.loads(self.content)


class DatasetFile(PickledDataset):
    """A dataset that travels through a file."""

    def __init__(self, content: bytes) -> None:
        handle, self.path = tempfile.mkstemp(prefix="ipu_conformance_dataset_")
        with os.fdopen(handle, "wb") as file:
            file.write(content)

    def take(self) -> Any:
        try:
            with open(self.path, "rb") as file:
                return pickle.load(file)
        finally:
            os.remove(self.path)


class SharedMemoryDataset(PickledDataset):
    """A dataset that travels through a block of shared memory."""

    def __init__(self, content: bytes) -> None:
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


class Channel:
    """What the two processes share: the buffer, the number of the pass that is wanted, and the signal to stop."""

    def __init__(self, context: Any, buffer_size: int, first_pass: int) -> None:
        self.buffer = context.Queue(maxsize=buffer_size)
        self.asked = context.Value("q", first_pass)
        self.stop = context.Event()

    def offer(self, number: int, kind: str, item: Any) -> bool:
        """Put an item into the buffer; False when the reader no longer wants it."""
        while not self.stop.is_set() and self.asked.value <= number and _parent_lives():
            try:
                self.buffer.put((number, kind, item), timeout=POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return self.asked.value > number and not self.stop.is_set()


def _parent_lives() -> bool:
    parent = torch.multiprocessing.parent_process()
    return parent is None or parent.is_alive()


def work(dataset: Any, shared: Channel, settings: Dict[str, Any]) -> None:
    """The worker: one pass over the dataset after another, as long as they are wanted."""
    end_with(settings["reader"])
    torch.set_num_threads(1)
    # Workers of a loader are forked from here, where all that they need is imported: started by a server, each of them
    # would import the program again. A loader that names another method keeps it.
    torch.multiprocessing.set_start_method("fork", force=True)
    torch.manual_seed(settings["seed"])
    if isinstance(dataset, PickledDataset):
        dataset = dataset.take()
    number = 0
    while _parent_lives():
        number = max(number + 1, shared.asked.value)
        while shared.asked.value < number and not (settings["load_indefinitely"] and number > 1):
            if shared.stop.wait(POLL_SECONDS) or not _parent_lives():
                break
        if shared.stop.is_set() or not _load(dataset, shared, number, settings):
            break
    shared.buffer.cancel_join_thread()


def _load(dataset: Any, shared: Channel, number: int, settings: Dict[str, Any]) -> bool:
    """One pass; False when the worker is to stop."""
    size = settings["rebatched_size"]
    try:
        for element in dataset if size is None else rebatch(dataset, size, settings["drop_last"]):
            if not shared.offer(number, ELEMENT, element):
                return False
            if shared.asked.value > number:
                return True
    except Exception:
        # The failure travels to whoever reads: it must not look like the end of the data.
        return shared.offer(number, FAILURE, ExceptionWrapper(where="in the process that loads data"))
    return shared.offer(number, END, None)


def end_with(process: int) -> None:
    """End this process, whatever its dataset is busy with, when the process of that number has ended."""
    if not hasattr(os, "pidfd_open"):
        return  # the worker then ends at the next element that it offers
    try:
        ended = os.pidfd_open(process)
    except ProcessLookupError:
        os._exit(1)

    def wait() -> None:
        select.select([ended], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="end with the reader", daemon=True).start()
