"""From what a user feeds to the inputs of slots, and from the outputs of slots to what a user fetches."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from ipu_conformance.emulator.core import numerics, streams
from ipu_conformance.emulator.core.streams import Layout
from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile import precision
from ipu_conformance.emulator.paddle.compile.subprograms import TensorSpec
from ipu_conformance.emulator.paddle.errors import InvalidArgument

_NARROWER = {"int64": "int32", "float64": "float32"}


class Feeder:
    """Deals the feeds of one run out to slots."""

    def __init__(self, declared: Sequence[TensorSpec], layout: Layout) -> None:
        self.declared = tuple(declared)
        self._names = [spec.name for spec in declared]
        self.layout = layout
        self.positions: List[List[int]] = layout.positions().tolist()
        self.alone = layout.inputs == 1

    def deal(self, feed: Mapping[str, Any]) -> List[List[Dict[str, np.ndarray]]]:
        """By replica and micro-batch, the array of each feed."""
        arrays = {spec.name: self._split(spec, feed) for spec in self.declared}
        if self.alone:
            return [[arrays]]
        return [
            [{name: parts[position] for name, parts in arrays.items()} for position in fed] for fed in self.positions
        ]

    def _split(self, spec: TensorSpec, feed: Mapping[str, Any]) -> np.ndarray:
        """What is fed for one variable, with the micro-batches in front unless there is but one."""
        refusals.FEED(name=spec.name, feed=feed, wanted=self._names)
        value = feed[spec.name]
        array = np.asarray(value)
        refusals.EMPTY_FEED(name=spec.name, shape=array.shape)
        if not isinstance(value, (list, tuple, int, float)):  # which get the declared type on the host
            refusals.FEED_TYPE(name=spec.name, given=array.dtype.name, expected=spec.dtype)
        held = self._held(spec, array)
        if self.alone and held.shape == spec.shape:
            return held
        return self._cut(spec, held)

    def _cut(self, spec: TensorSpec, held: np.ndarray) -> np.ndarray:
        """What is held for one variable, cut into micro-batches."""
        try:
            streams.paddle_feed_size(self.layout, held.shape, spec.shape or (1,))
        except streams.StreamError as error:
            raise InvalidArgument(f"The feed {spec.name} does not fit: {error}") from error
        return held.reshape(spec.shape if self.alone else (self.layout.inputs, *spec.shape))

    @staticmethod
    def _held(spec: TensorSpec, array: np.ndarray) -> np.ndarray:
        """An array in the type in which the device's memory holds it."""
        if _NARROWER.get(array.dtype.name) == spec.dtype:
            return numerics.narrow(array)
        if array.dtype.name in _NARROWER:
            array = numerics.narrow(array)
        if spec.dtype == "float16":
            return precision.to_device(array, np.float16)
        return array if array.dtype == spec.dtype else array.astype(spec.dtype)


class Fetcher:
    """Makes of the outputs of slots what a user fetches."""

    def __init__(self, layout: Layout, *, replicated: bool, accumulating: bool) -> None:
        self.layout = layout
        self.replicated = replicated
        self.accumulating = accumulating
        self.selection = streams.select_all(layout)

    def shape(self, shape: Sequence[int]) -> Tuple[int, ...]:
        """The shape that is reported for a variable of that shape."""
        return streams.paddle_shape(self.layout, shape, replicated=self.replicated, accumulating=self.accumulating)

    def fetch(self, name: str, dtype: str, outputs: Sequence[Sequence[Mapping[str, np.ndarray]]]) -> np.ndarray:
        """One fetched variable from ``outputs[replica][micro_batch]``."""
        sources = [outputs[entry[0].replica][entry[0].micro_batch][name] for entry in self.selection.entries]
        arranged = sources[0][np.newaxis] if len(sources) == 1 else np.stack(sources)
        arranged = arranged.reshape(self.shape(arranged.shape[1:]))
        if dtype == "float16":
            return precision.to_host(arranged, np.float16)
        if arranged.dtype.name in _NARROWER:
            return numerics.narrow(arranged)
        return arranged

    def nothing(self, spec: TensorSpec) -> np.ndarray:
        """The buffer that is allocated for a variable and not written to."""
        return np.zeros(self.shape(spec.shape), _NARROWER.get(spec.dtype, spec.dtype))
