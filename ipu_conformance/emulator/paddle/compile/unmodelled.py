"""Options that are accepted and change nothing on the emulator, each with why; a program that sets one says so once."""

from __future__ import annotations

import functools
import logging
from typing import Any, Dict, Mapping, Tuple

from ipu_conformance.emulator.paddle.compile.options import OPTIONS
from ipu_conformance.emulator.paddle.compile.strategy_options import StrategyOptions

logger = logging.getLogger("ipu_conformance.paddle")

WRONG_VALUES: Mapping[str, str] = {
    "accl1_type": "the first moment is kept in float32",
    "accl2_type": "the second moment is kept in float32",
    "accl3_type": "the third moment is kept in float32",
    "automatic_loss_scaling_settings.enabled": "the loss scaling is used as it is",
    "automatic_loss_scaling_settings.bin_edge_location": "the loss scaling is used as it is",
    "automatic_loss_scaling_settings.threshold_upper_count_proportion": "the loss scaling is used as it is",
    "convolution_options": "convolutions are summed in float32",
    "max_weight_norm": "the norm of weights in lamb is not limited",
    "scaled_optimizer_state": "the optimizer's state is not scaled with the loss",
    "synthetic_data_mode": "the data that are fed are used",
    "use_no_bias_optimizer": "biases follow the optimizer of the program",
    "weight_decay_mode": "weight decay is done as the optimizer's ops do it",
}
"""Options by which values may come out differently than on a device."""

_LAYOUT = "the values do not depend on how work and data are laid out"
_COMPILER = "there is no graph compiler below"
_MEMORY = "everything is kept on chip"
_HOST = "the values do not depend on how data are streamed"
_REPORTS = "nothing is measured or exported below the IR"

_GROUPS: Mapping[str, Tuple[str, ...]] = {
    _LAYOUT: (
        "batch_serialization_settings.batch_schedule",
        "batch_serialization_settings.concat_on_execution_phase_change",
        "batch_serialization_settings.concat_on_pipeline_stage_change",
        "batch_serialization_settings.concat_on_virtual_graph_change",
        "batch_serialization_settings.factor",
        "batch_serialization_settings.method",
        "batch_serialization_settings.transform_context",
        "enable_fully_connected_pass",
        "enable_serialized_matmuls",
        "execution_phase_settings.phases",
        "execution_phase_settings.stages",
        "gcl_options",
        "group_norm_strided_channel_grouping",
        "lstm_options",
        "num_io_tiles",
        "tiles_per_ipu",
        "global_replica_offset",
    ),
    _COMPILER: (
        "alias_zero_copy",
        "autodiff_settings.stitch_strategy",
        "compile_engine",
        "constant_weights",
        "create_implicit_pipelining_fwd_only_program",
        "custom_codelet_compile_flags",
        "custom_codelets",
        "decompose_grad_sum",
        "delay_var_updates",
        "enable_explicit_main_loops",
        "enable_merge_exchange",
        "enable_non_stable_softmax",
        "enable_outlining",
        "enable_outlining_copy_cost_pruning",
        "enable_stable_norm",
        "enable_supported_data_type_casting",
        "engine_options",
        "explicit_recomputation",
        "kahn_tie_breaker",
        "loose_threshold_at_peak",
        "merge_var_update",
        "merge_var_update_mem_threshold",
        "opx_alias_checking",
        "opx_modify_checking",
        "outline_sequence_break_cost",
        "outline_threshold",
        "schedule_non_weight_update_gradient_consumers_early",
        "separate_call_op_pdfs",
        "serialized_poprithms_shift_graphs_dir",
        "strict_op_versions",
        "subgraph_copying_strategy",
        "swap_limit_scheduler",
        "time_limit_scheduler",
        "transitive_closure_optimization_threshold",
    ),
    _MEMORY: ("disable_grad_accumulation_tensor_streams",),
    _HOST: (
        "default_prefetch_buffering_depth",
        "enable_prefetch_datastreams",
        "group_host_sync",
        "num_buffers",
        "rearrange_anchors_on_host",
        "use_host_copy_ops",
    ),
    _REPORTS: (
        "export_poplar_computation_graph",
        "export_poplar_vertex_graph",
        "hardware_instrumentations",
        "instrument_with_hardware_cycle_counter",
        "report_options",
    ),
}

AS_GOOD_AS_UNSET: Mapping[str, Tuple[Any, ...]] = {
    "convolution_options": ({"partialsType": "float"},),
}
"""Values beside the default that ask for what the emulator does."""

WITHOUT_EFFECT: Mapping[str, str] = {
    **{name: why for why, names in _GROUPS.items() for name in names},
    **WRONG_VALUES,
}
"""Every option that is not modelled, and why."""


def set_without_effect(strategy: StrategyOptions) -> Dict[str, str]:
    """The options that were set to something else than their default and have no effect, each with why."""
    return {name: why for name, why in WITHOUT_EFFECT.items() if strategy.value(name) not in _nothing(name)}


def _nothing(name: str) -> Tuple[Any, ...]:
    default = OPTIONS[name].default
    return (list(default) if isinstance(default, tuple) else default, *AS_GOOD_AS_UNSET.get(name, ()))


def report(strategy: StrategyOptions) -> None:
    """Log each option that has no effect once: as a warning where values may differ."""
    for name, why in set_without_effect(strategy).items():
        _log(name, why)


@functools.lru_cache(maxsize=None)
def _log(name: str, why: str) -> None:
    level = logging.WARNING if name in WRONG_VALUES else logging.INFO
    logger.log(level, "the option %s has no effect on the emulator: %s", name, why)
