"""How a witness is asked: its rows, conversion to its tensors, and its own automatic differentiation."""

from __future__ import annotations

import importlib
import importlib.util
import os
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.ops import TABLE, Inexpressible
from ipu_conformance.oracle.op import Array, OracleError
from ipu_conformance.oracle.sample import Sample

Row = Callable[..., Any]
Condition = Callable[..., bool]
"""``when(*inputs, **attributes)``, on NumPy arrays."""


class Witness:
    """A library that implements ops independently; the base class is one without gradients, such as SciPy."""

    def __init__(self, name: str, module: str) -> None:
        self.name = name
        self.rows: Dict[str, Row] = {}
        self.exceptions: Dict[Tuple[str, str, str], Tuple[Condition, str]] = {}
        """When and why something is not asked for, by op, "outputs" or "gradients", and dtype: known defects."""
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

    def except_for(
        self, names: str, parts: str, dtypes: str, reason: str, when: Condition = lambda *_, **__: True
    ) -> None:
        """Do not ask for ``parts`` ("outputs gradients") of these ops in these types: the witness is wrong there."""
        for key in product(names.split(), parts.split(), dtypes.split()):
            self.exceptions[key] = when, reason

    def installed(self) -> bool:
        """Whether the library is there; it is not imported to find out."""
        return importlib.util.find_spec(self._module) is not None

    def outputs(self, name: str, sample: Sample, dtype: str = "float64") -> Tuple[Array, ...]:
        """The outputs of op ``name`` computed by this library in ``dtype``."""
        self._refuse(name, sample, "outputs", dtype)
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
        self._refuse(name, sample, "gradients", dtype)
        wanted = [value.dtype.kind == "f" for value in sample.inputs] if wanted is None else wanted
        library = self._library()
        tensors = [self._tensor(library, value, dtype) for value in sample.inputs]
        leaves = [tensor for tensor, asked in zip(tensors, wanted) if asked]
        with self._recording(library, leaves) as differentiate:
            outputs = _sequence(self._call(library, name, tensors, sample))
        seeds = [self._tensor(library, value, dtype) for value in cotangents]
        pairs = [pair for pair in zip(outputs, seeds) if self._has_gradient(pair[0])]
        answers = iter([None] * len(leaves))  # what depends on no leaf has no gradient
        if pairs:
            answers = iter(differentiate([output for output, _ in pairs], leaves, [seed for _, seed in pairs]))
        gradients = [next(answers) if asked else None for asked in wanted]
        return tuple(None if value is None else self._numpy(value) for value in gradients)

    @contextmanager
    def _recording(self, library: Any, leaves: Sequence[Any]) -> Iterator[Callable[..., Any]]:
        """Record what is computed from ``leaves``; yields a function of outputs, leaves and cotangents."""
        raise Inexpressible(f"{self.name} does not differentiate")
        yield

    def _has_gradient(self, output: Any) -> bool:
        raise NotImplementedError

    def _refuse(self, name: str, sample: Sample, part: str, dtype: str) -> None:
        when, reason = self.exceptions.get((name, part, dtype), (None, ""))
        if when is not None and when(*sample.inputs, **sample.attributes):
            raise Inexpressible(reason)

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


class _Framework(Witness):
    """A framework: its rows are those of the suite's op table."""

    def __init__(self, name: str, module: str) -> None:
        super().__init__(name, module)
        self.add({row.name: row.call(name) for row in TABLE.values() if row.missing(name) is None})


class _Torch(_Framework):
    @contextmanager
    def _recording(self, library: Any, leaves: Sequence[Any]) -> Iterator[Callable[..., Any]]:
        for leaf in leaves:
            leaf.requires_grad_()
        yield partial(library.autograd.grad, allow_unused=True)

    def _has_gradient(self, output: Any) -> bool:
        return output.requires_grad

    def _tensor(self, library: Any, value: Array, dtype: str) -> Any:
        tensor = library.from_numpy(np.array(value, order="C"))
        return tensor.to(getattr(library, dtype)) if value.dtype.kind == "f" else tensor

    def _numpy(self, value: Any) -> Array:
        return value.detach().numpy()


class _TensorFlow(_Framework):
    def _library(self) -> Any:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its start-up lines would break into our table
        return importlib.import_module("tensorflow")

    @contextmanager
    def _recording(self, library: Any, leaves: Sequence[Any]) -> Iterator[Callable[..., Any]]:
        with library.GradientTape() as tape:
            tape.watch(leaves)
            yield tape.gradient

    def _has_gradient(self, output: Any) -> bool:
        return output.dtype.is_floating

    def _tensor(self, library: Any, value: Array, dtype: str) -> Any:
        return library.constant(value, dtype=dtype if value.dtype.kind == "f" else value.dtype)

    def _numpy(self, value: Any) -> Array:
        return self._library().convert_to_tensor(value).numpy()  # the gradient of a lookup is a tensor in slices


class _Paddle(_Framework):
    @contextmanager
    def _recording(self, library: Any, leaves: Sequence[Any]) -> Iterator[Callable[..., Any]]:
        for leaf in leaves:
            leaf.stop_gradient = False
        yield partial(library.grad, allow_unused=True)

    def _has_gradient(self, output: Any) -> bool:
        return not output.stop_gradient

    def _tensor(self, library: Any, value: Array, dtype: str) -> Any:
        return library.to_tensor(value.astype(dtype) if value.dtype.kind == "f" else value)

    def _numpy(self, value: Any) -> Array:
        return value.numpy()


def _sequence(outputs: Any) -> Sequence[Any]:
    return outputs if isinstance(outputs, (tuple, list)) else (outputs,)


SCIPY = _Scipy("scipy", "scipy")
TORCH = _Torch("torch", "torch")
TENSORFLOW = _TensorFlow("tensorflow", "tensorflow")
PADDLE = _Paddle("paddle", "paddle")
