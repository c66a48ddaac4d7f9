"""Witnesses of slices, joins, padding, triangles and diagonals."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from tests.unit.oracle.witnesses.witness import PADDLE, TENSORFLOW, TORCH, Unsupported

Pads = Sequence[Tuple[int, int]]


def _bounds(starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Tuple[slice, ...]:
    return tuple(slice(*bounds) for bounds in zip(starts, stops, steps))


def _innermost_first(pads: Pads) -> Sequence[int]:
    return [width for pair in reversed(pads) for width in pair]


def _torch_slice(torch: Any, x: Any, starts: Sequence[int], stops: Sequence[int]) -> Any:
    for axis, (start, stop) in enumerate(zip(starts, stops)):
        start %= x.shape[axis]
        x = torch.narrow(x, axis, start, stop - start)
    return x


def _torch_pad(torch: Any, x: Any, pads: Pads, mode: str, value: float) -> Any:
    filled = (value,) if mode == "constant" else ()
    return torch.nn.functional.pad(x, tuple(_innermost_first(pads)), mode, *filled)


TORCH.add(
    {
        "slice": _torch_slice,
        "strided_slice": lambda torch, x, **bounds: x[_bounds(**bounds)],
        "split": lambda torch, x, sizes, axis: torch.split(x, sizes, axis),
        "concat": lambda torch, *xs, axis: torch.cat(xs, axis),
        "stack": lambda torch, *xs, axis: torch.stack(xs, axis),
        "unstack": lambda torch, x, axis: torch.unbind(x, axis),
        "meshgrid": lambda torch, *xs, indexing: torch.meshgrid(*xs, indexing=indexing),
        "pad": _torch_pad,
        "triu": lambda torch, x, offset: torch.triu(x, offset),
        "tril": lambda torch, x, offset: torch.tril(x, offset),
        "diag": lambda torch, x, offset: torch.diag(x, offset),
    }
)


def _tf_slice(tf: Any, x: Any, starts: Sequence[int], stops: Sequence[int]) -> Any:
    begins = [start % size for start, size in zip(starts, x.shape)]
    return tf.slice(x, begins, [stop - begin for begin, stop in zip(begins, stops)])


def _tf_pad(tf: Any, x: Any, pads: Pads, mode: str, value: float) -> Any:
    if mode not in ("constant", "reflect"):
        raise Unsupported(f"tf.pad has no mode {mode}")
    return tf.pad(x, [(0, 0)] * (x.ndim - len(pads)) + list(pads), mode.upper(), value)


def _tf_band(tf: Any, x: Any, offset: int, upper: bool) -> Any:
    """The triangle on one side of a diagonal, from bands about the main diagonal."""
    offset = max(-x.shape[-2], min(offset, x.shape[-1]))  # TensorFlow refuses diagonals outside the matrix
    if upper:
        return tf.linalg.band_part(x, -offset, -1) if offset <= 0 else x - tf.linalg.band_part(x, -1, offset - 1)
    return tf.linalg.band_part(x, -1, offset) if offset >= 0 else x - tf.linalg.band_part(x, -offset - 1, -1)


def _tf_diag(tf: Any, x: Any, offset: int) -> Any:
    return tf.linalg.diag(x, k=offset) if x.ndim == 1 else tf.linalg.diag_part(x, k=offset)


TENSORFLOW.add(
    {
        "slice": _tf_slice,
        "strided_slice": lambda tf, x, starts, stops, steps: tf.strided_slice(x, starts, stops, steps),
        "split": lambda tf, x, sizes, axis: tf.split(x, sizes, axis),
        "concat": lambda tf, *xs, axis: tf.concat(xs, axis),
        "stack": lambda tf, *xs, axis: tf.stack(xs, axis),
        "unstack": lambda tf, x, axis: tf.unstack(x, axis=axis),
        "meshgrid": lambda tf, *xs, indexing: tf.meshgrid(*xs, indexing=indexing),
        "pad": _tf_pad,
        "triu": lambda tf, x, offset: _tf_band(tf, x, offset, upper=True),
        "tril": lambda tf, x, offset: _tf_band(tf, x, offset, upper=False),
        "diag": _tf_diag,
    }
)


def _paddle_pad(paddle: Any, x: Any, pads: Pads, mode: str, value: float) -> Any:
    return paddle.nn.functional.pad(x, list(_innermost_first(pads)), mode, value, "NCHW")


def _paddle_meshgrid(paddle: Any, *xs: Any, indexing: str) -> Any:
    if indexing != "ij":
        raise Unsupported("paddle.meshgrid indexes by matrix rows")
    return paddle.meshgrid(*xs)


def _paddle_slice(paddle: Any, x: Any, starts: Sequence[int], stops: Sequence[int]) -> Any:
    return paddle.slice(x, list(range(x.ndim)), starts, stops)


PADDLE.add(
    {
        "slice": _paddle_slice,
        "strided_slice": lambda paddle, x, starts, stops, steps: paddle.strided_slice(
            x, list(range(x.ndim)), list(starts), list(stops), list(steps)
        ),
        "split": lambda paddle, x, sizes, axis: paddle.split(x, list(sizes), axis),
        "concat": lambda paddle, *xs, axis: paddle.concat(list(xs), axis),
        "stack": lambda paddle, *xs, axis: paddle.stack(list(xs), axis),
        "unstack": lambda paddle, x, axis: paddle.unstack(x, axis),
        "meshgrid": _paddle_meshgrid,
        "pad": _paddle_pad,
        "triu": lambda paddle, x, offset: paddle.triu(x, offset),
        "tril": lambda paddle, x, offset: paddle.tril(x, offset),
        "diag": lambda paddle, x, offset: paddle.diag(x, offset),
    }
)
