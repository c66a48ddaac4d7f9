"""What the setter methods of a model remember, with the vendor's checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from ipu_conformance.emulator.tensorflow.refusals import keras as refusals
from ipu_conformance.emulator.tensorflow.run.accumulation import GradientAccumulationReductionMethod as Method


class ReplicatedMetricReductionMethod(Enum):
    """What is returned for a metric that every replica has."""

    NONE = 1
    """The value of the last replica."""
    LIST = 2
    SUM = 3
    MEAN = 4

    @classmethod
    def parse(cls, value: Any) -> ReplicatedMetricReductionMethod:
        """The member that is meant: itself, or its name in any case."""
        return metric_reduction(value)


SCHEDULES = ("grouped", "interleaved", "sequential")


@dataclass(frozen=True)
class Accumulation:
    """The options of gradient accumulation."""

    count: Optional[int] = None
    method: Method = Method.SUM
    version_2: bool = False
    rest: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pipelining:
    """The options of a pipelined model."""

    count: Optional[int] = None
    device_mapping: Optional[Tuple[int, ...]] = None
    accumulate_outfeed: bool = False
    method: Method = Method.SUM
    schedule: str = "grouped"
    rest: Mapping[str, Any] = field(default_factory=dict)


RESERVED_OF_ACCUMULATION = {
    "opt": "the optimizer of the model is used",
    "optimizer": "the optimizer of the model is used",
    "num_mini_batches": "set `gradient_accumulation_steps_per_replica` instead",
    "gradient_accumulation_count": "set `gradient_accumulation_steps_per_replica` instead",
    "reduction_method": "set `gradient_accumulation_reduction_method` instead",
}
RESERVED_OF_PIPELINING = {
    "computational_stages": "they are made of the layers of the model",
    "gradient_accumulation_count": "set `gradient_accumulation_steps_per_replica` instead",
    "repeat_count": "it follows from `steps_per_execution` of `compile()`",
    "batch_serialization_iterations": "it is not available for Keras models",
    "inputs": "they are taken from the data set",
    "infeed_queue": "use `set_infeed_queue_options` to change the queue",
    "outfeed_queue": "use `set_outfeed_queue_options` to change the queue",
    "optimizer_function": "the optimizer of the model is used",
    "outfeed_loss": "the loss and the metrics of the model are returned",
    "outfeed_mask": "the loss and the metrics of the model are returned",
    "reduction_method": "set `gradient_accumulation_reduction_method` instead",
    "name": "the name of the model is used",
}
ACCEPTED_BY_PIPELINING = (
    "gradient_accumulation_dtype",
    "pipeline_schedule",
    "recomputation_mode",
    "forward_propagation_stages_poplar_options",
    "backward_propagation_stages_poplar_options",
    "weight_update_poplar_options",
    "offload_weight_update_variables",
    "replicated_optimizer_state_sharding",
    "offload_activations",
    "offload_gradient_accumulation_buffers",
    "replicated_weight_sharding",
    "offload_weights",
    "continuous_weight_updates",
    "accumulate_outfeed_dtype",
)
RESERVED_OF_INFEED = {
    "dataset": "the data set given to `fit`, `evaluate` or `predict` is used",
    "feed_name": "the queues of Keras models are named by the model",
}
RESERVED_OF_OUTFEED = {
    "outfeed_mode": "it follows from the phase of the model",
    "device_ordinal": "the device of the strategy is used",
    "feed_name": "the queues of Keras models are named by the model",
}


def refuse_reserved(given: Mapping[str, Any], reserved: Mapping[str, str], where: str) -> None:
    """Keywords that Keras sets itself are refused."""
    for key in given:
        refusals.RESERVED(key=key, reserved=reserved, where=where)


def positive(name: str, value: Any) -> Optional[int]:
    """A count of at least one, or None."""
    refusals.COUNT(name=name, value=value)
    count: Optional[int] = value
    return count


def reduction_method(value: Any) -> Method:
    """One of the three reductions, from its name in any case or a member of the vendor's enumeration."""
    name = str(getattr(value, "name", value)).upper()
    refusals.REDUCTION(value=value, known=name in Method.__members__)
    return Method[name]


def metric_reduction(value: Any) -> ReplicatedMetricReductionMethod:
    """A way to reduce metrics, from the member or its name in any case."""
    if isinstance(value, ReplicatedMetricReductionMethod):
        return value
    name = str(value).upper()
    refusals.METRIC_REDUCTION(value=value, known=name in ReplicatedMetricReductionMethod.__members__)
    return ReplicatedMetricReductionMethod[name]


def schedule(value: Any) -> str:
    """The schedule of a pipeline, from its name or a member of the vendor's enumeration; None is grouped."""
    if value is None:
        return "grouped"
    name = str(getattr(value, "name", value)).lower()
    if name not in SCHEDULES:
        raise ValueError(f"`pipeline_schedule` is {value!r}: use Grouped, Interleaved or Sequential.")
    return name


def pipelining(
    count: Any, device_mapping: Optional[Sequence[int]], accumulate_outfeed: Any, method: Any, rest: Dict[str, Any]
) -> Pipelining:
    """The options of ``set_pipelining_options``."""
    refuse_reserved(rest, RESERVED_OF_PIPELINING, "pipelining_kwargs")
    unknown = sorted(set(rest) - set(ACCEPTED_BY_PIPELINING))
    refusals.UNKNOWN_OPTIONS(unknown=unknown, accepted=ACCEPTED_BY_PIPELINING)
    if device_mapping is not None:
        refusals.MAPPING(mapping=device_mapping)
        device_mapping = tuple(device_mapping)
    return Pipelining(
        positive("gradient_accumulation_steps_per_replica", count),
        device_mapping,
        bool(accumulate_outfeed),
        reduction_method(method),
        schedule(rest.get("pipeline_schedule")),
        rest,
    )


def accumulation(count: Any, method: Any, version_2: Any, rest: Dict[str, Any]) -> Accumulation:
    """The options of ``set_gradient_accumulation_options``."""
    refuse_reserved(rest, RESERVED_OF_ACCUMULATION, "gradient_accumulation_optimizer_kwargs")
    return Accumulation(
        positive("gradient_accumulation_steps_per_replica", count), reduction_method(method), bool(version_2), rest
    )
