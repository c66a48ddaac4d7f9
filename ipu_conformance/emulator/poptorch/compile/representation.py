"""Modules as text, with the blocks that begin at them."""

from __future__ import annotations

import torch


def module_repr(m: torch.nn.Module) -> str:
    """The representation of a module where each layer that begins a block says which one."""
    if not isinstance(m, torch.nn.Module):
        raise AssertionError(f"{m!r} was given to module_repr: use a torch.nn.Module")
    own = m.extra_repr()
    children = [f"({name}): {module_repr(child)}" for name, child in m.named_children()]
    if not children:
        return f"{_begun(m)}{m._get_name()}({own})"
    lines = [*(own.splitlines()), *(line for child in children for line in child.splitlines())]
    inside = "".join(f"  {line}\n" for line in lines)
    return f"{_begun(m)}{m._get_name()}(\n{inside})"


def _begun(m: torch.nn.Module) -> str:
    block = getattr(m, "_poptorch_block", None)
    return "" if block is None else f"BeginBlock[user_id={block[0]!r}, ipu_id={block[1]}] "
