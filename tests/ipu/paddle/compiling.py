"""What the compiler does to a program, pass by pass, seen through Paddle's own graphs and programs."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from ipu_conformance import check

TRAINING = ("optimizer_extract_pass", "optimizer_state_align_pass")
COMMON = (
    "forward_graph_extract_pass",
    "infer_shape_pass",
    "avg_shard_pass",
    "delete_scale_op_pass",
    "popart_canonicalization_pass",
    "ipu_inplace_pass",
    "ipu_graph_builder_pass",
    "ipu_runtime_replacer_pass",
)

Shard = Tuple[Optional[int], Optional[int]]


class Compiling:
    """The main program on its way through the passes, with one strategy."""

    def __init__(self, paddle: Any, feeds: Sequence[str], fetches: Sequence[str], **options: Any) -> None:
        self.paddle = paddle
        self.feeds, self.fetches = list(feeds), list(fetches)
        self.core = paddle.base.core
        self.strategy = paddle.static.IpuStrategy()
        self.strategy.set_options({"micro_batch_size": 4, **options})
        backend = self.core.IpuBackend.get_instance()
        backend.set_scope(paddle.static.global_scope())
        backend.set_ipu_strategy(self.strategy._ipu_strategy)
        self.main = paddle.static.default_main_program()
        self.graph = self.core.Graph(self.main.desc)
        self.applied: List[str] = []

    def upto(self, last: str) -> Compiling:
        """Apply every pass up to and including ``last``."""
        due = [*(TRAINING if self.strategy.is_training else ()), *COMMON]
        for name in due[: due.index(last) + 1]:
            if name not in self.applied:
                self.apply(name)
        return self

    def apply(self, name: str, **values: Any) -> Compiling:
        """Apply one pass."""
        one = self.core.get_pass(name)
        for key, value in {"feed_list": self.feeds, "fetch_list": self.fetches, **values}.items():
            one.set(key, value)
        one.apply(self.graph)
        self.applied.append(name)
        return self

    @property
    def block(self) -> Any:
        """The global block of the program that the graph stands for."""
        desc = self.core.ProgramDesc()
        convert = self.core.get_pass("graph_to_program_pass")
        convert.set_not_owned("program", desc)
        convert.apply(self.graph)
        self._program = self.paddle.base.framework.Program._construct_from_desc(desc)
        return self._program.global_block()

    @property
    def types(self) -> List[str]:
        """The types of the ops, in order."""
        return [op.type for op in self.block.ops]

    @property
    def shards(self) -> List[Shard]:
        """Index and stage of every op but the optimizer, None where none is written."""
        return [shard(op) for op in self.block.ops if op.type != "popart_optimizer"]

    def only(self, type: str) -> Any:
        """The one op of a type."""
        matching = [op for op in self.block.ops if op.type == type]
        check.equal(actual=len(matching), expected=1, what=f"the number of {type} ops among {self.types}")
        return matching[0]

    def attributes(self, type: str) -> Dict[str, Any]:
        """The attributes of the one op of a type."""
        op = self.only(type)
        return {name: op.attr(name) for name in op.attr_names}


def shard(op: Any) -> Shard:
    """Index and stage of an op."""
    index, stage = (op.attr(name) if op.has_attr(name) else None for name in ("ipu_index", "ipu_stage"))
    return index, stage
