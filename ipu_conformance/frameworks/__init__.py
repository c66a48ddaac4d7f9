"""One driver per framework, all of one protocol: each package here is a driver.

A driver knows the vendor's public API and nothing of any target. It builds a net from NumPy weights, trains it or runs
it for a RunConfig, and returns a RunRecord whose weights have the net's names and orientation.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Any,
    Callable,
    ContextManager,
    Dict,
    Hashable,
    Iterator,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    cast,
    runtime_checkable,
)

import numpy as np

from ipu_conformance import notes, targets
from ipu_conformance.ir.files import dumps
from ipu_conformance.ir.graph import Graph
from ipu_conformance.nets import Data, Net
from ipu_conformance.run import Array, RunConfig, RunError, RunRecord, Weights


class Model(Protocol):
    """A net in a framework's own form."""

    def weights(self) -> Weights:
        """The trained weights as the user of the framework reads them."""

    def statistics(self) -> Optional[Weights]:
        """Batch norm's running statistics, None for a net that has none."""


@dataclass(frozen=True)
class OpCall:
    """One call of an op: its inputs and the factors of its outputs in the loss, by micro-batch."""

    ask: Callable[..., Any]
    """``ask(module, *tensors, **attributes)`` calls the op in the framework."""
    inputs: Tuple[Tuple[Array, ...], ...]
    attributes: Mapping[str, Any]
    factors: Tuple[Tuple[Array, ...], ...] = ()
    """What each output is multiplied by in the loss, the sum of all floating-point ones; none for no gradient."""
    wanted: Tuple[int, ...] = ()
    """The inputs whose gradients are wanted."""

    @property
    def structure(self) -> Hashable:
        """What a call is apart from the values of its inputs."""
        inputs = tuple((x.shape, x.dtype.str) for x in self.inputs[0])
        return self.ask, inputs, repr(sorted(self.attributes.items()))


@dataclass(frozen=True)
class OpResult:
    """What a device made of a call: the outputs by micro-batch, and the gradients' sums over the micro-batches."""

    outputs: Tuple[Tuple[Array, ...], ...]
    gradients: Mapping[int, Array]


class Trainer(Protocol):
    """A net under training on the device, call by call."""

    def step(self, data: Data, step: int) -> Tuple[Array, Array]:
        """Losses and outputs of one call, at the learning rate of its step."""

    def weights(self) -> Weights:
        """The trained weights as the user of the framework reads them."""

    def statistics(self) -> Optional[Weights]:
        """Batch norm's running statistics, None for a net that has none."""

    def evaluate(self, data: Data, step: int = 0) -> Array:
        """The outputs of ``config.inference()`` with what was learned so far; training can go on afterwards."""

    def save(self, folder: Path) -> None:
        """Write weights, statistics and the optimizer's state the vendor's way."""

    def load(self, folder: Path) -> None:
        """Go on from what ``save`` wrote; nothing has run yet."""


@runtime_checkable
class Driver(Protocol):
    """What every framework's driver offers; its functions may take further options with defaults."""

    def build(self, net: Net, config: RunConfig) -> ContextManager[Model]:
        """The net with its initial weights, ready to be used inside the block."""

    def train(self, net: Net, config: RunConfig, data: Data) -> RunRecord:
        """Train through the vendor's API and record what its user sees, and what the target shows besides."""

    def training(self, net: Net, config: RunConfig) -> ContextManager[Trainer]:
        """The net with its initial weights on the device, ready to be trained inside the block."""

    def infer(self, net: Net, config: RunConfig, data: Data) -> RunRecord:
        """Run from the initial weights through the vendor's API, without training."""

    def native(self, net: Net, config: RunConfig, data: Data) -> RunRecord:
        """The same training in the stock framework, without any IPU API."""

    def supports(self, net: Net, config: RunConfig) -> Optional[str]:
        """Why the vendor's API cannot express a run, in one sentence; None if it can."""

    def inspect(self) -> Optional[targets.Inspector]:
        """The target's door to what the vendor's API does not show; None where the target has none."""

    def run_ops(self, calls: Sequence[OpCall], dtype: str) -> Sequence[OpResult]:
        """Run calls of ops, all in one program, with floating-point numbers of ``dtype``."""

    def why_inexpressible(self, call: OpCall, dtype: str) -> Optional[str]:
        """Why the framework's public API cannot express a call; None if it can."""


