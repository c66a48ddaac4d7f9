"""Operations of PopTorch that are made of torch's: slices at a place known on the device only, products in pieces."""

from __future__ import annotations

import itertools
import math
from typing import List, Optional, Sequence, Union

import torch

from ipu_conformance.emulator.poptorch.compile import blocks
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.options.enums import MatMulSerializationMode
from ipu_conformance.emulator.poptorch.refusals import ops as refusals

Batch = Union[Sequence[int], torch.Tensor]


def dynamic_slice(tensor: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int) -> torch.Tensor:
    """``size`` positions along ``dim`` from ``start``, a tensor, every ``step``-th of them.

    A slice that reaches beyond the end goes on at the beginning.
    """
    refusals.TENSOR(name="dynamic_slice", value=tensor, kind=torch.Tensor)
    length = _length(tensor, dim, "dynamic_slice")
    _check_start(start, "dynamic_slice")
    refusals.SLICE_SIZE(size=size, length=length, name="dynamic_slice")
    if not isinstance(step, int) or step < 1:
        raise Error(f"The step {step!r} was given to poptorch.dynamic_slice: use 1 or more")
    with blocks.tagged(blocks.OPERATION, lambda _: ("dynamic_slice", {"dim": dim, "size": size, "step": step})):
        return tensor.index_select(dim, _places(start, size, step, length))


def dynamic_update(input: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> torch.Tensor:
    """A copy of ``input`` in which ``size`` positions along ``dim`` from ``start``, a tensor, are those of ``src``."""
    for value in (input, src):
        refusals.TENSOR(name="dynamic_update", value=value, kind=torch.Tensor)
    length = _length(input, dim, "dynamic_update")
    _check_start(start, "dynamic_update")
    refusals.SLICE_SIZE(size=size, length=length, name="dynamic_update")
    if src.dtype != input.dtype:
        raise Error(f"{src.dtype} was given to update {input.dtype} in poptorch.dynamic_update: use one type for both")
    wanted = [size if axis == dim % input.dim() else extent for axis, extent in enumerate(input.shape)]
    if list(src.shape) != wanted:
        raise Error(f"A source of shape {list(src.shape)} was given to poptorch.dynamic_update: {wanted} is needed")
    with blocks.tagged(blocks.OPERATION, lambda _: ("dynamic_update", {"dim": dim, "size": size})):
        return input.index_copy(dim, _places(start, size, 1, length).to(torch.int64), src)


def _places(start: torch.Tensor, size: int, step: int, length: int) -> torch.Tensor:
    """Every ``step``-th of ``size`` positions from ``start``; beyond the end they go on at the beginning."""
    return (start.reshape(()) + torch.arange(0, size, step)) % length


def _length(tensor: torch.Tensor, dim: int, name: str) -> int:
    if not isinstance(dim, int) or not -tensor.dim() <= dim < tensor.dim():
        raise Error(f"Dimension {dim!r} was given to poptorch.{name} for a tensor of {tensor.dim()} dimensions")
    return int(tensor.shape[dim])


def _check_start(start: torch.Tensor, name: str) -> None:
    if not isinstance(start, torch.Tensor) or start.numel() != 1:
        raise Error(f"poptorch.{name} needs its start as a tensor of one element; slice with a constant instead")
    refusals.SLICE_START(start=start, name=name)


def serializedMatMul(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    mode: MatMulSerializationMode,
    factor: int = 0,
    keep_precision: bool = False,
) -> torch.Tensor:
    """A matrix product in ``factor`` pieces, one after the other.

    The pieces are rows of the left factor (InputChannels), parts of the sum (ReducingDim) or columns of the right
    factor (OutputChannels). With ``keep_precision`` parts of a float16 sum are added in float32.
    """
    if not isinstance(mode, MatMulSerializationMode):
        raise AssertionError(f"{mode!r} was given to poptorch.serializedMatMul: use a poptorch.MatMulSerializationMode")
    if not isinstance(keep_precision, bool):
        raise AssertionError(f"{keep_precision!r} was given to poptorch.serializedMatMul: use True or False")
    if mode == MatMulSerializationMode.Disabled:
        return torch.matmul(lhs, rhs)
    if lhs.dim() < 2 or rhs.dim() < 2:
        raise Error("poptorch.serializedMatMul was given a vector: both factors have two or more dimensions")
    extents = {
        MatMulSerializationMode.InputChannels: lhs.shape[-2],
        MatMulSerializationMode.ReducingDim: lhs.shape[-1],
        MatMulSerializationMode.OutputChannels: rhs.shape[-1],
    }
    extent = int(extents[mode])
    refusals.PIECES(factor=factor, extent=extent)
    settings = {"mode": mode.value, "factor": factor, "keep_precision": keep_precision}
    with blocks.tagged(blocks.OPERATION, lambda _: ("serializedMatMul", settings)):
        if mode == MatMulSerializationMode.InputChannels:
            return torch.cat([part @ rhs for part in lhs.chunk(factor, dim=-2)], dim=-2)
        if mode == MatMulSerializationMode.OutputChannels:
            return torch.cat([lhs @ part for part in rhs.chunk(factor, dim=-1)], dim=-1)
        return _sum_of_parts(lhs.chunk(factor, dim=-1), rhs.chunk(factor, dim=-2), keep_precision)


def _sum_of_parts(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor], keep_precision: bool) -> torch.Tensor:
    widen = keep_precision and left[0].dtype == torch.float16
    total: Optional[torch.Tensor] = None
    for rows, columns in zip(left, right):
        part = rows.float() @ columns.float() if widen else rows @ columns
        total = part if total is None else total + part
    assert total is not None
    return total.half() if widen else total


