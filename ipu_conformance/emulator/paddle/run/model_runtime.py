"""The model runtime, which serves requests: with a timeout it completes a batch that is too small.

Without a timeout a request must fill the batch. With one, the device waits that long for more samples and then computes
with what there is; the answer holds as many samples as the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.emulator.paddle import refusals


@dataclass(frozen=True)
class Request:
    """Feeds that fill the batch, and how many of their samples are the caller's."""

    feeds: Dict[str, np.ndarray]
    samples: int
    """The leading samples that the user gave."""
    capacity: int
    """The samples that one run computes."""

    def answer(self, fetched: Sequence[np.ndarray]) -> List[np.ndarray]:
        """The fetched arrays without what completed the batch: samples come first, whatever the factors are."""
        if self.samples == self.capacity:
            return list(fetched)
        return [self._asked(np.asarray(array)) for array in fetched]

    def _asked(self, array: np.ndarray) -> np.ndarray:
        rows = _rows(array, self.capacity)
        return array if rows is None else rows[: self.samples]


def is_used(strategy: Any) -> bool:
    """Whether runs go through the model runtime."""
    if not strategy.value("enable_model_runtime_executor"):
        return False
    refusals.RUNTIME_TRAINS(training=strategy.value("is_training"))
    return True


def request_of(executable: Any, feeds: Mapping[str, Any]) -> Optional[Request]:
    """The request that one run of an executable serves; None for a run without the model runtime."""
    if not is_used(executable.strategy):
        return None
    shapes = {name: spec.shape for name, spec in executable.feeds.items()}
    return request(feeds, shapes, executable.strategy, executable.options.layout.inputs)


def request(feeds: Mapping[str, Any], micro_shapes: Mapping[str, Sequence[int]], strategy: Any, runs: int) -> Request:
    """The feeds as one run takes them; ``runs`` micro-batches of ``micro_shapes`` make one run."""
    arrays = {name: np.asarray(feeds[name]) for name in micro_shapes}
    timeout = float(strategy.value("timeout_ms"))
    counts = {name: _samples(name, array, micro_shapes[name], runs, timeout) for name, array in arrays.items()}
    refusals.REQUEST(counts=counts)
    samples, capacity = next(iter(counts.values()), (1, 1))
    if samples == capacity:
        return Request(arrays, samples, capacity)
    completed = {name: _completed(array, micro_shapes[name], runs) for name, array in arrays.items()}
    return Request(completed, samples, capacity)


def _samples(name: str, array: np.ndarray, shape: Sequence[int], runs: int, timeout: float) -> Tuple[int, int]:
    """How many samples a feed holds, and how many one run takes."""
    capacity = runs * int(shape[0]) if shape else runs
    if array.size == runs * int(np.prod(shape)):
        return capacity, capacity
    samples = int(array.shape[0]) if array.ndim else 0
    fits = 0 < samples < capacity and tuple(array.shape[1:]) == tuple(shape[1:])
    refusals.REQUEST_SIZE(
        name=name, shape=array.shape, capacity=capacity, sample=tuple(shape[1:]), timeout=timeout, fits=fits
    )
    return samples, capacity


def _completed(array: np.ndarray, shape: Sequence[int], runs: int) -> np.ndarray:
    """The batch with zeros after its samples."""
    full = np.zeros((runs * int(shape[0]), *array.shape[1:]), array.dtype)
    full[: len(array)] = array
    return full


def _rows(array: np.ndarray, capacity: int) -> Any:
    """The array with one row for each sample; None where its leading dimensions do not hold the samples."""
    held = 1
    for place, length in enumerate(array.shape, start=1):
        held *= length
        if held == capacity:
            return array.reshape(capacity, *array.shape[place:])
    return None
