"""Turns one call of the user's model into a graph of ATen operations, with its losses found and its blocks marked."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import (
    Any,
    Callable,
    ContextManager,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx import traceback as fx_traceback
from torch.nn.utils.stateless import _reparametrize_module
from torch.overrides import TorchFunctionMode

from ipu_conformance.emulator.poptorch.compile import blocks, no_grad, slicing, substitutes
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.run.arguments import know_containers

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_NOT_NAMED_LOSS = ("cross_entropy", "kl_div", "binary_cross_entropy", "binary_cross_entropy_with_logits")


def _torch_losses() -> FrozenSet[Callable[..., Any]]:
    """Every loss function of torch.nn.functional; each is a loss without being marked as one."""
    return frozenset(
        function
        for name, function in vars(F).items()
        if callable(function) and (name.endswith("_loss") or name in _NOT_NAMED_LOSS)
    )


_CONVOLUTIONS = frozenset(function for name, function in vars(torch).items() if name.startswith("conv"))


class LossCollector(TorchFunctionMode):
    """Remembers what every loss returned while a model is captured; a loss inside a loss is part of the outer one."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: List[torch.Tensor] = []
        self._loss_functions = _torch_losses()
        self._offsets = slicing.Offsets()

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Optional[Mapping[str, Any]] = None
    ) -> Any:
        fx_traceback.current_meta["stack_trace"] = _call_stack(sys._getframe(1))
        forward = blocks.current_forward()
        if function in _CONVOLUTIONS and forward is not None:
            forward.convolutions += 1
        if function is torch.Tensor.__getitem__ and slicing.is_on_the_device(args[1]):
            return slicing.sliced(args[0], args[1], self._offsets)
        call, args, keywords = substitutes.captured(function, args, dict(kwargs or {}))
        result = call(*args, **keywords)
        self._offsets.note(function, args, result)
        if function in self._loss_functions:
            self.losses.append(result)
        return result


def _call_stack(frame: Optional[FrameType]) -> str:
    """The lines on the way from ``_Call.forward`` to a frame, innermost last, in the words of a traceback.

    The tracer would look up the source of every line of the whole program's stack, for every operation.
    """
    lines: List[str] = []
    while frame is not None and frame.f_code is not _Call.forward.__code__:
        lines.append(f'File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}')
        frame = frame.f_back
    return "\n".join(reversed(lines))


_collectors: List[LossCollector] = []


def mark_loss(loss: torch.Tensor) -> None:
    """Register a loss that the user marked; outside a capture there is nothing to do."""
    if _collectors:
        _collectors[-1].losses.append(loss)


def is_capturing() -> bool:
    """Whether a model is being captured right now."""
    return bool(_collectors)


class _Host:
    """The leaves of an output that are tensors of the host; the tracer puts back what forward changes in containers."""

    def __init__(self) -> None:
        self.leaves: Dict[int, torch.Tensor] = {}


class _Call(torch.nn.Module):
    """One call with its non-tensor arguments fixed: tensors in, the model's output and the losses found out."""

    def __init__(self, model: torch.nn.Module, rebuild: Callable[[Sequence[torch.Tensor]], Tuple[Any, Any]]) -> None:
        super().__init__()
        self.model = model
        self._rebuild = rebuild
        self.host = _Host()

    def forward(self, *tensors: torch.Tensor) -> Tuple[Any, List[torch.Tensor]]:
        args, kwargs = self._rebuild(tensors)
        collector = LossCollector()
        before = _held(self.model)
        _collectors.append(collector)
        try:
            with blocks.new_forward(), collector:
                output = self.model(*args, **kwargs)
                know_containers(output)
                self.host.leaves.update(_host_leaves(output))
                self._warn_of_host()
        finally:
            _collectors.pop()
        _check_held(before, _held(self.model))
        return output, collector.losses

    def _warn_of_host(self) -> None:
        for leaf in self.host.leaves.values():
            warnings.warn(f"Output expected to be on the IPU but is on {leaf.device.type}", stacklevel=1)


def _host_leaves(output: Any) -> Iterator[Tuple[int, torch.Tensor]]:
    for number, leaf in enumerate(pytree.tree_leaves(output)):
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, FakeTensor):
            yield number, leaf


def _held(model: torch.nn.Module) -> Dict[str, Tuple[str, torch.Tensor]]:
    """Every parameter and buffer with what it is, by name."""
    parameters = {name: ("parameter", value) for name, value in model.named_parameters(remove_duplicate=False)}
    return {**parameters, **{n: ("buffer", value) for n, value in model.named_buffers(remove_duplicate=False)}}


