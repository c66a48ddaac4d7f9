"""Traces one call of a module with torch's tracer alone.

``torch.export`` makes a program for files and other runtimes of the same trace: signatures, guards, verified copies.
The device needs the graph only, so the tracer is called as ``torch.export`` calls it and the rest is left out.
"""

from __future__ import annotations

import contextlib
import gc
import re
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple
from unittest import mock

import torch
import torch.utils._pytree as pytree
from torch._dispatch.python import enable_python_dispatcher
from torch._export.non_strict_utils import _NonStrictTorchFunctionHandler, _override_builtin_ops
from torch._functorch.aot_autograd import _detect_attribute_assignment
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export._trace import _ignore_backend_decomps
from torch.fx import Graph, GraphModule, Node
from torch.fx import traceback as fx_traceback
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.utils.stateless import _reparametrize_module

_WITHOUT_EFFECT = frozenset({torch.ops.aten.detach.default})
"""Operations that the tracer itself adds; where nothing reads their results, they are left out."""


def trace(call: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> Tuple[GraphModule, pytree.TreeSpec]:
    """The graph of ``call(*tensors)`` and the structure of what it returns; nothing is computed.

    Weights are ``get_attr`` nodes under the names that the module has for them, with constants after them; inputs are
    placeholders ``tensors_0``, ``tensors_1`` and so on.
    """
    weights = {
        **dict(call.named_parameters(remove_duplicate=False)),
        **dict(call.named_buffers(remove_duplicate=False)),
    }
    mode = FakeTensorMode(
        shape_env=ShapeEnv(tracked_fakes=[], trace_asserts=True), allow_non_fake_inputs=True, export=True
    )
    fakes = _Fakes(mode)
    arguments = [fakes(value) for value in [*weights.values(), *tensors]]
    structure: List[pytree.TreeSpec] = []

    def flat(*values: Any) -> Tuple[Any, ...]:
        with _reparametrize_module(call, dict(zip(weights, values))):
            leaves, spec = pytree.tree_flatten(call(*values[len(weights) :]))
        structure.append(spec)
        return tuple(leaves)

    flat._orig_mod = call  # type: ignore[attr-defined]  # the root of the module stacks that the tracer records
    with _tracing(mode, call):
        # Inputs come from no line; a trace of the stack would be made for each.
        fx_traceback.current_meta["stack_trace"] = "the call"
        # The graph is cut into stages, which run; the code of the whole would be written for nobody.
        with _use_lazy_graph_module(True):
            module = make_fx(flat, pre_dispatch=True, record_module_stack=True, _disable_torch_fn_metadata_mode=True)(
                *arguments
            )
    _drop_unread(module.graph)
    _name(module, call, weights, fakes)
    return module, structure[-1]


class _Fakes:
    """Tensors without values, the same one for the same tensor."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._known: Dict[int, Any] = {}

    def __call__(self, value: torch.Tensor) -> Any:
        if id(value) not in self._known:
            self._known[id(value)] = self._mode.from_tensor(value, static_shapes=True)
        return self._known[id(value)]


@contextlib.contextmanager
def _without_collecting() -> Iterator[None]:
    """No cycle of garbage is collected: an executor in one would bring its weights home, and the tracer note it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextlib.contextmanager
def _tracing(mode: FakeTensorMode, call: torch.nn.Module) -> Iterator[None]:
    """What ``torch.export`` sets up around the tracer."""
    enabled = torch.is_grad_enabled()
    surroundings = (
        _without_collecting(),
        mode,
        _NonStrictTorchFunctionHandler(),
        tracing(TracingContext(mode)),
        _override_builtin_ops(),
        mock.patch.multiple(torch.compiler, _is_compiling_flag=True, _is_exporting_flag=True),
        enable_python_dispatcher(),
        _ignore_backend_decomps(),
        _detect_attribute_assignment(call),
    )
    try:
        with contextlib.ExitStack() as stack:
            for surrounding in surroundings:
                stack.enter_context(surrounding)
            yield
    finally:
        torch._C._set_grad_enabled(enabled)


def _drop_unread(graph: Graph) -> None:
    for node in reversed(graph.nodes):
        if node.target in _WITHOUT_EFFECT and not node.users:
            graph.erase_node(node)


def _name(module: GraphModule, call: torch.nn.Module, weights: Mapping[str, torch.Tensor], fakes: _Fakes) -> None:
    """Give weights, constants and inputs their names, in this order at the head of the graph."""
    graph = module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    constants = [node for node in graph.nodes if node.op == "get_attr"]
    inputs = placeholders[len(weights) :]
    first = inputs[0] if inputs else next(node for node in graph.nodes if node.op != "placeholder")
    for (name, value), node in zip(weights.items(), placeholders):
        _assign(module, name, value)
        with graph.inserting_before(node):
            _replace(graph, node, name)
    known = _tensor_attributes(call)
    lifted: Dict[int, Node] = {}
    unnamed = 0
    for node in constants:
        value = getattr(module, str(node.target))
        if not isinstance(value, torch.Tensor):
            continue
        if id(value) in lifted:
            node.replace_all_uses_with(lifted[id(value)])
            graph.erase_node(node)
        elif not _unread(graph, node):
            target = known.get(id(value)) or _inside(node, f"lifted_tensor_{unnamed}")
            unnamed += id(value) not in known
            node.meta["val"] = fakes(value)
            _assign(module, target, value.detach())
            with graph.inserting_before(first):
                lifted[id(value)] = _replace(graph, node, target)
    for number, node in enumerate(inputs):
        node.name = node.target = f"tensors_{number}"
        node.meta.pop("stack_trace", None)


def _replace(graph: Graph, node: Node, target: str) -> Node:
    """Put an attribute in the place of a node."""
    attribute = graph.create_node("get_attr", target, name=re.sub(r"\W", "_", target))
    attribute.meta = {
        name: value for name, value in node.meta.items() if name not in ("nn_module_stack", "stack_trace")
    }
    node.replace_all_uses_with(attribute)
    graph.erase_node(node)
    return attribute


def _unread(graph: Graph, node: Node) -> bool:
    """Whether nothing reads a constant; it is left out then, with the copy that the tracer makes of it."""
    chain = [node]
    while len(chain[-1].users) == 1 and next(iter(chain[-1].users)).target in _LIFTING:
        chain.append(next(iter(chain[-1].users)))
    if chain[-1].users:
        return False
    for dead in reversed(chain):
        graph.erase_node(dead)
    return True


_LIFTING = frozenset({
    torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.detach_.default,
    torch.ops.aten.detach.default,
})  # fmt: skip


def _tensor_attributes(call: torch.nn.Module) -> Mapping[int, str]:
    """The names of tensors that a module holds without having registered them."""
    names: Dict[int, str] = {}
    for path, part in call.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                names.setdefault(id(value), f"{path}.{name}" if path else name)
    return names


def _inside(node: Node, name: str) -> str:
    """The name below that of the module that was running."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return f"{stack[-1][0]}.{name}" if stack and stack[-1][0] else name


def _assign(module: torch.nn.Module, target: str, value: torch.Tensor) -> None:
    *path, name = target.split(".")
    for part in path:
        if not hasattr(module, part):
            setattr(module, part, torch.nn.Module())
        module = getattr(module, part)
    if isinstance(value, torch.nn.Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)
