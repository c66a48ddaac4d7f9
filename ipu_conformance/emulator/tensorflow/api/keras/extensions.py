"""What models have on the IPU by their kind: subclassed, made of inputs and outputs, or a chain of layers."""

from __future__ import annotations

from typing import Any, List

from ipu_conformance.emulator.tensorflow.keras import assignment, partition
from ipu_conformance.emulator.tensorflow.keras.extension import ModelExtension

__all__ = ["FunctionalExtension", "ModelExtension", "SequentialExtension"]


class FunctionalExtension(ModelExtension):
    """The IPU's methods of a model that is made of inputs and outputs."""


class SequentialExtension(ModelExtension):
    """The IPU's methods of a chain of layers, each of which has one stage."""

    def get_pipeline_stage_assignment(self) -> List[Any]:
        """The stage of every layer, as it was set; an empty list where none is assigned."""
        return [assignment.copied(one) for one in self._ipu.assigned]

    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: List[Any]) -> None:
        """Set the stage of every layer: integers, or one SequentialLayerPipelineStageAssignment for each."""
        self._ipu.stages = assignment.checked_sequential(self, pipeline_stage_assignment)
        self._ipu.assigned = [assignment.copied(one) for one in pipeline_stage_assignment]

    def reset_pipeline_stage_assignment(self) -> None:
        """Take back all stages: the model is not pipelined any more."""
        self._ipu.stages = None
        self._ipu.assigned = []

    def _ipu_network(self) -> Any:
        return self

    def _ipu_calls(self) -> List[partition.Call]:
        assigned = self._ipu.stages
        if assigned is not None and len(assigned) != len(self.layers):  # type: ignore[attr-defined]
            raise ValueError(
                f"{self.name} has {len(self.layers)} layers, and stages were assigned to {len(assigned)}: call "  # type: ignore[attr-defined]
                "set_pipeline_stage_assignment again."
            )
        return partition.sequential_calls(self, assigned)

    def _ipu_pipelined(self) -> bool:
        return self._ipu.stages is not None

    def _ipu_meet(self, element: Any) -> None:
        """A chain knows its layers before it is built."""
