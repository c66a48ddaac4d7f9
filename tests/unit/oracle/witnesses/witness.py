"""How a witness is asked: its table of rows, conversion to its tensors, and its own automatic differentiation."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import Array, OracleError
from ipu_conformance.oracle.sample import Sample

Row = Callable[..., Any]


class Unsupported(Exception):  # noqa: N818 - it is an answer, not an error
    """The witness cannot express these attributes."""


class Witness:
    """A library that implements ops independently; the base class is one without gradients, such as SciPy."""

    def __init__(self, name: str, module: str) -> None:
        self.name = name
        self.rows: Dict[str, Row] = {}
        self.exceptions: Dict[Tuple[str, str, str], str] = {}
        """Why something is not asked for, by op, "outputs" or "gradients", and dtype: known defects of the witness."""
        self._module = module

    def row(self, *names: str) -> Callable[[Row], Row]:
        """Decorate the row for the ops called ``names``."""

        def register(function: Row) -> Row:
            self.add(dict.fromkeys(names, function))
            return function

        return register

    def add(self, rows: Dict[str, Row]) -> None:
        """Register ``rows`` by op name; each name once."""
        for name, function in rows.items():
            if name in self.rows:
                raise OracleError(f"{self.name} has two rows for op {name!r}; keep one")
            self.rows[name] = function

    def except_for(self, name: str, parts: Sequence[str], dtype: str, reason: str) -> None:
        """Do not ask for ``parts`` ("outputs", "gradients") of op ``name`` in ``dtype``: the witness is wrong there."""
        self.exceptions.update({(name, part, dtype): reason for part in parts})

    def installed(self) -> bool:
        """Whether the library is there; it is not imported to find out."""
        return importlib.util.find_spec(self._module) is not None

    def outputs(self, name: str, sample: Sample, dtype: str = "float64") -> Tuple[Array, ...]:
        """The outputs of op ``name`` computed by this library in ``dtype``."""
        self._refuse(name, "outputs", dtype)
        library = self._library()
        tensors = [self._tensor(library, value, dtype) for value in sample.inputs]
        return tuple(self._numpy(value) for value in _sequence(self._call(library, name, tensors, sample)))

    def gradients(
        self,
        name: str,
        sample: Sample,
        cotangents: Sequence[Array],
        dtype: str = "float64",
        wanted: Optional[Sequence[bool]] = None,
    ) -> Tuple[Optional[Array], ...]:
        """The gradient of each wanted input by this library's own differentiation, None where it has none.

        Every floating-point input is wanted unless ``wanted`` tells.
        """
        self._refuse(name, "gradients", dtype)
        wanted = [value.dtype.kind == "f" for value in sample.inputs] if wanted is None else wanted
        found = iter(self._differentiate(name, sample, cotangents, dtype, wanted))
        return tuple(next(found) if asked else None for asked in wanted)

    def _differentiate(
        self, name: str, sample: Sample, cotangents: Sequence[Array], dtype: str, wanted: Sequence[bool]
    ) -> Sequence[Optional[Array]]:
        raise Unsupported(f"{self.name} does not differentiate")

    def _refuse(self, name: str, part: str, dtype: str) -> None:
        if (name, part, dtype) in self.exceptions:
            raise Unsupported(self.exceptions[name, part, dtype])

    def _library(self) -> Any:
        return importlib.import_module(self._module)

    def _call(self, library: Any, name: str, tensors: Sequence[Any], sample: Sample) -> Any:
        return self.rows[name](library, *tensors, **sample.attributes)

    def _tensor(self, library: Any, value: Array, dtype: str) -> Any:
        return value.astype(dtype) if value.dtype.kind == "f" else value

    def _numpy(self, value: Any) -> Array:
        return np.asarray(value)


class _Scipy(Witness):
    def _library(self) -> Any:
        for part in ("scipy.signal", "scipy.special", "scipy.ndimage"):
            importlib.import_module(part)
        return importlib.import_module("scipy")


class _Torch(Witness):
    def _differentiate(
        self, name: str, sample: Sample, cotangents: Sequence[Array], dtype: str, wanted: Sequence[bool]
    ) -> Sequence[Optional[Array]]:
        torch = self._library()
        tensors = [self._tensor(torch, value, dtype) for value in sample.inputs]
        leaves = [tensor.requires_grad_() for tensor, asked in zip(tensors, wanted) if asked]
        outputs, seeds = _differentiable(
            _sequence(self._call(torch, name, tensors, sample)),
            [self._tensor(torch, value, dtype) for value in cotangents],
            lambda value: value.requires_grad,
        )
        found = torch.autograd.grad(outputs, leaves, seeds, allow_unused=True)
        return [None if value is None else self._numpy(value) for value in found]

    def _tensor(self, library: Any, value: Array, dtype: str) -> Any:
        tensor = library.from_numpy(np.array(value, order="C"))
        return tensor.to(getattr(library, dtype)) if value.dtype.kind == "f" else tensor

    def _numpy(self, value: Any) -> Array:
        return value.detach().numpy()


class _TensorFlow(Witness):
    def _library(self) -> Any:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its start-up lines would break into our table
        return importlib.import_module("tensorflow")

    def _differentiate(
        self, name: str, sample: Sample, cotangents: Sequence[Array], dtype: str, wanted: Sequence[bool]
    ) -> Sequence[Optional[Array]]:
        tf = self._library()
        tensors = [self._tensor(tf, value, dtype) for value in sample.inputs]
        leaves = [tensor for tensor, asked in zip(tensors, wanted) if asked]
        with tf.GradientTape() as tape:
            tape.watch(leaves)
            outputs = _sequence(self._call(tf, name, tensors, sample))
        outputs, seeds = _differentiable(
            outputs,
            [self._tensor(tf, value, dtype) for value in cotangents],
            lambda value: value.dtype.is_floating,
        )
        found = tape.gradient(outputs, leaves, output_gradients=seeds)
        return [None if value is None else tf.convert_to_tensor(value).numpy() for value in found]

    def _tensor(self, library: Any, value: Array, dtype: str) -> Any:
        return library.constant(value, dtype=dtype if value.dtype.kind == "f" else value.dtype)

    def _numpy(self, value: Any) -> Array:
        return value.numpy()


class _Paddle(Witness):
    def _differentiate(
        self, name: str, sample: Sample, cotangents: Sequence[Array], dtype: str, wanted: Sequence[bool]
    ) -> Sequence[Optional[Array]]:
        paddle = self._library()
        tensors = [self._tensor(paddle, value, dtype) for value in sample.inputs]
        leaves = [tensor for tensor, asked in zip(tensors, wanted) if asked]
        for tensor in leaves:
            tensor.stop_gradient = False
        outputs, seeds = _differentiable(
            _sequence(self._call(paddle, name, tensors, sample)),
            [self._tensor(paddle, value, dtype) for value in cotangents],
            lambda value: not value.stop_gradient,
        )
        found = paddle.grad(outputs, leaves, seeds, allow_unused=True)
        return [None if value is None else value.numpy() for value in found]

    def _tensor(self, library: Any, value: Array, dtype: str) -> Any:
        return library.to_tensor(value.astype(dtype) if value.dtype.kind == "f" else value)

    def _numpy(self, value: Any) -> Array:
        return value.numpy()


def _sequence(outputs: Any) -> Sequence[Any]:
    return outputs if isinstance(outputs, (tuple, list)) else (outputs,)


def _differentiable(
    outputs: Sequence[Any], seeds: Sequence[Any], has_gradient: Callable[[Any], bool]
) -> Tuple[List[Any], List[Any]]:
    """The outputs that depend differentiably on an input, with their cotangents."""
    pairs = [(output, seed) for output, seed in zip(outputs, seeds) if has_gradient(output)]
    return [output for output, _ in pairs], [seed for _, seed in pairs]


SCIPY = _Scipy("scipy", "scipy")
TORCH = _Torch("torch", "torch")
TENSORFLOW = _TensorFlow("tensorflow", "tensorflow")
PADDLE = _Paddle("paddle", "paddle")
