"""ipu_print_tensor: prints a tensor, and its gradient, when the device computes them."""

from __future__ import annotations

import json
import math
import sys
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ipu_conformance.emulator.poptorch.compile import capture
from ipu_conformance.emulator.poptorch.ops import control_flow
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.refusals import ops as refusals

FORMATS = ("auto", "fixed", "scientific", "none")
"""The vendor's names of float formats."""


class Layout(NamedTuple):
    """How a tensor is written out, by the vendor's names."""

    summarise_threshold: int = 1000
    edge_items: int = 3
    max_line_width: int = 80
    digits: int = 4
    float_format: str = "auto"
    separator: str = ", "
    open_bracket: str = "("
    close_bracket: str = ")"


@torch.library.custom_op(
    "ipu_poptorch::print_tensor",
    mutates_args=(),
    schema="(Tensor tensor, str title, bool gradient, str layout, Tensor? taken) -> Tensor",
)
def print_tensor(
    tensor: torch.Tensor, title: str, gradient: bool, layout: str, taken: Optional[torch.Tensor]
) -> torch.Tensor:
    """Print a tensor and give it back."""
    if taken is None or bool(taken):
        shown = text(tensor, Layout(*json.loads(layout)))
        _write_line(f"{title}: {shown}" if title else shown)
    return tensor.clone()


def _write_line(line: str) -> None:
    """One write, so that lines of replicas that print at the same time do not mix."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@print_tensor.register_fake
def _(tensor: torch.Tensor, title: str, gradient: bool, layout: str, taken: Any) -> torch.Tensor:
    return torch.empty_like(tensor)


def _remember(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    _, ctx.title, ctx.gradient, ctx.layout, ctx.taken = inputs


def _backward(ctx: Any, gradient: torch.Tensor) -> Tuple[Any, ...]:
    if ctx.gradient:
        gradient = print_tensor(gradient, f"{ctx.title}_gradient", False, ctx.layout, ctx.taken)
    return gradient, None, None, None, None


print_tensor.register_autograd(_backward, setup_context=_remember)


PRINT = torch.ops.ipu_poptorch.print_tensor.default
"""The operation in a captured graph; one whose result is unused is neither placed nor run."""


def ipu_print_tensor(
    tensor: torch.Tensor,
    title: str = "",
    print_gradient: bool = True,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = ", ",
    open_bracket: str = "(",
    close_bracket: str = ")",
) -> torch.Tensor:
    """Print a tensor to standard error whenever the device computes it, and its gradient in the backward pass.

    The result must be used instead of the tensor: a print whose result nobody uses is optimized away. A tensor with
    more than ``summarise_threshold`` elements shows ``edge_items`` at either end of every dimension. All elements have
    one format, of ``digits`` digits, and one width; 0 turns the threshold, the width of lines or the format off.
    """
    refusals.TENSOR(name="ipu_print_tensor", value=tensor, kind=torch.Tensor)
    refusals.FLOAT_FORMAT(float_format=float_format, known=FORMATS)
    if len(open_bracket) != 1 or len(close_bracket) != 1 or not separator:
        raise Error("Brackets of poptorch.ipu_print_tensor are one character each, and its separator is not empty")
    if not capture.is_capturing():
        return tensor
    layout = Layout(
        summarise_threshold, edge_items, max_line_width, digits, float_format, separator, open_bracket, close_bracket
    )
    printed: torch.Tensor = print_tensor(tensor, title, print_gradient, json.dumps(layout), control_flow.branch_taken())
    return printed


def text(tensor: torch.Tensor, layout: Layout) -> str:
    """A tensor as text."""
    tensor = tensor.detach()
    edge = layout.edge_items if 0 < layout.summarise_threshold < tensor.numel() else 0
    values = iter(_aligned(_shown(tensor, edge), layout))
    return _nested(tensor, values, edge, layout, 1)


def _shown(tensor: torch.Tensor, edge: int) -> List[Any]:
    """The elements that a text holds, in its order."""
    if tensor.dim() == 0:
        return [tensor.item()]
    return [value for part in _parts(tensor, edge) if part is not None for value in _shown(part, edge)]


def _parts(tensor: torch.Tensor, edge: int) -> List[Optional[torch.Tensor]]:
    """The parts along the first dimension; None stands for those that are left out."""
    length = tensor.shape[0]
    if not edge or length <= 2 * edge:
        return list(tensor)
    return [*tensor[:edge], None, *tensor[length - edge :]]


def _aligned(values: Sequence[Any], layout: Layout) -> List[str]:
    """All elements in one format and of one width; without digits each is as short as it can be."""
    if not layout.digits or layout.float_format == "none" or not values or not isinstance(values[0], float):
        texts = [str(int(value)) if isinstance(value, int) else f"{value:g}" for value in values]
    else:
        written = _format(values, layout.float_format, layout.digits)
        texts = [written.format(value) for value in values]
    width = max(map(len, texts), default=0) if layout.digits else 0
    return [each.rjust(width) for each in texts]


def _format(values: Sequence[float], name: str, digits: int) -> str:
    """The format of so many digits: fixed where all numbers fit in them, unless one is asked for."""
    sizes = [abs(value) for value in values if value and math.isfinite(value)] or [1.0]
    before = max(1, math.floor(math.log10(max(sizes))) + 1)
    if name == "scientific" or (name == "auto" and (before > digits or min(sizes) < 10.0**-digits)):
        return f"{{:.{digits - 1}e}}"
    return f"{{:.{max(0, digits - before)}f}}"


def _nested(tensor: torch.Tensor, values: Iterator[str], edge: int, layout: Layout, depth: int) -> str:
    if tensor.dim() == 0:
        return next(values)
    parts = ["..." if part is None else _nested(part, values, edge, layout, depth + 1) for part in _parts(tensor, edge)]
    indent = "\n" + " " * depth
    separator = layout.separator
    if tensor.dim() == 1:
        joined = _wrapped(parts, separator, layout.max_line_width, indent)
    else:
        joined = (separator.rstrip() + indent).join(parts)
    return layout.open_bracket + joined + layout.close_bracket


def _wrapped(parts: List[str], separator: str, width: int, indent: str) -> str:
    """The parts in lines that stay within the width where they can; a width of 0 is no limit."""
    lines: List[str] = []
    for part in parts:
        if lines and (not width or len(lines[-1]) + len(separator) + len(part) <= width):
            lines[-1] += separator + part
        else:
            lines.append(part)
    return (separator.rstrip() + indent).join(lines)