def _check_held(before: Mapping[str, Tuple[str, torch.Tensor]], after: Mapping[str, Tuple[str, torch.Tensor]]) -> None:
    """Raise Error if ``forward`` put something else in the place of a weight, or took it away."""
    for name, (kind, value) in before.items():
        if name not in after:
            raise Error(f"The {kind} {name} was removed from the model by forward: the device cannot follow that")
        if after[name][1] is not value:
            raise Error(
                f"The {kind} {name} was reassigned by forward: change its values in place, for example with copy_, "
                "so that the device holds the same tensor"
            )


@dataclass(frozen=True)
class Captured:
    """The graph of one call. Weights are named as the user's model names them, inputs are numbered."""

    module: GraphModule
    inputs: Tuple[str, ...]
    weights: Mapping[str, str]
    """Each ``get_attr`` node's name and the name of its parameter or buffer in the user's model."""
    outputs: Tuple[Optional[Node], ...]
    """The node of each leaf of the output; None for a constant, which ``constants`` holds."""
    constants: Mapping[int, Any]
    structure: pytree.TreeSpec
    losses: Tuple[Node, ...]
    """The losses that feed no other loss."""

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """The model's output with these leaves."""
        return pytree.tree_unflatten(list(leaves), self.structure)


def capture(
    model: torch.nn.Module,
    args: Tuple[Any, ...],
    kwargs: Dict[str, Any],
    weights: Optional[Mapping[str, torch.Tensor]] = None,
    excludes: Sequence[str] = (),
) -> Captured:
    """Trace ``model(*args, **kwargs)`` on example tensors of one micro-batch; nothing is computed.

    ``weights`` stand in for the model's own while it is traced: they have the types of the device. Raises Error for a
    model whose operations depend on the values of tensors, naming the line in a file that ``excludes`` leaves.
    """
    # Imported when a model is compiled: with the tracer comes torch's compiler, which takes longer than all the rest.
    from ipu_conformance.emulator.poptorch.compile import tracing

    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def rebuild(tensors: Sequence[torch.Tensor]) -> Tuple[Any, Any]:
        filled = list(leaves)
        for place, tensor in zip(places, tensors):
            filled[place] = tensor
        rebuilt: Tuple[Any, Any] = pytree.tree_unflatten(filled, spec)
        return rebuilt

    call = _Call(model, rebuild)
    with _quiet():
        try:
            with _standing_in(model, weights), substitutes.values_unknown(), fx_traceback.preserve_node_meta():
                module, structure = tracing.trace(call, [leaves[place] for place in places])
        except Error:
            raise
        except Exception as error:
            if _is_the_users(error):
                raise
            raise _refusal(error, excludes) from error
    _check_shapes(module, excludes)
    no_grad.dissolve(module)
    return _describe(module, structure, model, call.host.leaves)


def _standing_in(model: torch.nn.Module, weights: Optional[Mapping[str, torch.Tensor]]) -> ContextManager[Any]:
    if weights is None:
        return contextlib.nullcontext()
    trainable = {name: torch.nn.Parameter(value, value.requires_grad) for name, value in weights.items()}
    parameters = {name for name, _ in model.named_parameters()}
    replaced = {name: trainable[name] if name in parameters else value for name, value in weights.items()}
    return _reparametrize_module(model, replaced, tie_weights=True)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the tracer's own warnings and logs, which speak of its internals, from the user; not those of forward."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        logger.setLevel(level)
    for warning in caught:
        if not warning.filename.startswith(_OF_THE_TRACER):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


_OF_THE_TRACER = (f"{Path(torch.__file__).parent}/", contextlib.__file__)
"""Where the tracer's warnings come from: torch, or the scopes that it enters."""


_TRACER = tuple(f"{Path(torch.__file__).parent}/{part}" for part in ("_", "fx/", "export/", "utils/_", "library.py"))
"""Files of torch that trace a model, compute shapes and choose kernels."""
DATA_DEPENDENT = "what it does depends on the value of a tensor, which is known on the device only"


def _is_the_users(error: Exception) -> bool:
    """Whether ``forward``, or a module that it calls, raised an error itself, and no operation inside it did."""
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    raised = innermost.line.lstrip().startswith(("raise ", "assert ")) if innermost.line else False
    if innermost.filename.startswith(_TRACER):
        return False
    # An operation that fails in native code leaves the line that called it as the innermost one.
    return raised or not isinstance(error, (RuntimeError, NotImplementedError))


def _check_shapes(module: GraphModule, excludes: Sequence[str]) -> None:
    """Raise Error for a result whose size, or whose use as a number, depends on the values of a tensor."""
    for node in module.graph.nodes:
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        if any(isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)) for size in sizes):
            raise Error(f"The model cannot be compiled: {called(node, excludes)}: {DATA_DEPENDENT}")


