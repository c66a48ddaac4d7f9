"""Pipelines of SDK 1.x: the number of micro-batches of a run was called ``pipeline_depth``."""

from __future__ import annotations

from typing import Any, Dict

from ipu_conformance.emulator.tensorflow import legacy
from ipu_conformance.emulator.tensorflow.refusals import legacy as refusals

OLD, NEW = "pipeline_depth", "gradient_accumulation_count"


def renamed(arguments: Dict[str, Any], count: Any = None) -> Dict[str, Any]:
    """The arguments of a pipeline by their names of today; ``count`` is what is given under the new name already."""
    legacy.entered(f"`{OLD}` of a pipeline")
    refusals.TWO_COUNTS(count=arguments.get(NEW, count))
    return {NEW if name == OLD else name: value for name, value in arguments.items()}
