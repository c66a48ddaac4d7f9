"""Execution strategies: which blocks form a stage, on which IPU a stage runs, and in which phase."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Set, Tuple, Union

from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.options.enums import AutoStage, Liveness
from ipu_conformance.emulator.poptorch.refusals import placement as refusals


class Stage:
    """Blocks that run together on one IPU."""

    def __init__(self, *block_ids: Union[str, int]) -> None:
        for block_id in block_ids:
            refusals.STAGE_OF_TEXTS(block_id=block_id)
        if not block_ids:
            raise AssertionError("Stage() was given no block: name at least one")
        self._blocks = tuple(str(block_id) for block_id in block_ids)
        self._ipu: Optional[int] = None

    @property
    def blocks(self) -> Tuple[str, ...]:
        """The ids of the stage's blocks."""
        return self._blocks

    def ipu(self, ipu: int) -> Stage:
        """Run the stage on this IPU, counted inside one replica."""
        refusals.STAGE_IPU(ipu=ipu)
        self._ipu = ipu
        return self

    @property
    def ipu_id(self) -> Optional[int]:
        """The IPU that was set, None if none was."""
        return self._ipu

    def __repr__(self) -> str:
        return f"Stage({', '.join(map(repr, self._blocks))})" + ("" if self._ipu is None else f".ipu({self._ipu})")


def _stages(items: Sequence[Any], owner: str) -> List[Stage]:
    """Stages as they are; a name is a stage of one block, and a list of names a stage of several."""
    made = []
    for item in items:
        names = [item] if isinstance(item, str) else item
        if not isinstance(item, Stage) and not _are_names(names):
            raise AssertionError(f"{item!r} was given to {owner}: use poptorch.Stage or names of blocks")
        made.append(item if isinstance(item, Stage) else Stage(*names))
    return made


def _are_names(items: Any) -> bool:
    return isinstance(items, (list, tuple)) and bool(items) and all(isinstance(item, str) for item in items)


def _check_disjoint(stages: Sequence[Stage]) -> None:
    seen: Set[str] = set()
    for block_id in (block_id for stage in stages for block_id in stage.blocks):
        refusals.BLOCK_IN_TWO_STAGES(block_id=block_id, earlier=seen)
        seen.add(block_id)


def _find(stages: Sequence[Stage], block_id: str) -> Stage:
    for stage in stages:
        if block_id in stage.blocks:
            return stage
    known = [name for stage in stages for name in stage.blocks]
    raise Error(f"Unknown block {block_id}: the blocks of the execution strategy are {known}")


class _StagedExecution:
    """A strategy that is a row of stages, or a rule that makes a stage of every block."""

    mode = ""

    def __init__(self, *args: Any) -> None:
        name = type(self).__name__
        self._auto: Optional[AutoStage] = None
        self._stages: List[Stage] = []
        if any(isinstance(item, AutoStage) for item in args):
            if len(args) > 1:
                raise AssertionError(f"{args!r} was given to {name}: use an AutoStage alone, or stages")
            self._auto = args[0]
        elif args:
            self._stages = _stages(args, name)
            _check_disjoint(self._stages)
        else:
            self._auto = AutoStage.SameAsIpu

    @property
    def auto_stage(self) -> Optional[AutoStage]:
        """The rule that makes stages of blocks, None if the stages were given."""
        return self._auto

    @property
    def stages(self) -> Tuple[Stage, ...]:
        """The stages that were given."""
        return tuple(self._stages)

    def stage(self, block_id: str) -> Stage:
        """The stage of a block."""
        return _find(self._stages, block_id)


class PipelinedExecution(_StagedExecution):
    """Every stage works on another micro-batch at the same time."""

    mode = "Pipelined"

    def backendOptions(self) -> Dict[str, Any]:
        """What the backend is told of the strategy."""
        return {"execution_mode": 0}


class ShardedExecution(_StagedExecution):
    """The stages work one after the other on one micro-batch."""

    mode = "Sharded"

    def backendOptions(self) -> Dict[str, Any]:
        """What the backend is told of the strategy."""
        return {"execution_mode": 1}


class Phase:
    """Stages whose weights are on the device together; names are those of the blocks of one stage."""

    def __init__(self, *args: Any) -> None:
        items = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
        if _are_names(items):
            items = [Stage(*items)]
        if not items or not all(isinstance(item, Stage) for item in items):
            raise AssertionError(f"{args!r} was given to Phase: use stages, or names of blocks, and at least one")
        self._stages = list(items)

    @property
    def stages(self) -> Tuple[Stage, ...]:
        """The stages of the phase."""
        return tuple(self._stages)

    def stage(self, idx: int) -> Stage:
        """The stage at an index."""
        if not idx < len(self._stages):
            raise IndexError(f"Stage {idx!r} was asked of a phase of {len(self._stages)}: they count from 0")
        return self._stages[idx]

    def ipus(self, *ipus: int) -> Phase:
        """Run the stages on these IPUs, one for each stage."""
        if len(ipus) != len(self._stages):
            raise AssertionError(f"{len(ipus)} IPUs were given to a phase of {len(self._stages)} stages: use one each")
        for stage, ipu in zip(self._stages, ipus):
            stage.ipu(ipu)
        return self


