"""Between an estimator's host and its device: the data set of an input function, and what outfeeds bring back."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.estimator.run_config import IPURunConfig
from ipu_conformance.emulator.tensorflow.refusals import estimator as refusals
from ipu_conformance.emulator.tensorflow.run.infeed import IPUInfeedQueue


def infeed(dataset: Any, run: IPURunConfig) -> IPUInfeedQueue:
    """The infeed of what an input function returned."""
    refusals.DATA_SET(given=dataset, kind=tf.data.Dataset)
    return IPUInfeedQueue(dataset, device_ordinal=run.ordinal, prefetch_depth=run.prefetch_depth)


def features_and_labels(*element: Any, **features: Any) -> Tuple[Any, Any]:
    """The two parts of an element as a loop hands it over: in order, or by name where it is a dictionary."""
    if features:
        return features, None
    if len(element) > 2 or not element:
        raise ValueError("The data set of an input_fn must have elements of features, or of (features, labels).")
    return element[0], element[1] if len(element) == 2 else None


def micro_batches(taken: Any, count: int, replicas: int) -> Any:
    """What ``count`` iterations enqueued, without a dimension of replicas: all micro-batches in the order of data."""
    return tf.nest.map_structure(lambda leaf: _shaped(leaf, count * replicas, 2 if replicas > 1 else 1), taken)


def passed(function: Any, tensors: Any) -> Any:
    """``function`` of tensors that are listed or named."""
    return function(**tensors) if isinstance(tensors, dict) else function(*tensors)


def tensors_of(tensors: Any) -> Any:
    """Tensors that are listed or named, as an outfeed takes them."""
    if isinstance(tensors, dict):
        named: Dict[str, Any] = dict(tensors)
        return named
    listed: List[Any] = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    return listed


def _shaped(leaf: Any, number: int, leading: int) -> Any:
    return tf.reshape(leaf, [number, *leaf.shape[leading:]])
