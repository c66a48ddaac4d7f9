"""``paddle.fluid.initializer``: initializers by their old names."""

from __future__ import annotations

from typing import Any, List, Tuple

from ipu_conformance.emulator.paddle.legacy import table
from ipu_conformance.emulator.paddle.legacy.table import Old

_KINDS: Tuple[Tuple[Tuple[str, ...], str, str], ...] = (
    (("Constant", "ConstantInitializer"), "value=0.0, force_cpu=False", "constant.ConstantInitializer"),
    (("Uniform", "UniformInitializer"), "low=-1.0, high=1.0, seed=0, diag_num=0, diag_step=0, diag_val=1.0",
     "uniform.UniformInitializer"),
    (("Normal", "NormalInitializer"), "loc=0.0, scale=1.0, seed=0", "normal.NormalInitializer"),
    (("TruncatedNormal", "TruncatedNormalInitializer"), "loc=0.0, scale=1.0, seed=0",
     "normal.TruncatedNormalInitializer"),
    (("Xavier", "XavierInitializer"), "uniform=True, fan_in=None, fan_out=None, seed=0", "xavier.XavierInitializer"),
    (("MSRA", "MSRAInitializer"), "uniform=True, fan_in=None, seed=0", "kaiming.MSRAInitializer"),
    (("NumpyArrayInitializer",), "value", "assign.NumpyArrayInitializer"),
)  # fmt: skip

ROWS: Tuple[Old, ...] = tuple(
    Old(name, parameters, f"nn.initializer.{work}") for names, parameters, work in _KINDS for name in names
)

_FUNCTIONS = table.functions(ROWS)


def __getattr__(name: str) -> Any:
    return _FUNCTIONS[name] if name in _FUNCTIONS else table.missing("paddle.fluid.initializer", name)


def __dir__() -> List[str]:
    return sorted(_FUNCTIONS)
