"""float16 by rounding: what a program declares float16 is held in float32 and rounded after each op that writes it.

Stock CPU wheels lack float16 kernels for common ops, and their cast truncates. A realised program therefore computes
in float32, as the device's partial sums do, and an op of ours rounds every float16 result as the device stores it: to
nearest even, or at random when the strategy asks for stochastic rounding.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from typing import Any, Callable, FrozenSet, Iterator, List

import numpy as np
from paddle.base import core

from ipu_conformance.emulator.core import numerics
from ipu_conformance.emulator.paddle.compile import partials, subprograms
from ipu_conformance.emulator.paddle.compile.compilation import ROLE, place_like
from ipu_conformance.emulator.paddle.errors import PopartError

FLOAT16, FLOAT32 = core.VarDesc.VarType.FP16, core.VarDesc.VarType.FP32

ROUNDING = subprograms.CALL
"""The type of the op that rounds: Paddle's own op that calls a Python function."""

_DTYPES = ("dtype", "in_dtype", "out_dtype")
"""The attributes of ops that name the type of what they write or read."""

_NO_ROLE = 1 << 12
"""The role of ops to which none was given."""

_TRAPS = numerics.Traps(inv=True, div0=True, oflo=True)


def to_device(array: Any, declared: Any) -> np.ndarray:
    """What the device's memory holds of a host's array: float16 is rounded and stored in float32."""
    values = np.asarray(array)
    if not _is_half(declared):
        return values
    return numerics.to_float16(values).astype(np.float32)


def to_host(array: Any, declared: Any) -> np.ndarray:
    """What the host gets of the device's array: a float16 variable arrives as float16."""
    held = np.asarray(array)
    if not _is_half(declared):
        return held
    return numerics.to_float16(held)


def _is_half(declared: Any) -> bool:
    """Whether a type, as Paddle, NumPy or a string names it, is float16."""
    return declared == FLOAT16 or (
        not isinstance(declared, core.VarDesc.VarType) and np.dtype(declared) == np.dtype(np.float16)
    )


def halves(program: Any) -> FrozenSet[str]:
    """The names of the variables that a program declares float16."""
    return frozenset(var.name() for block in _blocks(program.desc) for var in block.all_vars() if _has_half(var))


def _has_half(var: Any) -> bool:
    return var.type() == core.VarDesc.VarType.LOD_TENSOR and var.dtype() == FLOAT16


def follow_the_scope(program: Any, scope: Any) -> None:
    """Declare float16 every weight that the host holds so: it is sent, kept and brought home in that type.

    A program that was traced before its Layer was turned into float16 still declares float32.
    """
    for var in program.list_vars():
        if not var.persistable or var.type != core.VarDesc.VarType.LOD_TENSOR or var.dtype != FLOAT32:
            continue
        variable = scope.find_var(var.name)
        if variable is not None and variable.get_tensor()._dtype() == FLOAT16:
            var.desc.set_dtype(FLOAT16)


def realise(program: Any, strategy: Any) -> Any:
    """The program in float32 that rounds where the given one computes in float16; the same one where none is."""
    names = halves(program)
    if not names:
        return program
    desc = core.ProgramDesc(program.desc)
    round_of = _rounding(strategy)
    for block in _blocks(desc):
        if partials.are_half(strategy):
            partials.replace(block, names)
        _widen(block)
        _insert(block, names, round_of)
    return subprograms.Described(desc)


def _blocks(desc: Any) -> Iterator[Any]:
    return (desc.block(index) for index in range(desc.num_blocks()))


def _widen(block: Any) -> None:
    """Declare float32 what was float16, in variables and in attributes."""
    for var in block.all_vars():
        if _has_half(var):
            var.set_dtype(FLOAT32)
    for index in range(block.op_size()):
        op = block.op(index)
        for name in _DTYPES:
            if op.has_attr(name) and op.attr(name) == int(FLOAT16):
                op._set_attr(name, int(FLOAT32))


def _is_made_by_the_device(op: Any) -> bool:
    """Whether an op is none of the user's program, but was added to accumulate, reduce or divide."""
    return bool(op.has_attr(ROLE) and op.attr(ROLE) == _NO_ROLE)


def _insert(block: Any, names: FrozenSet[str], round_of: Callable[[int], int]) -> None:
    """Put a rounding op after every op that writes float16."""
    for index in reversed(range(block.op_size())):
        op = block.op(index)
        slots = [slot for slot in op.output_names() if slot not in _KEPT]
        written = sorted({name for slot in slots for name in op.output(slot) if name in names})
        # Gradients are divided on their way into the update, which computes in float32.
        divides = op.type() == "scale" and _is_made_by_the_device(op)
        if not written or op.type() in _EXACT or divides:
            continue
        rounding = block._insert_op(index + 1)
        rounding.set_type(ROUNDING)
        rounding.set_input("X", written)
        rounding.set_output("Out", written)
        rounding._set_attr("forward_callable_id", round_of(index))
        rounding._set_attr("backward_callable_id", subprograms.NO_FUNCTION)
        rounding._set_attr("backward_skip_vars", [])
        place_like(rounding, op)


_EXACT = frozenset(
    {"feed", "fetch", "share_data", "reshape2", "transpose2", "squeeze2", "unsqueeze2", "flatten_contiguous_range"}
)
"""Ops that only move values: what was rounded before them needs no rounding after them."""


_KEPT = frozenset({"XShape", "InnerCache"})
"""Outputs that ops keep for their gradients: shapes without values, and inputs that were moved."""


def _rounding(strategy: Any) -> Callable[[int], int]:
    """For the number of an op, the id under which Paddle knows the function that rounds its results."""
    traps = _TRAPS if strategy.value("enable_floating_point_checks") else numerics.NO_TRAPS
    if not strategy.value("enable_stochastic_rounding"):
        return lambda index: _nearest(traps)
    seed = strategy.seed or 0
    return lambda index: subprograms.register(_AtRandom(seed, index, traps))


@functools.lru_cache(maxsize=None)
def _nearest(traps: numerics.Traps) -> int:
    """Rounding to nearest has no state: one function serves every program."""

    def rounded(*tensors: Any) -> List[Any]:
        return [_held(_rounded(np.array(held), traps=traps)) for held in tensors]

    return subprograms.register(rounded)


class _AtRandom:
    """Rounds the results of one op at random.

    The draw depends on the seed, on the op, on the values and on how often the op has run. Every replica has a program
    of its own: those that round the same update draw the same, so that their weights stay equal.
    """

    def __init__(self, seed: int, op: int, traps: numerics.Traps) -> None:
        self.seed, self.op, self.traps = seed, op, traps
        self.calls = itertools.count()

    def __call__(self, *tensors: Any) -> List[Any]:
        turn = next(self.calls)
        results = []
        for place, held in enumerate(tensors):
            array = np.array(held)
            draw = np.random.default_rng((self.seed, self.op, place, turn, zlib.crc32(array.tobytes())))
            results.append(_held(_rounded(array, seed=draw, traps=self.traps)))
        return results


def _rounded(array: np.ndarray, **how: Any) -> np.ndarray:
    """The array in float16; what traps stops the run as the device does."""
    try:
        return numerics.to_float16(array, **how)
    except numerics.NumericsError as error:
        raise PopartError(f"Floating point exception: {error}") from error


def _held(rounded: np.ndarray) -> Any:
    """Rounded values in the float32 storage of a realised program."""
    return subprograms.tensor(rounded.astype(np.float32))
