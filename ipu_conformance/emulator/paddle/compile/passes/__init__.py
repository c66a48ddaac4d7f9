"""The passes of an IPU build by the names under which ``core.get_pass`` gives them."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Mapping

from ipu_conformance.emulator.paddle.compile import compilation
from ipu_conformance.emulator.paddle.compile.compilation import Compilation, PassError
from ipu_conformance.emulator.paddle.compile.passes import forward, inference, popart, shapes
from ipu_conformance.emulator.paddle.optim import folding

Change = Callable[[Compilation, Mapping[str, Any]], None]
"""What a pass does to a record, with the values that were set on the pass."""

PASSES: Mapping[str, Change] = {
    "optimizer_extract_pass": folding.extract,
    "optimizer_state_align_pass": folding.align,
    "forward_graph_extract_pass": forward.extract,
    "infer_shape_pass": shapes.infer,
    "avg_shard_pass": forward.average,
    "delete_scale_op_pass": forward.delete_scale,
    "popart_canonicalization_pass": popart.canonicalize,
    "ipu_inplace_pass": popart.rename,
    "ipu_graph_builder_pass": popart.build,
    "ipu_runtime_replacer_pass": popart.replace_ops,
    "inference_process_pass": inference.process,
    "inference_dtype_transfer_pass": inference.transfer,
    "inference_postprocess_pass": inference.postprocess,
}
"""Every pass by its name; the first ten stand in the order in which a program is compiled."""

_LAST = "ipu_runtime_replacer_pass"
_unseen: List[bool] = []
"""Not empty while Paddle applies all passes at once."""


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Inside it all passes are applied one after the other: the nodes that the graph has in between are not made."""
    _unseen.append(True)
    try:
        yield
    finally:
        _unseen.pop()


class Pass:
    """A pass as ``core.get_pass`` gives it: values are set by name, then it is applied to graphs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._values: Dict[str, Any] = {}

    def type(self) -> str:
        """The name of the pass."""
        return self._name

    def set(self, key: str, value: Any) -> None:
        """Give the pass a value."""
        self._values[key] = value

    set_not_owned = set

    def has(self, key: str) -> bool:
        """Whether a value was given."""
        return key in self._values

    def apply(self, graph: Any) -> Any:
        """Change the record of a graph, and rebuild its nodes from the record's Program unless nobody sees them."""
        record = compilation.of(graph)
        PASSES[self._name](record, self._values)
        if self._name == _LAST or not _unseen:
            compilation.rebuild(graph, record.program)
        return graph


def get(name: str) -> Pass:
    """The pass of an IPU build by its name."""
    if name not in PASSES:
        raise PassError(f"no pass of the IPU is named {name!r}; the passes are {', '.join(PASSES)}")
    return Pass(name)