def _refusal(error: Exception, excludes: Sequence[str]) -> Error:
    """Why a model could not be captured, and the line of the user's code."""
    hidden = (f"{Path(torch.__file__).parent}/", str(Path(__file__).parents[1]), *excludes)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not is_excluded(frame.filename, hidden) and not frame.filename.startswith("<")
    ]
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "data-dependent" in reason:
        reason = DATA_DEPENDENT
    where = f" at {frames[-1].filename}:{frames[-1].lineno} ({frames[-1].line})" if frames else ""
    return Error(f"The model cannot be compiled{where}: {reason}")


def _describe(
    module: GraphModule, out_spec: pytree.TreeSpec, model: torch.nn.Module, host: Mapping[int, torch.Tensor]
) -> Captured:
    names: Dict[int, str] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        names.setdefault(id(tensor), name)
    weights: Dict[str, str] = {}
    inputs: List[str] = []
    flat: Sequence[Any] = ()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            inputs.append(node.name)
        elif node.op == "get_attr" and str(node.target).startswith("model."):
            held = _weight_name(str(node.target)[len("model.") :], model, names)
            if held is not None:
                weights[node.name] = held
        elif node.op == "output":
            flat = pytree.tree_leaves(node.args[0])
    output_spec = out_spec.child(0) if hasattr(out_spec, "child") else out_spec.children_specs[0]
    count = output_spec.num_leaves
    made = [leaf if isinstance(leaf, Node) and index not in host else None for index, leaf in enumerate(flat[:count])]
    constants = {index: host.get(index, leaf) for index, leaf in enumerate(flat[:count]) if made[index] is None}
    losses = list(dict.fromkeys(leaf for leaf in flat[count:] if isinstance(leaf, Node)))
    return Captured(module, tuple(inputs), weights, tuple(made), constants, output_spec, _independent(losses))


def _weight_name(target: str, model: torch.nn.Module, names: Mapping[int, str]) -> Optional[str]:
    """The first name of a weight, which may be registered twice; None for any other tensor, which is a constant."""
    value: Any = model
    for part in target.split("."):
        value = getattr(value, part, None)
    return names.get(id(value))


def _independent(losses: Sequence[Node]) -> Tuple[Node, ...]:
    """The losses that no other loss is computed from."""
    feeding = set()
    for loss in losses:
        seen = {loss}
        waiting = list(loss.all_input_nodes)
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            waiting.extend(node.all_input_nodes)
        feeding |= seen - {loss}
    return tuple(loss for loss in losses if loss not in feeding)


_STATISTICS = {
    torch.ops.aten.batch_norm.default: ((3, 4), 5),
    torch.ops.aten.instance_norm.default: ((3, 4), 5),
}
"""Operations whose schemas hide that they write buffers: the places of the buffers, and of the flag for writing."""


def changed_in_place(captured: Captured) -> Tuple[Tuple[str, ...], FrozenSet[int]]:
    """The names of the weights and the numbers of the inputs that running the model changes in place."""
    weights: Dict[str, None] = {}
    inputs = set()
    for node in captured.module.graph.nodes:
        for value in written(node) if node.op == "call_function" else ():
            origin = _origin(value)
            if origin is not None and origin.name in captured.weights:
                weights[captured.weights[origin.name]] = None
            elif origin is not None and origin.op == "placeholder":
                inputs.add(captured.inputs.index(origin.name))
    return tuple(weights), frozenset(inputs)


def written(node: Node) -> List[Any]:
    """The arguments that an operation writes into."""
    if node.target in _STATISTICS:
        places, flag = _STATISTICS[node.target]
        return [node.args[place] for place in places if node.args[flag]]
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    return [
        node.kwargs.get(argument.name, node.args[place] if place < len(node.args) else None)
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def _origin(value: Any) -> Optional[Node]:
    """The node whose memory a value is a view of."""
    while isinstance(value, Node) and value.op == "call_function":
        schema = getattr(value.target, "_schema", None)
        views = schema is not None and any(argument.alias_info is not None for argument in schema.arguments)
        if not views or not value.args:
            break
        value = value.args[0]
    return value if isinstance(value, Node) else None


def is_excluded(path: str, excludes: Iterable[str]) -> bool:
    """Whether a file is never named: one of the excluded parts is in its path."""
    return any(part in path for part in excludes)


def location(node: Node, excludes: Iterable[str]) -> str:
    """The innermost line that led to an operation, as ``file:line``; empty if every file on the way is excluded."""
    parts = tuple(excludes)
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return next((f"{file}:{line}" for file, line in reversed(frames) if not is_excluded(file, parts)), "")


def called(node: Node, excludes: Iterable[str]) -> str:
    """The name of an operation, with its location if there is one."""
    place = location(node, excludes)
    return f"{node.name} ({place})" if place else node.name
