"""Attributes that a Program writes as tensors, such as sizes of pictures and axes, given to the ops that read them.

Their values are those of constants, since shapes are fixed when a Program is compiled.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from ipu_conformance.ir.readers.paddle.ops import ATTRIBUTE_TENSORS, LISTS

INTERPOLATIONS = frozenset(f"{kind}_interp_v2" for kind in ("nearest", "linear", "bilinear", "trilinear", "bicubic"))
_LENGTHS = ("out_d", "out_h", "out_w")
_VALUES = ("int32_values", "int64_values", "fp32_values", "values")


class WrittenAttributes:
    """The constants of a Program that were passed so far, by the variables that hold them."""

    def __init__(self) -> None:
        self._numbers: Dict[str, List[float]] = {}

    def note(self, op: Any) -> None:
        """Remember what an op of constants writes, and casts of it; any other op makes its outputs unknown."""
        values = self._numbers.get(op.input("X")[0]) if op.type == "cast" else _written(op)
        for name in op.output_arg_names:
            self._numbers.pop(name, None)
            if values is not None:
                self._numbers[name] = values

    def fold(self, block: Any, op: Any) -> None:
        """Give an op the attributes that constants hold; others stay tensors."""
        for slot, attribute in ATTRIBUTE_TENSORS.get(op.type, {}).items():
            numbers = self._all(_read(op, slot))
            if numbers is not None:
                wanted = [int(number) for number in numbers]
                op.desc._set_attr(attribute, wanted if attribute in LISTS else wanted[0])
                _leave_out(op, slot)
        if op.type in INTERPOLATIONS:
            self._fold_size(block, op)

    def _fold_size(self, block: Any, op: Any) -> None:
        """Give an interpolation its size or its factors."""
        whole, parts, factors = (_read(op, slot) for slot in ("OutSize", "SizeTensor", "Scale"))
        rank = len(block.var(op.input("X")[0]).shape) - 2
        lengths = self._all(whole or parts)
        if lengths is not None and len(lengths) == rank:
            for name, length in zip(_LENGTHS[-rank:], lengths):
                op.desc._set_attr(name, int(length))
            _leave_out(op, "OutSize", "SizeTensor", "Scale")
        elif not whole and not parts and self._all(factors) is not None:
            numbers = [float(factor) for factor in self._numbers[factors[0]]]
            op.desc._set_attr("scale", numbers * rank if len(numbers) == 1 else numbers)
            _leave_out(op, "Scale")

    def _all(self, names: Sequence[str]) -> Optional[List[float]]:
        """The numbers of some variables one after the other, None if one is unknown or there is none."""
        if not names or any(name not in self._numbers for name in names):
            return None
        return [number for name in names for number in self._numbers[name]]


def _written(op: Any) -> Optional[List[float]]:
    if op.type == "assign_value":
        return next((list(op.attr(name)) for name in _VALUES if op.has_attr(name) and op.attr(name)), None)
    if op.type != "fill_constant" or any(_read(op, slot) for slot in ("ShapeTensor", "ShapeTensorList", "ValueTensor")):
        return None
    count = 1
    for length in op.attr("shape"):
        count *= length
    text = op.attr("str_value") if op.has_attr("str_value") else ""
    return [float(text) if text else float(op.attr("value"))] * max(count, 0) if count <= len(_LENGTHS) else None


def _read(op: Any, slot: str) -> List[str]:
    return list(op.input(slot)) if slot in op.input_names else []


def _leave_out(op: Any, *slots: str) -> None:
    for slot in slots:
        if _read(op, slot):
            op.desc.set_input(slot, [])