class _PhasedExecution:
    """A strategy that is a row of phases; what a phase does not need waits in the memory of the host."""

    mode = ""

    def __init__(self, *phases: Any) -> None:
        items: Sequence[Any] = phases
        if len(phases) == 1 and isinstance(phases[0], list) and all(isinstance(p, (Phase, list)) for p in phases[0]):
            items = phases[0]
        if not items:
            raise AssertionError(f"{type(self).__name__}() was given no phase: use at least one")
        self._separate_backward_phase, self._liveness = False, Liveness.AlwaysLive
        self._phases = [_as_phase(item, type(self).__name__) for item in items]
        _check_disjoint([stage for phase in self._phases for stage in phase.stages])

    @property
    def phases(self) -> Tuple[Phase, ...]:
        """The phases in order."""
        return tuple(self._phases)

    def phase(self, phase: int) -> Phase:
        """The phase at an index."""
        if not isinstance(phase, int) or phase < 0:
            raise AssertionError(f"Phase {phase!r} was asked of {len(self._phases)} phases: they count from 0")
        if not phase < len(self._phases):
            raise IndexError(f"Phase {phase!r} was asked of {len(self._phases)} phases: they count from 0")
        return self._phases[phase]

    def stage(self, block_id: str) -> Stage:
        """The stage of a block."""
        return _find([stage for phase in self._phases for stage in phase.stages], block_id)

    def useSeparateBackwardPhase(self, use: bool = True) -> _PhasedExecution:
        """Whether the backward of the last phase is a phase of its own."""
        if not isinstance(use, bool):
            raise AssertionError(f"{use!r} was given to useSeparateBackwardPhase: use True or False")
        self._separate_backward_phase = use
        return self

    def backendOptions(self) -> Dict[str, Any]:
        """What the backend is told of the strategy."""
        return {
            "execution_mode": 2,
            "separate_backward_phase": self._separate_backward_phase,
            "tensors_liveness": self._liveness.value,
            "serial_phases_execution": self.mode == "SerialPhased",
        }

    def locate(self, block_id: str) -> Tuple[int, int]:
        """The phase of a block and the place of its stage inside the phase."""
        for number, phase in enumerate(self._phases):
            for place, stage in enumerate(phase.stages):
                if block_id in stage.blocks:
                    return number, place
        self.stage(block_id)  # Raises, with the blocks that there are.
        raise AssertionError(block_id)


def _as_phase(item: Any, owner: str) -> Phase:
    if isinstance(item, Phase):
        return item
    if isinstance(item, (Stage, str)):
        return Phase(item)
    if isinstance(item, (list, tuple)):
        return Phase(*item)
    raise AssertionError(f"{item!r} was given to {owner}: use poptorch.Phase, stages or names of blocks")


class SerialPhasedExecution(_PhasedExecution):
    """The phases follow one another on the same IPUs."""

    mode = "SerialPhased"

    def setTensorsLiveness(self, liveness: Liveness) -> SerialPhasedExecution:
        """When the tensors of a phase leave the device."""
        if not isinstance(liveness, Liveness):
            raise AssertionError(f"{liveness!r} was given to setTensorsLiveness: use a poptorch.Liveness")
        self._liveness = liveness
        return self

    def default_ipu(self, phase: int, place: int) -> int:
        """The IPU of a stage for which none was set."""
        return place


class ParallelPhasedExecution(_PhasedExecution):
    """Even phases run on even IPUs and odd phases on odd IPUs, so that one loads while the other computes."""

    mode = "ParallelPhased"

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> ParallelPhasedExecution:
        """Whether the tensors of a phase leave the device after the forward pass."""
        if not isinstance(off_chip, bool):
            raise AssertionError(f"{off_chip!r} was given to sendTensorsOffChipAfterFwd: use True or False")
        self._liveness = Liveness.OffChipAfterFwd if off_chip else Liveness.AlwaysLive
        return self

    def default_ipu(self, phase: int, place: int) -> int:
        """The IPU of a stage for which none was set."""
        return 2 * place + phase % 2


STRATEGIES = (PipelinedExecution, ShardedExecution, SerialPhasedExecution, ParallelPhasedExecution)
"""Every execution strategy."""
