"""The options of an IPU strategy: for each its type, its default and, for an enumeration, its values.

Types are strict. bool, uint64, double and string options are four tables, and a name is found only in the table of the
type of the value that is set. Vectors grow by lists and sets, maps by dicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Tuple, Union

BOOL, UINT64, DOUBLE, STRING, VECTOR, MAP = "bool", "uint64", "double", "string", "vector", "map"

Value = Union[bool, int, float, str, Tuple[str, ...], Mapping[str, str]]

UNSET_SEED = 2**64 - 1
"""What ``random_seed`` holds until it is set: the largest uint64."""


@dataclass(frozen=True)
class Option:
    """One option of a strategy."""

    name: str
    type: str
    default: Any
    members: Tuple[str, ...] = ()
    """The names of an enumeration's values, which are set as 0, 1, …; empty for any other option."""
    enumeration: str = ""
    """What the enumeration is called."""


ENUMERATIONS: Mapping[str, Tuple[str, ...]] = {
    "AutodiffStitchStrategy": ("RecomputeMinimal", "RecomputeAllNonInputs", "AddFwdOutputs", "SafeAddFwdOutputs"),
    "BatchSerializationTransformContext": ("Fwd", "Bwd"),
    "BatchSerializationMethod": ("UnrollDynamic", "UnrollStatic", "Loop"),
    "BatchSerializationBatchSchedule": ("Scheduler", "Isomorphic", "OverlapOnIo", "OverlapOnCompute"),
    "RecomputationType": ("None", "Standard", "NormOnly", "Pipeline", "RecomputeAll"),
    "MergeVarUpdateType": ("None", "All", "AutoLoose", "AutoTight"),
    "VirtualGraphMode": ("Off", "Manual", "Auto", "ExecutionPhases"),
    "SyntheticDataMode": ("Off", "Zeros", "RandomNormal", "RandomUniform"),
    "SubgraphCopyingStrategy": ("OnEnterAndExit", "JustInTime"),
    "ReductionType": ("Sum", "Mean", "NoReduction"),
    "MeanReductionStrategy": ("Running", "Post", "PostAndLoss"),
}

_ENUMS: Mapping[str, Tuple[str, int]] = {
    "accumulation_and_replication_reduction_type": ("ReductionType", 1),
    "auto_recomputation": ("RecomputationType", 0),
    "autodiff_settings.stitch_strategy": ("AutodiffStitchStrategy", 1),
    "batch_serialization_settings.batch_schedule": ("BatchSerializationBatchSchedule", 1),
    "batch_serialization_settings.method": ("BatchSerializationMethod", 0),
    "batch_serialization_settings.transform_context": ("BatchSerializationTransformContext", 0),
    "mean_accumulation_and_replication_reduction_strategy": ("MeanReductionStrategy", 1),
    "merge_var_update": ("MergeVarUpdateType", 0),
    "subgraph_copying_strategy": ("SubgraphCopyingStrategy", 0),
    "synthetic_data_mode": ("SyntheticDataMode", 0),
    "virtual_graph_mode": ("VirtualGraphMode", 0),
}

_INTS: Mapping[str, int] = {
    # Paddle's own
    "batches_per_step": 1,
    "micro_batch_size": 1,
    "num_buffers": 10,
    "num_ipus": 1,
    "random_seed": UNSET_SEED,
    "tiles_per_ipu": 4,
    # PopART's session options
    "accumulation_factor": 1,
    "batch_serialization_settings.factor": 0,
    "compilation_progress_total": 100,
    "default_prefetch_buffering_depth": 1,
    "execution_phase_settings.phases": 0,
    "execution_phase_settings.stages": 2,
    "final_dot_op": 10000,
    "first_dot_op": 0,
    "global_replica_offset": 0,
    "global_replication_factor": 1,
    "loose_threshold_at_peak": 8000,
    "merge_var_update_mem_threshold": 1000000,
    "num_io_tiles": 0,
    "replicated_graph_count": 1,
    "swap_limit_scheduler": 1000000000,
    "transitive_closure_optimization_threshold": 100000,
}

_FLOATS: Mapping[str, float] = {
    # Paddle's own
    "available_memory_proportion": 0.0,
    "loss_scaling": 1.0,
    "lr": 0.0,
    "max_weight_norm": 65504.0,
    "timeout_ms": 0.0,
    # PopART's session options
    "automatic_loss_scaling_settings.bin_edge_location": 0.125,
    "automatic_loss_scaling_settings.threshold_upper_count_proportion": 1e-7,
    "outline_sequence_break_cost": 10000.0,
    "outline_threshold": 1.0,
    "time_limit_scheduler": 1e9,
}

