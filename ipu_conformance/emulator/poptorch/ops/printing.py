"""ipu_print_tensor: prints a tensor, and its gradient, when the device computes them."""

from __future__ import annotations

import json
import sys
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Tuple

import torch

from ipu_conformance.emulator.poptorch.compile import capture
from ipu_conformance.emulator.poptorch.ops import control_flow
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.refusals import ops as refusals

FORMATS: Mapping[str, str] = {"auto": "g", "fixed": "f", "scientific": "e", "none": "g"}
"""The vendor's names of float formats, and Python's."""


class Layout(NamedTuple):
    """How a tensor is written out, by the vendor's names."""

    summarise_threshold: int = 1000
    edge_items: int = 3
    max_line_width: int = 80
    digits: int = 4
    float_format: str = "auto"
    separator: str = " "
    open_bracket: str = "["
    close_bracket: str = "]"


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
        gradient = print_tensor(gradient, f"Gradient__{ctx.title}", False, ctx.layout, ctx.taken)
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
    separator: str = " ",
    open_bracket: str = "[",
    close_bracket: str = "]",
) -> torch.Tensor:
    """Print a tensor to standard error whenever the device computes it, and its gradient in the backward pass.

    The result must be used instead of the tensor: a print whose result nobody uses is optimized away. A tensor with
    more than ``summarise_threshold`` elements shows ``edge_items`` at either end of every dimension.
    """
    if not isinstance(tensor, torch.Tensor):
        raise Error(f"{type(tensor).__name__} was given to poptorch.ipu_print_tensor: use a tensor")
    refusals.FLOAT_FORMAT(float_format=float_format, known=FORMATS)
    if len(open_bracket) != 1 or len(close_bracket) != 1 or len(separator) != 1:
        raise Error("Brackets and separator of poptorch.ipu_print_tensor are one character each")
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
    element: Callable[[Any], str] = str
    if tensor.is_floating_point():
        element = f"{{:.{layout.digits}{FORMATS[layout.float_format]}}}".format
    elif tensor.dtype == torch.bool:
        element = lambda value: str(int(value))  # noqa: E731
    edge = layout.edge_items if tensor.numel() > layout.summarise_threshold else 0
    return _nested(tensor, element, edge, layout, 1)


def _nested(tensor: torch.Tensor, element: Callable[[Any], str], edge: int, layout: Layout, depth: int) -> str:
    if tensor.dim() == 0:
        return element(tensor.item())
    length = tensor.shape[0]
    shown: List[Optional[int]] = list(range(length))
    if edge and length > 2 * edge:
        shown = [*range(edge), None, *range(length - edge, length)]
    parts = ["..." if index is None else _nested(tensor[index], element, edge, layout, depth + 1) for index in shown]
    indent = "\n" + " " * depth
    separator = layout.separator
    if tensor.dim() == 1:
        joined = _wrapped(parts, separator, layout.max_line_width, indent)
    else:
        joined = (separator.rstrip() + indent).join(parts)
    return layout.open_bracket + joined + layout.close_bracket


def _wrapped(parts: List[str], separator: str, width: int, indent: str) -> str:
    """The parts in lines that stay within the width where they can."""
    lines: List[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(separator) + len(part) <= width:
            lines[-1] += separator + part
        else:
            lines.append(part)
    return (separator.rstrip() + indent).join(lines)