def load(name: str) -> Driver:
    """The driver of a framework; this imports the framework, so its target has to be active."""
    return cast(Driver, importlib.import_module(f"{__name__}.{name}"))


def refusal(who: str, unable: Mapping[str, bool]) -> Optional[str]:
    """A sentence about the first request that cannot be met, None if all can."""
    for what, asked in unable.items():
        if asked:
            return f"{who} does not do {what}: choose another configuration for it."
    return None


def require(reason: Optional[str]) -> None:
    """Refuse a run for a reason, if there is one."""
    if reason is not None:
        raise RunError(reason)


def origin(framework: str, version: str, target: str = "") -> Dict[str, Any]:
    """The fields of a record that tell where it was made: on ``target``, or on the framework's active one."""
    active = targets.active(framework)
    name = target or (active.name if active else "unknown")
    return {"framework": framework, "target": name, "environment": {targets.FRAMEWORKS[framework].module: version}}


def orient(net: Net, name: str, value: Any, axes: Mapping[str, Tuple[int, ...]], *, back: bool = False) -> Array:
    """A weight turned from the net's orientation to a framework's, or back.

    ``axes`` gives, for each op whose weights the framework keeps otherwise, the net's axes in the framework's order.
    """
    array = np.asarray(value, np.float64)
    order = axes.get(next((layer.op for layer in net.layers if name in layer.weights), ""), ())
    if not order or array.ndim != len(order):
        return array
    return np.ascontiguousarray(array.transpose(np.argsort(order) if back else order))


def weights_of(net: Net, layers: Sequence[str]) -> List[str]:
    """The weights that some layers of a net use."""
    return [name for layer in net.layers if layer.name in layers for name in layer.weights]


def updates(data: Data, step: int, config: RunConfig) -> Iterator[Tuple[Array, Array]]:
    """The samples and labels of each update of a step."""
    yield from zip(*(np.split(whole[step], config.device_iterations) for whole in (data.inputs, data.labels)))


def by_replica(
    framework: str, program: Any, values: Mapping[str, Any], replicas: int, read: Callable[[str, Any], Array]
) -> Optional[Tuple[Weights, ...]]:
    """What each replica holds, as the framework's active target shows it; None where it does not.

    ``values`` are the vendor's words for what is asked for, ``read`` makes an array of what has a name.
    """
    door = targets.inspector(framework)
    shown = None if door is None else door.values_by_replica(program, values, replicas)
    if shown is None:
        return None
    return tuple({name: read(name, value) for name, value in held.items()} for held in shown)


def observe(framework: str, program: Any) -> None:
    """Have the active target keep a trace of a program, if it can."""
    door = targets.inspector(framework)
    if door is not None:
        door.observe(program)


def trace(framework: str, program: Any, replicas: int, workload: str = "") -> Optional[Tuple[Any, ...]]:
    """The slots that the last run of a program executed, None where the active target does not show them.

    Of a workload's program the report keeps them, however many IPUs it has.
    """
    door = targets.inspector(framework)
    slots = None if door is None else door.trace(program, replicas)
    if slots is not None and notes.wanted():
        _tell_timeline(framework, slots, door, program, workload)
    return slots


def _tell_timeline(framework: str, slots: Sequence[Any], door: Any, program: Any, workload: str) -> None:
    """Tell when which IPU did what, of a workload or a program on several IPUs, and the memory that each needs."""
    rows = [[s.tick, s.replica, s.ipu, s.stage, s.micro_batch, str(s.kind)] for s in slots if s.replica == 0]
    if workload or len({row[2] for row in rows}) > 1:
        shown = getattr(door, "memory", lambda _: None)(program)  # a plug-in of before may not have it
        memory = None if shown is None else [dict(row) for row in shown]
        named = {"workload": workload} if workload else {}
        notes.tell("timeline", {"framework": framework, **named, "slots": rows, "memory": memory})


def keep_ir(graph: Graph) -> None:
    """Have the report keep the graph of a workload's program."""
    if notes.wanted():
        notes.tell("ir", dumps(graph, "json").decode("utf-8"))


def ir(framework: str, program: Any) -> Optional[Any]:
    """The graph of a compiled program, None where the active target does not show it."""
    show = getattr(targets.inspector(framework), "ir", None)
    return None if show is None else show(program)
