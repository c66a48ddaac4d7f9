"""What the frameworks return of a step's values, which are computed once per micro-batch."""

from __future__ import annotations

import numpy as np

from ipu_conformance.run import Array, RunConfig


def returned(values: Array, config: RunConfig) -> Array:
    """What a step returns when ``values[iteration, accumulation, replica]`` is the value of a micro-batch."""
    return {"poptorch": _poptorch, "paddle": _paddle, "tensorflow": _tensorflow}[config.output_layout](values, config)


def _poptorch(values: Array, config: RunConfig) -> Array:
    """Values one after the other along axis 0; scalars become a vector unless there is one only."""
    by_turn = _turns(values)
    if config.output_mode == "sum":
        chosen = by_turn.sum(axis=0, keepdims=True)
    elif config.output_mode == "final":
        chosen = by_turn[-1:]
    else:
        chosen = by_turn[config.output_period - 1 :: config.output_period]
    flat = chosen.reshape((-1, *values.shape[3:]))
    if flat.ndim == 1:
        return flat[0] if len(flat) == 1 else flat
    return flat.reshape((-1, *flat.shape[2:]))


def _paddle(values: Array, config: RunConfig) -> Array:
    """All values in the order of the feed, under a shape that names the axes in the reverse order; no scalars.

    An axis is there if its factor is above 1: accumulation and replication are taken as enabled only then.
    """
    axes = tuple(size for size in values.shape[2::-1] if size > 1)
    return values.reshape(axes + (values.shape[3:] or (1,)))


def _tensorflow(values: Array, config: RunConfig) -> Array:
    """An entry per enqueue, with an axis for the replicas if there are several; sums are made per pipeline run."""
    chosen = {"all": _turns(values), "final": _turns(values)[-1:], "sum": values.sum(axis=1)}[config.output_mode]
    if config.replicas == 1:
        chosen = chosen[:, 0]
    return chosen[0] if config.output_mode == "final" else chosen


def _turns(values: Array) -> Array:
    """Device iterations and accumulation as one axis: the turns of a replica in the order of time."""
    return np.reshape(values, (-1, *values.shape[2:]))
