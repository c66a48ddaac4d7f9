"""MultiConv: convolutions that the device computes together."""

from __future__ import annotations

import itertools
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch.fx import Node

from ipu_conformance.emulator.poptorch.compile import blocks
from ipu_conformance.emulator.poptorch.options.enums import MultiConvPlanType
from ipu_conformance.emulator.poptorch.refusals import ops as refusals

CONVOLUTIONS = (
    frozenset(
        getattr(torch.ops.aten, name).default
        for name in ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "convolution")
    )
    | frozenset((torch.ops.aten.conv_transpose2d.input, torch.ops.aten.conv_transpose3d.input))
    | frozenset(getattr(torch.ops.aten, name).padding for name in ("conv1d", "conv2d", "conv3d"))
)
_groups = itertools.count()


class MultiConv(blocks.TagScope):
    """Convolutions inside the ``with`` form one group, with settings for all of them or one for each."""

    _key = blocks.OPERATION

    def __init__(self) -> None:
        super().__init__()
        self._settings: Dict[str, Any] = {}
        self._before = 0

    def availableMemoryProportions(self, value: Union[float, Sequence[float]]) -> MultiConv:
        """The share of memory that each convolution may use in between."""
        for share in _listed(value):
            if not isinstance(share, float):
                raise AssertionError(f"Invalid available memory proportion {share!r}: use floats")
        return self._set("availableMemoryProportions", value)

    def partialsTypes(self, value: Union[torch.dtype, Sequence[torch.dtype]]) -> MultiConv:
        """The types in which partial sums are kept."""
        for dtype in _listed(value):
            if dtype not in (torch.float, torch.half):
                raise ValueError(f"{dtype!r} was given to partialsTypes: use torch.float or torch.half")
        return self._set("partialsTypes", value)

    def planType(self, value: MultiConvPlanType) -> MultiConv:
        """Whether the convolutions run side by side or one after the other."""
        if not isinstance(value, MultiConvPlanType):
            raise AssertionError(f"{value!r} was given to planType: use a poptorch.MultiConvPlanType")
        return self._set("planType", value)

    def perConvReservedTiles(self, value: int) -> MultiConv:
        """The tiles set aside for each convolution."""
        if not isinstance(value, int):
            raise AssertionError(f"{value!r} was given to perConvReservedTiles: use a whole number")
        return self._set("perConvReservedTiles", value)

    def cycleBackOff(self, value: float) -> MultiConv:
        """How much slower than the fastest plan a convolution may be."""
        if not isinstance(value, float):
            raise AssertionError(f"{value!r} was given to cycleBackOff: use a float")
        return self._set("cycleBackOff", value)

    def enableConvDithering(self, value: Union[bool, Sequence[bool]]) -> MultiConv:
        """Whether each convolution begins on a tile of its own choice."""
        for enabled in _listed(value):
            if not isinstance(enabled, bool):
                raise ValueError(f"{enabled!r} was given to enableConvDithering: use True or False")
        return self._set("enableConvDithering", value)

    def _set(self, name: str, value: Any) -> MultiConv:
        self._settings[name] = tuple(value) if isinstance(value, (list, tuple)) else value
        return self

    def __enter__(self) -> MultiConv:
        super().__enter__()
        forward = blocks.current_forward()
        self._before = 0 if forward is None else forward.convolutions
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        super().__exit__(type, value, traceback)
        forward = blocks.current_forward()
        if forward is not None and type is None:
            refusals.EMPTY_MULTICONV(convolutions=forward.convolutions - self._before)

    def _tag(self, outer: Any) -> Any:
        refusals.NESTED_MULTICONV(outer=outer)
        return "MultiConv", {"group": next(_groups), **self._settings}


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def groups(nodes: Sequence[Node]) -> List[Tuple[Dict[str, Any], List[Node]]]:
    """The settings and the convolutions of every group, in order."""
    by_group: Dict[int, Tuple[Dict[str, Any], List[Node]]] = {}
    for node in nodes:
        tag: Optional[Tuple[str, Dict[str, Any]]] = blocks.tag_of(node, blocks.OPERATION)
        name, settings = tag or ("", {})
        if name == "MultiConv" and node.target in CONVOLUTIONS:
            by_group.setdefault(settings["group"], (settings, []))[1].append(node)
    return list(by_group.values())


def check(nodes: Sequence[Node]) -> None:
    """Refuse settings that are not one for each convolution of their group."""
    for settings, members in groups(nodes):
        for name, value in settings.items():
            refusals.MULTICONV_VALUES(name=name, value=value, convolutions=len(members))
