"""Options.Precision: every operation of a slot rounds, accumulates and traps as the options ask.

Nothing is intercepted while the options are at their defaults; torch's own kernels already hold the partial sums of
float16 products in float32. Otherwise each operation, forward and backward, passes through a dispatch mode.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.core import numerics
from ipu_conformance.emulator.poptorch.options.diagnostics import Error, logger

aten = torch.ops.aten

SLOT_METHODS = ("forward", "recompute", "backward", "update")
"""The methods of a machine that compute."""

TRAPPED = "poplar_floating_point_exception"
"""The ``type`` of the error that a trapped operation raises."""

_ALL_TRAPS = numerics.Traps(inv=True, div0=True, oflo=True)
_NAMES: Mapping[Any, str] = {
    aten.div: "Div", aten.div_: "Div", aten.reciprocal: "Reciprocal", aten.log: "Log", aten.pow: "Pow",
}  # fmt: skip
_UNDEFINED = frozenset({aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided, aten.new_empty_strided})
"""Operations whose result has no value yet."""

_PLACING = frozenset({
    aten.fill, aten.fill_, aten.zero_, aten.copy_, aten.masked_fill, aten.masked_fill_, aten.where,
    aten.bernoulli_, aten.uniform_, aten.normal_, aten.constant_pad_nd, aten.clone, aten.cat,
})  # fmt: skip
"""Operations that put values in place without computing with them: an infinity that a mask writes is meant."""

_CONVOLUTIONS = frozenset({aten.convolution, aten.convolution_backward})


def apply(machine: Any, options: Any, seed: int) -> None:
    """Make the slots of a machine compute as the options ask; ``seed`` is that of stochastic rounding."""
    chosen = options.Precision
    partials = "float16" if chosen.partials_type == torch.float16 else "float32"
    partials = faults.at("numerics.partials", partials)
    if partials == "float32" and not (chosen.enable_stochastic_rounding or chosen.enable_floating_point_exceptions):
        return
    make = functools.partial(
        Arithmetic,
        seed=seed if chosen.enable_stochastic_rounding else None,
        traps=_ALL_TRAPS if chosen.enable_floating_point_exceptions else numerics.NO_TRAPS,
        partials=partials,
    )
    for name in SLOT_METHODS:
        setattr(machine, name, _inside(getattr(machine, name), make, name))


def _inside(method: Callable[..., Any], make: Callable[..., Arithmetic], name: str) -> Callable[..., Any]:
    """The method of a machine inside an arithmetic of its own; its first argument is the replica."""
    kind = SLOT_METHODS.index(name)
    counts: Dict[int, int] = {}

    @functools.wraps(method)
    def inside(replica: int, *args: Any, **kwargs: Any) -> Any:
        # Each replica counts for itself: in parallel it draws what it would draw alone. An update draws the same on
        # every replica, or their weights would drift apart.
        counts[replica] = counts.get(replica, 0) + 1
        with make(draw=(kind, 0 if name == "update" else replica, counts[replica])):
            return method(replica, *args, **kwargs)

    return inside


class Arithmetic(TorchDispatchMode):
    """The rounding, the partial sums and the traps of the operations inside it."""

    def __init__(
        self,
        *,
        seed: Optional[int] = None,
        traps: numerics.Traps = numerics.NO_TRAPS,
        partials: str = "float32",
        draw: Tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.traps = traps
        self.partials = partials
        self.generator = None if seed is None else np.random.default_rng([seed, *draw])

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        kwargs = kwargs or {}
        if function.is_view or function.overloadpacket in _UNDEFINED:
            return function(*args, **kwargs)
        operands = self._operands(function, args, kwargs)
        result = self._compute(function, args, kwargs)
        if operands:
            self._trap(function, result, operands)
        return result

    def _operands(self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> List[np.ndarray]:
        """What an operation that can trap computes with, kept from being overwritten; nothing for the others."""
        if not self.traps.inv or function.overloadpacket in _PLACING:
            return []
        operands = [_numpy(value) for value in _floats((args, kwargs))]
        return [value.copy() for value in operands] if function._schema.is_mutable else operands

    def _compute(self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        product = _PRODUCTS.get(function) if self.partials == "float16" else None
        if product is not None and all(value.dtype == torch.float16 for value in _floats(args)):
            return product(self._dot, *args, **kwargs)
        if self.partials == "float16" and function.overloadpacket in _CONVOLUTIONS:
            _warn_once("Convolutions hold their partial sums in float32 on the emulator, matrix products in float16")
        if self.generator is None:
            return function(*args, **kwargs)
        return self._rounded_at_random(function, args, kwargs)

    def _dot(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        product = numerics.dot(_numpy(left), _numpy(right), partials=self.partials, seed=self.generator)
        return torch.from_numpy(np.ascontiguousarray(product))

    def _rounded_at_random(self, function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """Compute in float32 what makes float16, then round it."""
        leaves = pytree.tree_leaves((args, kwargs))
        wide = {id(leaf): leaf.float() for leaf in leaves if isinstance(leaf, torch.Tensor) and _is_half(leaf)}
        asked = {leaf for leaf in leaves if isinstance(leaf, torch.dtype)}
        if not function._schema.returns or not (wide or torch.float16 in asked):
            return function(*args, **kwargs)

        def widened(leaf: Any) -> Any:
            return torch.float32 if leaf is torch.float16 else wide.get(id(leaf), leaf)

        result = function(*pytree.tree_map(widened, args), **pytree.tree_map(widened, kwargs))
        halves = [leaf for leaf in leaves if id(leaf) in wide]
        if function._schema.is_mutable:
            return self._written_back(result, halves, wide)
        keeps_float = torch.float32 in asked or (
            torch.float16 not in asked and any(not _is_half(value) for value in _floats((args, kwargs)))
        )
        return result if keeps_float else pytree.tree_map_only(torch.Tensor, self._round, result)

    def _written_back(self, result: Any, halves: Sequence[torch.Tensor], wide: Mapping[int, torch.Tensor]) -> Any:
        """Round what an operation changed in place into the tensors that it was given."""
        original = {id(wide[id(value)]): value for value in halves}
        for value in halves:
            value.copy_(self._round(wide[id(value)]))
        return pytree.tree_map(lambda value: original.get(id(value), value), result)

    def _round(self, value: torch.Tensor) -> torch.Tensor:
        if value.dtype != torch.float32:
            return value
        return torch.from_numpy(np.ascontiguousarray(numerics.to_float16(_numpy(value), seed=self.generator)))

    def _trap(self, function: Any, result: Any, inputs: Sequence[np.ndarray]) -> None:
        name = _NAMES.get(function.overloadpacket, function.overloadpacket.__name__)
        for value in _floats(result):
            try:
                numerics.check(name, _numpy(value), *inputs, traps=self.traps)
            except numerics.NumericsError as error:
                raise Error(f"Floating-point exception: {error}", TRAPPED) from error


def _floats(tree: Any) -> List[torch.Tensor]:
    """The float16 and float32 tensors of a nest of arguments."""
    leaves = pytree.tree_leaves(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float16, torch.float32)]


def _is_half(value: torch.Tensor) -> bool:
    return value.dtype == torch.float16


def _numpy(value: torch.Tensor) -> np.ndarray:
    return value.detach().numpy()


Dot = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _mm(dot: Dot, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return dot(left, right)


def _addmm(
    dot: Dot, bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    return beta * bias + alpha * dot(left, right)


_PRODUCTS: Mapping[Any, Callable[..., torch.Tensor]] = {
    aten.mm.default: _mm,
    aten.bmm.default: _mm,
    aten.addmm.default: _addmm,
}


@functools.lru_cache(maxsize=None)
def _warn_once(text: str) -> None:
    logger.warning("%s", text)
