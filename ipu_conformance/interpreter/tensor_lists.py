"""TensorFlow's lists of tensors, in which a loop keeps what each of its turns has made: one array of objects each.

A place that nothing was put into holds a zero without a shape, which takes that of its neighbours.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Tuple

import numpy as np

from ipu_conformance.interpreter.calls import Array, Call, ExecutionError, Function

Results = Tuple[Array, ...]


def _listed(items: Iterable[Any]) -> Results:
    """A list as the one result of an op."""
    values = [np.asarray(item) for item in items]
    whole = np.empty(len(values), object)
    for place, value in enumerate(values):
        whole[place] = value
    return (whole,)


def _shape(declared: Array, items: Iterable[Array]) -> Optional[Tuple[int, ...]]:
    """The shape of a list's items: that of one, or the declared one, which may be unknown."""
    known = [item.shape for item in items if item.ndim]
    sizes = [int(size) for size in np.ravel(declared)]
    return known[0] if known else None if declared.ndim == 0 or -1 in sizes else tuple(sizes)


def _filled(item: Any, declared: Array, items: Iterable[Array]) -> Array:
    shape = _shape(declared, items)
    return np.asarray(item) if shape is None else np.broadcast_to(item, shape).copy()


def _put(call: Call) -> Results:
    """Reads the list, a place and a value."""
    items = list(call[0])
    items[_place(call)] = call[2]
    return _listed(items)


def _taken(call: Call) -> Results:
    """Reads the list, a place and the shape of items."""
    return (_filled(call[0][_place(call)], call[2], call[0]),)


def _place(call: Call) -> int:
    place = int(call[1])
    if not 0 <= place < len(call[0]):
        raise ExecutionError(f"{call.place} names place {place} of a list of {len(call[0])}.")
    return place


def _stacked(call: Call) -> Results:
    return (np.stack([_filled(item, call[1], call[0]) for item in call[0]]),)


def _popped(call: Call) -> Results:
    """The list without its last item, and that item."""
    if not len(call[0]):
        raise ExecutionError(f"{call.place} takes from an empty list.")
    return (*_listed(call[0][:-1]), _filled(call[0][-1], call[1], call[0]))


def _item_shape(call: Call) -> Array:
    shape = _shape(np.asarray(-1), call[0])
    return np.asarray(-1 if shape is None else shape, np.int64)


TENSOR_LISTS: Mapping[str, Function] = {
    "EmptyTensorList": lambda call: _listed(()),
    "TensorListReserve": lambda call: _listed(np.zeros(int(call[1]))),
    "TensorListFromTensor": lambda call: _listed(call[0]),
    "TensorListPushBack": lambda call: _listed([*call[0], call[1]]),
    "TensorListPopBack": _popped,
    "TensorListSetItem": _put,
    "TensorListGetItem": _taken,
    "TensorListStack": _stacked,
    "TensorListLength": lambda call: np.asarray(len(call[0])),
    "TensorListElementShape": _item_shape,
}
"""Every such op by its type."""
