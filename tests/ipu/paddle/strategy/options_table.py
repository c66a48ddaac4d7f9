"""The options of a strategy as the specification lists them: name, default and another value of the same type."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

TRUE = (
    "is_training", "enable_outlining", "enable_prefetch_datastreams", "compile_engine", "constant_weights",
    "delay_var_updates", "strict_op_versions", "rearrange_anchors_on_host",
)  # fmt: skip
FALSE = (
    "need_avg_shard", "enable_fp16", "use_no_bias_optimizer", "enable_distribution", "scaled_optimizer_state",
    "is_dynamic", "enable_model_runtime_executor", "runtime_options.enable_eval", "dot_op_names",
    "enable_replicated_graphs", "enable_gradient_accumulation", "enable_pipelining", "enable_engine_caching",
    "enable_floating_point_checks", "enable_stochastic_rounding", "explicit_recomputation", "enable_stable_norm",
    "automatic_loss_scaling_settings.enabled", "enable_manual_shard", "create_implicit_pipelining_fwd_only_program",
)  # fmt: skip
INTS: Mapping[str, int] = {
    "num_ipus": 1,
    "batches_per_step": 1,
    "micro_batch_size": 1,
    "tiles_per_ipu": 4,
    "num_buffers": 10,
    "replicated_graph_count": 1,
    "accumulation_factor": 1,
    "num_io_tiles": 0,
    "execution_phase_settings.phases": 0,
    "execution_phase_settings.stages": 2,
    "batch_serialization_settings.factor": 0,
    "global_replication_factor": 1,
    "global_replica_offset": 0,
    "first_dot_op": 0,
    "final_dot_op": 10000,
    "compilation_progress_total": 100,
    "transitive_closure_optimization_threshold": 100000,
}
ENUMS: Mapping[str, int] = {
    "auto_recomputation": 0,
    "merge_var_update": 0,
    "virtual_graph_mode": 0,
    "synthetic_data_mode": 0,
    "accumulation_and_replication_reduction_type": 1,
    "mean_accumulation_and_replication_reduction_strategy": 1,
    "autodiff_settings.stitch_strategy": 1,
    "batch_serialization_settings.transform_context": 0,
    "batch_serialization_settings.method": 0,
    "batch_serialization_settings.batch_schedule": 1,
    "subgraph_copying_strategy": 0,
}
FLOATS: Mapping[str, float] = {
    "available_memory_proportion": 0.0,
    "loss_scaling": 1.0,
    "max_weight_norm": 65504.0,
    "timeout_ms": 0.0,
    "lr": 0.0,
    "outline_threshold": 1.0,
    "outline_sequence_break_cost": 10000.0,
    "time_limit_scheduler": 1e9,
    "automatic_loss_scaling_settings.bin_edge_location": 0.125,
}
STRINGS: Mapping[str, str] = {
    "accl1_type": "FLOAT",
    "accl2_type": "FLOAT",
    "accl3_type": "FLOAT",
    "onnx_dump_path": "",
    "weight_decay_mode": "",
    "log_dir": "",
    "cache_path": "session_cache",
    "partials_type_matmuls": "",
    "kahn_tie_breaker": "greedy",
}
VECTORS: Tuple[str, ...] = ("dot_checks", "hardware_instrumentations", "custom_codelets")
MAPS: Tuple[str, ...] = ("engine_options", "report_options", "convolution_options", "lstm_options", "gcl_options")
SET_ONLY: Mapping[str, Any] = {
    "location_activation": {"on_chip": 1},
    "location_weight": {"on_chip": 0},
    "location_optimizer": {"on_chip": 0, "use_replicated_tensor_sharding": 1},
    "location_accumulator": {"on_chip": 1},
    "replicated_collectives_settings": {
        "prepare_schedule_for_merging_collectives": True,
        "merge_all_reduce_collectives": False,
    },
    "accumulate_outer_fragment": {3: [0, 2]},
    "custom_op": {"paddle_op": "a", "popart_op": "b", "domain": "c", "version": 1},
    "compilation_progress_logger": lambda progress, total: None,
}

BOOLS: Mapping[str, bool] = {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False)}
DEFAULTS: Mapping[str, Any] = {**BOOLS, **INTS, **ENUMS, **FLOATS, **STRINGS}


def another(name: str) -> Any:
    """A value of the option's type that is not its default; a float has few digits, so that text keeps them all."""
    default = DEFAULTS[name]
    if isinstance(default, bool):
        return not default
    if name in ENUMS:
        return 1 - default
    if isinstance(default, int):
        return default + 3
    return default + 0.25 if isinstance(default, float) else default + "x"


def of_other_types(name: str) -> Dict[str, Any]:
    """Values that the option's type does not take, by the names of their types."""
    values: Dict[str, Any] = {"bool": True, "int": 2, "float": 0.5, "str": "text"}
    own = {bool: "bool", int: "int", float: "float", str: "str"}[type(DEFAULTS[name])]
    return {kind: value for kind, value in values.items() if kind != own}
