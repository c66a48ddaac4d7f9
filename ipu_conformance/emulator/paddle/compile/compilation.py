"""What is known about one program while the passes work on it, found by the graph that they are applied to.

Every pass edits the working Program of the record; the nodes of the real ``core.Graph`` are then rebuilt from it, so
that drawing the graph, or turning it into a Program, shows what the pass did.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from paddle.base import core, framework

from ipu_conformance.emulator.paddle.compile.subprograms import Described, program_of
from ipu_conformance.emulator.paddle.errors import PaddleError
from ipu_conformance.emulator.paddle.run.device import DEVICE

ROLE = core.op_proto_and_checker_maker.kOpRoleAttrName()
_ROLES = core.op_proto_and_checker_maker.OpRole
FORWARD, BACKWARD, OPTIMIZE = int(_ROLES.Forward), int(_ROLES.Backward), int(_ROLES.Optimize)
LOSS, SCHEDULE = int(_ROLES.Loss), int(_ROLES.LRSched)
INDEX = framework.ipu_index_attr_name
STAGE = framework.ipu_stage_attr_name
CAST = "cast"
OPTIMIZER = "popart_optimizer"
"""The type of the op that the optimizer is folded into."""
MEAN, RUNNING = 1, 0
"""The reduction that averages, and the strategy that averages while it accumulates, by PopART's numbers."""
UNFOLDED_RATE = 0.01
"""The learning rate of an optimizer whose rate is not folded."""
RECOMPUTATION_OFF = 0
"""The value of ``auto_recomputation`` that stashes everything."""


class PassError(PaddleError, RuntimeError):
    """A program cannot be compiled for the IPU."""


@dataclass(frozen=True)
class Folded:
    """The optimizer that ``optimizer_extract_pass`` folded into one op."""

    type: str
    """Paddle's own name of the optimizer."""
    learning_rate: Optional[str]
    """The variable that holds the learning rate; None where the device has a rate of its own."""
    parameters: Tuple[str, ...]
    settings: Mapping[str, Any]
    """The attributes of the folded op that tell the optimizer's rule: type, modes, momentum, beta1, eps, …"""
    weight_decay: float = 0.0
    decays: Mapping[str, float] = field(default_factory=dict)
    """The decay of each parameter, where they may differ."""
    clip_norm: Optional[float] = None
    gradients: Mapping[str, str] = field(default_factory=dict)
    """The gradient that updates each parameter."""
    states: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each parameter, the variable of every slot: Moment1, Beta1Pow, Velocity, …"""


class Compilation:
    """The record of one compilation."""

    def __init__(self, desc: Any, strategy: Any, scope: Any) -> None:
        self.original = Described(core.ProgramDesc(desc))
        """The whole program as it was given: forward, backward and optimizer ops."""
        self.program = program_of(core.ProgramDesc(desc))
        """The working Program, edited by each pass."""
        self.strategy = strategy
        self.scope = scope
        self.forward: Optional[Any] = None
        """Once placed, the forward Program in Paddle's own ops with fixed shapes: this is what is executed.

        Scales by one are still in it: they change no value, and backward ops and fetches may use their names.
        """
        self.written: Optional[Any] = None
        """Once canonicalised, the ops of PopART's (``canonical.Written``): this is what is lowered and dumped."""
        self.feeds: Tuple[str, ...] = ()
        self.fetches: Tuple[str, ...] = ()
        self.loss: Optional[str] = None
        self.optimizer: Optional[Folded] = None
        self.custom_ops: Tuple[str, ...] = ()
        self.aliases: Dict[str, str] = {}
        """For every variable of ``forward`` whose last value has another name in ``written``, that name."""

    @property
    def training(self) -> bool:
        """Whether the strategy asks for training."""
        return bool(self.strategy.value("is_training"))

    def ops(self) -> List[Any]:
        """The ops of the working Program's global block, in order."""
        return list(self.program.global_block().ops)

    def refresh(self) -> None:
        """Rebuild the working Program from its description, into which ops were inserted."""
        self.program = program_of(core.ProgramDesc(self.program.desc))

    def snapshot(self) -> Described:
        """A copy of the working Program's description, independent of what later passes do."""
        return Described.copy(self.program)


_RECORDS: weakref.WeakKeyDictionary[Any, Compilation] = weakref.WeakKeyDictionary()


def of(graph: Any) -> Compilation:
    """The record of a graph; the first pass that asks begins it with the backend's strategy and scope."""
    record = _RECORDS.get(graph)
    if record is not None:
        return record
    return begin(graph, DEVICE.strategy, DEVICE.scope)


def begin(graph: Any, strategy: Any, scope: Any) -> Compilation:
    """A new record of a graph."""
    record = Compilation(graph.origin_program_desc(), strategy, scope)
    _RECORDS[graph] = record
    return record


def name_of(variable: Any) -> str:
    """The name of a variable that is given by name or as itself."""
    return variable if isinstance(variable, str) else str(variable.name)


def role_of(op: Any) -> int:
    """The role of an op: forward, backward, optimize, with the loss' bit; forward where none is written."""
    return int(op.attr(ROLE)) if op.has_attr(ROLE) else FORWARD


def place(desc: Any, index: Optional[int], stage: Optional[int]) -> None:
    """Write index and stage on an op's description, where given."""
    if index is not None:
        desc._set_attr(INDEX, index)
    if stage is not None:
        desc._set_attr(STAGE, stage)


def place_like(desc: Any, other: Any) -> None:
    """Give an op the role and the place of another one."""
    for name in (ROLE, "op_role_var", INDEX, STAGE):
        if other.has_attr(name):
            desc._set_attr(name, other.attr(name))


def insert_cast(block: Any, index: int, like: Any, source: Tuple[str, Any], target: Tuple[str, Any]) -> None:
    """Insert a cast from one variable and type to another, with the role and the place of the op ``like``."""
    cast = block._insert_op(index)
    cast.set_type(CAST)
    cast.set_input("X", [source[0]])
    cast.set_output("Out", [target[0]])
    cast._set_attr("in_dtype", int(source[1]))
    cast._set_attr("out_dtype", int(target[1]))
    place_like(cast, like)


def keep(program: Any, ops: Iterable[Any]) -> None:
    """Remove from the global block every op that is not among ``ops``."""
    kept = {id(op) for op in ops}
    block = program.global_block()
    for index in reversed(range(len(block.ops))):
        if id(block.ops[index]) not in kept:
            block._remove_op(index, sync=False)
    program._sync_with_cpp()


def rebuild(graph: Any, program: Any) -> None:
    """Rebuild the graph's nodes from the global block of a Program: a variable has one node per writing op."""
    core.graph_safe_remove_nodes(graph, set(graph.nodes()))
    block = program.desc.block(0)
    latest: Dict[str, Any] = {}
    for index in range(block.op_size()):
        op = block.op(index)
        node = graph.create_op_node(op)
        for name in dict.fromkeys(op.input_arg_names()):
            if name not in latest:
                latest[name] = _variable_node(graph, block, name)
            node.append_input(latest[name])
            latest[name].append_output(node)
        for name in dict.fromkeys(op.output_arg_names()):
            latest[name] = _variable_node(graph, block, name)
            node.append_output(latest[name])
            latest[name].append_input(node)


def _variable_node(graph: Any, block: Any, name: str) -> Any:
    if name == core.empty_var_name():
        return graph.create_empty_node(name, core.Node.Type.Variable)
    desc = block.find_var(name.encode())
    if desc is None:
        raise PassError(f"an op uses the variable {name!r}, which the program lacks; create it in the block")
    return graph.create_var_node(desc)
