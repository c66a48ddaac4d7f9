"""Copies between IPUs: an op reads on its own IPU, and what was made on another is brought there."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Sequence, Tuple

from ipu_conformance.emulator.popart.program import Place, Program
from ipu_conformance.ir.graph import Op

TYPE = "IpuCopy"


def copy(program: Program, *, pipelined: bool) -> None:
    """Add an ``IpuCopy`` for every value that changes its IPU; in a pipeline it passes stage by stage."""
    _Copying(program, pipelined).run()


class _Copying:
    def __init__(self, program: Program, pipelined: bool) -> None:
        self.program = program
        self.pipelined = pipelined
        self.before, program.ops = program.ops, []
        self.ipus: Dict[int, int] = {op.stage: op.ipu or 0 for op in self.before if op.stage is not None}
        self.homes: Dict[str, Place] = {}
        self.copies: Dict[Tuple[str, int], str] = {}
        """The name of a tensor on an IPU that it was copied to."""

    def run(self) -> None:
        for op in self.before:
            inputs = tuple(self._at(name, op) if name else "" for name in op.inputs)
            self.program.ops.append(replace(op, inputs=inputs))
            self.homes.update(dict.fromkeys(op.outputs, Place(op.ipu, op.stage)))

    def _at(self, name: str, reader: Op) -> str:
        """The tensor as an op reads it: itself, or its copy on the IPU of that op."""
        target = Place(reader.ipu or 0, reader.stage)
        home = self.homes.setdefault(name, target)
        if home.ipu == target.ipu:
            return name
        path = _direct([home, *self._between(home, target), target])
        # Whichever IPU on the way has the value already, the last of them is where the copies begin.
        start = max(index for index, place in enumerate(path) if self._name_on(name, place, home))
        for source, next_ in zip(path[start:], path[start + 1 :]):
            self._copy(name, self._name_on(name, source, home), source, next_)
        return self._name_on(name, target, home)

    def _between(self, home: Place, target: Place) -> List[Place]:
        """The stages that a value passes in a pipeline."""
        if not self.pipelined or home.stage is None or target.stage is None:
            return []
        way = 1 if target.stage > home.stage else -1
        stages = range(home.stage + way, target.stage, way)
        return [Place(self.ipus[stage], stage) for stage in stages if stage in self.ipus]

    def _name_on(self, name: str, place: Place, home: Place) -> str:
        """The tensor on an IPU, empty where it is not."""
        return name if place.ipu == home.ipu else self.copies.get((name, place.ipu or 0), "")

    def _copy(self, origin: str, name: str, source: Place, target: Place) -> None:
        copied = replace(self.program.tensors[origin], name=f"{origin}_c{target.ipu}")
        ends = {"__sourceIpus": f"{{{source.ipu}}}", "__destIpu": target.ipu}
        (self.copies[origin, target.ipu or 0],) = self.program.add(TYPE, [name], [copied], source, attributes=ends)


def _direct(path: Sequence[Place]) -> List[Place]:
    """A way from IPU to IPU without what leads away from one and back to it."""
    direct: List[Place] = []
    for place in path:
        seen = [index for index, other in enumerate(direct) if other.ipu == place.ipu]
        direct = [*(direct[: seen[0]] if seen else direct), place]
    return direct