def fps(src: torch.Tensor, ptr: Sequence[int], ratio: float = 0.5, random_start: bool = False) -> torch.Tensor:
    """Farthest point sampling: of every batch, the points that are each farthest from those taken before.

    ``ptr`` holds where the batches begin and where the last one ends. The share ``ratio`` of each batch is taken,
    rounded up, starting with its first point or one at random. The result holds indices into ``src``.
    """
    bounds = [int(bound) for bound in ptr]
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != src.shape[0] or sorted(set(bounds)) != bounds:
        raise Error(f"{bounds} was given to poptorch.fps for {src.shape[0]} points: ptr rises from 0 to their number")
    refusals.FPS_RATIO(ratio=ratio)
    taken: List[torch.Tensor] = []
    with blocks.tagged(blocks.OPERATION, lambda _: ("fps", {"ratio": ratio})):
        for begin, end in zip(bounds, bounds[1:]):
            taken.extend(_farthest(src[begin:end], math.ceil(ratio * (end - begin)), random_start, begin))
        return torch.stack(taken).to(torch.int32)


def _farthest(points: torch.Tensor, count: int, random_start: bool, offset: int) -> List[torch.Tensor]:
    number = points.shape[0]
    points = points.reshape(number, -1)
    current = torch.randint(0, number, ()) if random_start else torch.zeros((), dtype=torch.int64)
    chosen = [current + offset]
    distance = torch.full((number,), math.inf, dtype=points.dtype)
    for _ in range(count - 1):
        from_current = (points - points.index_select(0, current.reshape(1))).square().sum(1)
        distance = torch.minimum(distance, from_current)
        current = distance.argmax()
        chosen.append(current + offset)
    return chosen


def nearest(
    x: torch.Tensor, y: torch.Tensor, batch_x: Optional[Batch] = None, batch_y: Optional[Batch] = None
) -> torch.Tensor:
    """For every point of ``x`` the index of the nearest point of ``y`` that has the same batch number."""
    refusals.ONE_SET_OF_BATCHES(first=batch_x, second=batch_y)
    x, y = x.reshape(x.shape[0], -1), y.reshape(y.shape[0], -1)
    if x.shape[1] != y.shape[1]:
        raise Error(
            f"Points of {x.shape[1]} and {y.shape[1]} coordinates were given to poptorch.nearest: use one number"
        )
    with blocks.tagged(blocks.OPERATION, lambda _: ("nearest", {})):
        distance = (x.unsqueeze(1) - y.unsqueeze(0)).square().sum(-1)
        if batch_x is not None and batch_y is not None:
            batch_of_x, batch_of_y = _batch(batch_x, x, "batch_x"), _batch(batch_y, y, "batch_y")
            apart = batch_of_x.unsqueeze(1) != batch_of_y.unsqueeze(0)
            distance = distance.masked_fill(apart, math.inf)
        return distance.argmin(1).to(torch.int32)


def _batch(batch: Batch, points: torch.Tensor, name: str) -> torch.Tensor:
    if isinstance(batch, torch.Tensor):
        numbers = batch
    else:
        # Runs of one number are filled on the device; a constant would have to be sent there.
        runs = [(number, len(list(run))) for number, run in itertools.groupby(batch)]
        numbers = torch.cat([torch.full((length,), number) for number, length in runs])
    if numbers.shape != points.shape[:1]:
        raise Error(f"{name} of shape {list(numbers.shape)} was given to poptorch.nearest for {points.shape[0]} points")
    return numbers