_STRINGS: Mapping[str, str] = {
    # Paddle's own
    "accl1_type": "FLOAT",
    "accl2_type": "FLOAT",
    "accl3_type": "FLOAT",
    "onnx_dump_path": "",
    "weight_decay_mode": "",
    # PopART's session options
    "cache_path": "session_cache",
    "custom_codelet_compile_flags": "",
    "kahn_tie_breaker": "greedy",
    "log_dir": "",
    "partials_type_matmuls": "",
    "serialized_poprithms_shift_graphs_dir": "",
}

_TRUE: Tuple[str, ...] = (
    "is_training",
    "alias_zero_copy",
    "batch_serialization_settings.concat_on_execution_phase_change",
    "batch_serialization_settings.concat_on_pipeline_stage_change",
    "batch_serialization_settings.concat_on_virtual_graph_change",
    "compile_engine",
    "constant_weights",
    "decompose_grad_sum",
    "delay_var_updates",
    "enable_fully_connected_pass",
    "enable_merge_exchange",
    "enable_non_stable_softmax",
    "enable_outlining",
    "enable_outlining_copy_cost_pruning",
    "enable_prefetch_datastreams",
    "enable_serialized_matmuls",
    "group_norm_strided_channel_grouping",
    "rearrange_anchors_on_host",
    "separate_call_op_pdfs",
    "strict_op_versions",
)

_FALSE: Tuple[str, ...] = (
    # Paddle's own
    "enable_distribution",
    "enable_fp16",
    "enable_half_partial",
    "enable_manual_shard",
    "enable_model_runtime_executor",
    "is_dynamic",
    "need_avg_shard",
    "runtime_options.enable_eval",
    "scaled_optimizer_state",
    "use_no_bias_optimizer",
    # PopART's session options
    "automatic_loss_scaling_settings.enabled",
    "create_implicit_pipelining_fwd_only_program",
    "disable_grad_accumulation_tensor_streams",
    "dot_op_names",
    "enable_distributed_replicated_graphs",
    "enable_engine_caching",
    "enable_explicit_main_loops",
    "enable_floating_point_checks",
    "enable_gradient_accumulation",
    "enable_pipelining",
    "enable_replicated_graphs",
    "enable_stable_norm",
    "enable_stochastic_rounding",
    "enable_supported_data_type_casting",
    "explicit_recomputation",
    "export_poplar_computation_graph",
    "export_poplar_vertex_graph",
    "group_host_sync",
    "instrument_with_hardware_cycle_counter",
    "opx_alias_checking",
    "opx_modify_checking",
    "schedule_non_weight_update_gradient_consumers_early",
    "use_host_copy_ops",
)

CUSTOM_OPS = "custom_ops"
"""The custom ops that were added, which can be read and not set."""

_VECTORS: Tuple[str, ...] = ("custom_codelets", CUSTOM_OPS, "dot_checks", "hardware_instrumentations")
_MAPS: Tuple[str, ...] = (
    "convolution_options",
    "engine_options",
    "gcl_options",
    "lstm_options",
    "report_options",
)

LOCATIONS: Tuple[str, ...] = ("location_activation", "location_weight", "location_optimizer", "location_accumulator")
LOCATION_KEYS: Tuple[str, ...] = (
    "on_chip",
    "use_replicated_tensor_sharding",
    "use_io_tiles_to_load",
    "use_io_tiles_to_store",
    "sharding_domain_with_all",
    "sharding_domain_with_consecutive",
    "sharding_domain_with_orthogonal",
    "min_elements_for_off_chip",
    "min_elements_for_replicated_tensor_sharding",
)
COLLECTIVES = "replicated_collectives_settings"
COLLECTIVE_KEYS: Tuple[str, ...] = ("prepare_schedule_for_merging_collectives", "merge_all_reduce_collectives")
CUSTOM_OP_KEYS: Tuple[str, ...] = ("paddle_op", "popart_op", "domain", "version")

SET_ONLY: Tuple[str, ...] = (
    *LOCATIONS,
    COLLECTIVES,
    "accumulate_outer_fragment",
    "custom_op",
    "compilation_progress_logger",
)
"""Options that can be set and not read back."""


def _table() -> Dict[str, Option]:
    rows = [
        *(Option(name, BOOL, True) for name in _TRUE),
        *(Option(name, BOOL, False) for name in _FALSE),
        *(Option(name, UINT64, default) for name, default in _INTS.items()),
        *(
            Option(name, UINT64, default, ENUMERATIONS[enumeration], enumeration)
            for name, (enumeration, default) in _ENUMS.items()
        ),
        *(Option(name, DOUBLE, default) for name, default in _FLOATS.items()),
        *(Option(name, STRING, default) for name, default in _STRINGS.items()),
        *(Option(name, VECTOR, ()) for name in _VECTORS),
        *(Option(name, MAP, {}) for name in _MAPS),
    ]
    return {row.name: row for row in rows}


OPTIONS: Mapping[str, Option] = _table()
"""Every option that can be read, by its name."""
SETTABLE: Mapping[str, Option] = {name: option for name, option in OPTIONS.items() if name != CUSTOM_OPS}
"""Every option that can be set and read back, by its name."""
