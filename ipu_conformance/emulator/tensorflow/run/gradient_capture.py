"""Gradients of what a program marks, kept by tapes and contexts while the gradients of variables are computed."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import tensorflow as tf


class _Open(threading.local):
    """The tapes and contexts of this thread that have not handed out their gradients, the innermost last."""

    def __init__(self) -> None:
        self.frames: List[Tuple[int, Dict[str, List[Any]]]] = []


_open = _Open()


def number_open() -> int:
    """How many tapes and contexts would keep a gradient now, or once those inside have handed out theirs."""
    return len(_open.frames)


class GradientCaptureContext:
    """A scope whose ``captured_gradients`` are those of what ``capture_upstream_gradients`` has marked."""

    def __init__(self) -> None:
        self._captured: Optional[Dict[str, List[Any]]] = None

    def __enter__(self) -> Any:
        # Keras enters a tape again to transform its loss.
        if all(owner != id(self) for owner, _ in _open.frames):
            _open.frames.append((id(self), {}))
        return self

    def __exit__(self, typ: Any, value: Any, traceback: Any) -> None:
        """Gradients may still be computed behind the scope: it ends when they are asked for."""

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        if _open.frames and _open.frames[-1][0] == id(self):
            self._captured = _open.frames.pop()[1]

    @property
    def captured_gradients(self) -> Optional[Dict[str, List[Any]]]:
        """The gradients by tag, a list for each; None while another tape or context inside is still open."""
        self._close()
        return self._captured

    @captured_gradients.setter
    def captured_gradients(self, _: Any) -> None:
        raise ValueError("captured_gradients is read only: compute gradients to fill it.")


class GradientCaptureTape(tf.GradientTape, GradientCaptureContext):
    """A tape that also keeps the gradients of what ``capture_upstream_gradients`` has marked."""

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        tf.GradientTape.__init__(self, persistent=persistent, watch_accessed_variables=watch_accessed_variables)
        GradientCaptureContext.__init__(self)

    def __enter__(self) -> Any:
        tf.GradientTape.__enter__(self)
        return GradientCaptureContext.__enter__(self)

    def __exit__(self, typ: Any, value: Any, traceback: Any) -> None:
        tf.GradientTape.__exit__(self, typ, value, traceback)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """The gradients of ``sources``; those that were captured on the way are kept."""
        found = tf.GradientTape.gradient(self, target, sources, output_gradients, unconnected_gradients)
        self._close()
        return found


@contextlib.contextmanager
def kept() -> Iterator[Dict[str, List[Any]]]:
    """The gradients of what is marked that are computed inside, whatever tapes and contexts are open around."""
    found: Dict[str, List[Any]] = {}
    _open.frames.append((id(found), found))
    try:
        yield found
    finally:
        _open.frames.remove((id(found), found))


def takes(optimizer: Any) -> bool:
    """Whether ``apply_gradients`` of an optimizer is handed what was captured."""
    named = "captured_grads" in inspect.signature(type(optimizer).apply_gradients).parameters
    return named or bool(getattr(optimizer, "supports_captured_grads", False))


def capture_upstream_gradients(args: Any, tag: str = "") -> Any:
    """The same tensors, whose gradients the innermost tape or context keeps under ``tag``."""

    @tf.custom_gradient
    def marked(*tensors: Any) -> Any:
        def gradient(*upstream: Any) -> Any:
            _keep(tag, list(upstream))
            return upstream

        return [tf.identity(tensor) for tensor in tensors], gradient

    tensors = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(args)]
    return tf.nest.pack_sequence_as(args, tf.nest.flatten(marked(*tensors)))


def _keep(tag: str, gradients: List[Any]) -> None:
    if not _open.frames:
        raise RuntimeError(
            f"The gradient of what is marked as {tag!r} was computed outside of a GradientCaptureTape or "
            "GradientCaptureContext: open one around it."
        )
    kept = _open.frames[-1][1]
    if tag in kept:
        raise ValueError(
            f"A gradient with the tag {tag!r} has been captured already: give every mark a tag of its own."
        )
    kept[tag] = gradients


def minimizing(own: Callable[..., Any]) -> Callable[..., Any]:
    """A Keras optimizer's ``minimize`` that hands over what was captured, where ``apply_gradients`` takes it.

    A tape that captures has the gradients; under any other a scope of its own has.
    """

    @functools.wraps(own)
    def minimize(optimizer: Any, *arguments: Any, **settings: Any) -> Any:
        tapes = [value for value in (*arguments, *settings.values()) if isinstance(value, GradientCaptureTape)]
        scope: Any = contextlib.nullcontext(tapes[0]) if tapes else GradientCaptureContext()
        with scope as kept, _handing(optimizer, kept):
            return own(optimizer, *arguments, **settings)

    return minimize


@contextlib.contextmanager
def _handing(optimizer: Any, kept: Any) -> Iterator[None]:
    apply, before = optimizer.apply_gradients, optimizer.__dict__.get("apply_gradients")
    takes = "captured_grads" in inspect.signature(type(optimizer).apply_gradients).parameters

    def apply_gradients(*arguments: Any, **settings: Any) -> Any:
        captured = kept.captured_gradients
        given = {"captured_grads": captured} if takes and captured else {}
        return apply(*arguments, **settings, **given)

    object.__setattr__(optimizer, "apply_gradients", apply_gradients)
    try:
        yield
    finally:
        object.__delattr__(optimizer, "apply_gradients")
        if before is not None:
            object.__setattr__(optimizer, "apply_gradients", before)
