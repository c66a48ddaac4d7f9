"""Random numbers on the device: every dropout draws by its number in the program and by its slot, however it is cut."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator, List, Optional

import numpy as np
from paddle.base import core, framework

from ipu_conformance.emulator.faults.decisions import paddle_execution as decide
from ipu_conformance.emulator.paddle.compile import subprograms

SEED = "@SEED@"
"""What the name of the variable begins with that holds a dropout's seed."""
_DRAWING = frozenset({"uniform_random", "gaussian_random", "truncated_gaussian_random", "randint", "bernoulli"})
_lock = threading.Lock()
"""Held while Paddle's one generator stands in for that of a slot."""
_MASK = 0xFFFFFFFFFFFFFFFF


def seeded(program: Any) -> Any:
    """A copy of a program whose dropouts read their seeds from variables."""
    desc = core.ProgramDesc(program.desc)
    block = desc.block(0)
    for number, op in enumerate(_dropouts(block)):
        var = block.var(f"{SEED}{number}".encode())
        var.set_type(core.VarDesc.VarType.LOD_TENSOR)
        var.set_dtype(core.VarDesc.VarType.INT32)
        var.set_shape([1])
        var.set_stop_gradient(True)
        op.set_input("Seed", [var.name()])
    return framework.Program._construct_from_desc(desc)


def _dropouts(block: Any) -> List[Any]:
    return [op for op in map(block.op, range(block.op_size())) if op.type() == "dropout" and not op.attr("is_test")]


def seeds_of(ops: Any) -> List[str]:
    """The variables from which ops read their seeds."""
    return sorted(name for name in subprograms.touched(ops) if name.startswith(SEED))


def draws(ops: Any) -> bool:
    """Whether ops draw from Paddle's one generator."""
    return any(op.type() in _DRAWING for op in ops)


@contextlib.contextmanager
def generator(seed: int) -> Iterator[None]:
    """Ops inside draw from Paddle's generator as if it had been seeded; the user's own draws go on as before."""
    own = core.default_cpu_generator()
    with _lock:
        before = own.get_state()
        own.manual_seed(seed)
        try:
            yield
        finally:
            own.set_state(before)


def base(seed: Optional[int]) -> int:
    """The seed of a program: the strategy's, else that of Paddle's own generator."""
    return int(core.default_cpu_generator().initial_seed()) if seed is None else seed


def value(seed: int, run: int, replica: int, micro_batch: int, name: str) -> np.ndarray:
    """What one dropout is seeded with in one slot."""
    return np.array([number(seed, run, replica, micro_batch, int(name[len(SEED) :]))], np.int32)


def number(seed: int, run: int, replica: int, micro_batch: int, place: int) -> int:
    """The seed of one slot at a place of the program."""
    parts = decide("what a draw depends on", (seed, run, replica, micro_batch, place))
    # Zero would let Paddle draw a seed of its own.
    return mix(*parts) % 0x7FFFFFFE + 1


def mix(seed: int, *parts: int) -> int:
    """A seed from a seed and numbers, without a pattern between neighbours (SplitMix64)."""
    mixed = seed & _MASK
    for part in parts:
        mixed = (mixed + 0x9E3779B97F4A7C15 + part * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        mixed ^= mixed >> 31
    return mixed
