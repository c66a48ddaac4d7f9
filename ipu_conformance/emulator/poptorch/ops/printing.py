"""ipu_print_tensor: prints a tensor, and its gradient, when the device computes them."""

from __future__ import annotations

import json
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.poptorch.compile import capture
from ipu_conformance.emulator.poptorch.ops import control_flow
from ipu_conformance.emulator.poptorch.options.diagnostics import Error

FORMATS: Dict[str, str] = {"auto": "g", "fixed": "f", "scientific": "e", "none": "g"}
"""The vendor's names of float formats, and Python's."""


@torch.library.custom_op(
    "ipu_poptorch::print_tensor",
    mutates_args=(),
    schema="(Tensor tensor, str title, bool gradient, str settings, Tensor? taken) -> Tensor",
)
def print_tensor(
    tensor: torch.Tensor, title: str, gradient: bool, settings: str, taken: Optional[torch.Tensor]
) -> torch.Tensor:
    """Print a tensor and give it back."""
    wanted = taken is None or bool(taken)
    if faults.active:
        wanted = faults.apply("poptorch.operation", wanted, operation="print")
    if wanted:
        # One write, so that lines of replicas that print at the same time do not mix.
        shown = text(tensor, **json.loads(settings))
        sys.stderr.write(f"{title}: {shown}\n" if title else f"{shown}\n")
        sys.stderr.flush()
    return tensor.clone()


@print_tensor.register_fake
def _(tensor: torch.Tensor, title: str, gradient: bool, settings: str, taken: Any) -> torch.Tensor:
    return torch.empty_like(tensor)


def _remember(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    _, ctx.title, ctx.gradient, ctx.settings, ctx.taken = inputs


def _backward(ctx: Any, gradient: torch.Tensor) -> Tuple[Any, ...]:
    wanted = ctx.gradient
    if faults.active:
        wanted = faults.apply("poptorch.operation", wanted, operation="print gradient")
    if wanted:
        gradient = print_tensor(gradient, f"Gradient__{ctx.title}", False, ctx.settings, ctx.taken)
    return gradient, None, None, None, None


print_tensor.register_autograd(_backward, setup_context=_remember)


PRINT = torch.ops.ipu_poptorch.print_tensor.default
"""The operation in a captured graph; one whose result nobody uses is not placed, and hence not run."""


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

    The result must be used in the tensor's stead: a print whose result nobody uses is optimized away. A tensor with
    more than ``summarise_threshold`` elements shows ``edge_items`` at either end of every dimension.
    """
    if not isinstance(tensor, torch.Tensor):
        raise Error(f"{type(tensor).__name__} was given to poptorch.ipu_print_tensor: use a tensor")
    if float_format not in FORMATS:
        raise Error(f"The float format {float_format!r} was given: use one of {', '.join(FORMATS)}")
    if len(open_bracket) != 1 or len(close_bracket) != 1 or len(separator) != 1:
        raise Error("Brackets and separator of poptorch.ipu_print_tensor are one character each")
    settings = {
        "summarise_threshold": summarise_threshold,
        "edge_items": edge_items,
        "max_line_width": max_line_width,
        "digits": digits,
        "float_format": float_format,
        "separator": separator,
        "brackets": open_bracket + close_bracket,
    }
    if not capture.is_capturing():
        return tensor
    printed: torch.Tensor = print_tensor(
        tensor, title, print_gradient, json.dumps(settings), control_flow.branch_taken()
    )
    return printed


def text(
    tensor: torch.Tensor,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = " ",
    brackets: str = "[]",
) -> str:
    """A tensor as text."""
    tensor = tensor.detach()
    one: Callable[[Any], str] = str
    if tensor.is_floating_point():
        one = f"{{:.{digits}{FORMATS[float_format]}}}".format
    elif tensor.dtype == torch.bool:
        one = lambda value: str(int(value))  # noqa: E731
    edge = edge_items if tensor.numel() > summarise_threshold else 0
    return _nested(tensor, one, edge, max_line_width, separator, brackets, 1)


def _nested(
    tensor: torch.Tensor,
    one: Callable[[Any], str],
    edge: int,
    width: int,
    separator: str,
    brackets: str,
    depth: int,
) -> str:
    if tensor.dim() == 0:
        return one(tensor.item())
    length = tensor.shape[0]
    shown: List[Optional[int]] = list(range(length))
    if edge and length > 2 * edge:
        shown = [*range(edge), None, *range(length - edge, length)]
    parts = [
        "..." if index is None else _nested(tensor[index], one, edge, width, separator, brackets, depth + 1)
        for index in shown
    ]
    indent = "\n" + " " * depth
    joined = (
        _wrapped(parts, separator, width, indent) if tensor.dim() == 1 else (separator.rstrip() + indent).join(parts)
    )
    return brackets[0] + joined + brackets[1]


def _wrapped(parts: List[str], separator: str, width: int, indent: str) -> str:
    """The parts in lines that stay within the width where they can."""
    lines: List[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(separator) + len(part) <= width:
            lines[-1] += separator + part
        else:
            lines.append(part)
    return (separator.rstrip() + indent).join(lines)
