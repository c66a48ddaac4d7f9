"""Copies between IPUs: an op reads on its own IPU, and what was made on another is brought there."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from ipu_conformance.ir.graph import Op
from ipu_conformance.ir.tensor import Tensor

TYPE = "IpuCopy"


def copied(ops: Sequence[Op], tensors: Mapping[str, Tensor], *, pipelined: bool) -> Tuple[List[Op], Dict[str, Tensor]]:
    """The ops with an ``IpuCopy`` for every value that changes its IPU; in a pipeline it passes stage by stage."""
    return _Copying(ops, tensors, pipelined).run()


class _Copying:
    def __init__(self, ops: Sequence[Op], tensors: Mapping[str, Tensor], pipelined: bool) -> None:
        self.given = ops
        self.tensors = dict(tensors)
        self.pipelined = pipelined
        self.ops: List[Op] = []
        self.ipus: Dict[int, int] = {op.stage: op.ipu or 0 for op in ops if op.stage is not None}
        self.home: Dict[str, Op] = {}
        self.there: Dict[Tuple[str, int], str] = {}
        """The name of a tensor on an IPU that it was copied to."""

    def run(self) -> Tuple[List[Op], Dict[str, Tensor]]:
        for op in self.given:
            inputs = tuple(self._at(name, op) if name else "" for name in op.inputs)
            self.ops.append(replace(op, inputs=inputs))
            self.home.update(dict.fromkeys(op.outputs, op))
        return self.ops, self.tensors

    def _at(self, name: str, reader: Op) -> str:
        """The tensor as an op reads it: itself, or its copy on the IPU of that op."""
        home = self.home.setdefault(name, reader)
        target = reader.ipu or 0
        if home.ipu == target:
            return name
        if (name, target) in self.there:
            return self.there[name, target]
        path = [(reader.stage, target)]
        if self.pipelined and home.stage is not None and reader.stage is not None:
            path = [
                (stage, self.ipus[stage]) for stage in range(home.stage + 1, reader.stage + 1) if stage in self.ipus
            ]
        now, source, at = name, home.ipu or 0, home
        # Whatever IPU on the way has the value already, the last of them is where the copies begin.
        here = [place for place, (_, ipu) in enumerate(path) if ipu == home.ipu or (name, ipu) in self.there]
        if here:
            stage, source = path[here[-1]]
            now = self.there.get((name, source), name)
            at = replace(home, ipu=source, stage=stage)
            path = path[here[-1] + 1 :]
        for stage, ipu in _straight(path):
            if ipu != source:
                now = self._copy(name, now, at, source, ipu)
            source, at = ipu, replace(at, ipu=ipu, stage=stage)
        return now

    def _copy(self, origin: str, now: str, at: Op, source: int, ipu: int) -> str:
        made = f"{origin}_c{ipu}"
        while made in self.tensors:
            made += "_"
        self.tensors[made] = replace(self.tensors[origin], name=made)
        self.there[origin, ipu] = made
        ends = {"sourceIpu": source, "destIpu": ipu}
        self.ops.append(Op(TYPE, TYPE, (now,), (made,), ends, ipu=source, stage=at.stage))
        return made


def _straight(path: Sequence[Tuple[Optional[int], int]]) -> List[Tuple[Optional[int], int]]:
    """A way from IPU to IPU without what leads away from one and back to it."""
    found: List[Tuple[Optional[int], int]] = []
    for stage, ipu in path:
        seen = [place for place, (_, other) in enumerate(found) if other == ipu]
        found = [*(found[: seen[0]] if seen else found), (stage, ipu)]
    return found
