"""Configuring before SDK 2.1: functions that each set some options, in one table that says what they are today.

``create_ipu_config`` makes the options, every other function changes and returns them, and ``configure_ipu_system``
puts them in force. An option that no attribute of IPUConfig stands for only steers reports or transfers: it is checked
and has no effect.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Tuple

from ipu_conformance.emulator.tensorflow import legacy
from ipu_conformance.emulator.tensorflow.config.attributes import (
    ATTRIBUTES,
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from ipu_conformance.emulator.tensorflow.config.ipu_config import IPUConfig, IpuOptions
from ipu_conformance.emulator.tensorflow.config.tree import AttributeMetadata
from ipu_conformance.emulator.tensorflow.refusals import legacy as refusals
from ipu_conformance.errors import ConformanceError

REQUIRED = inspect.Parameter.empty
UNCHANGED = object()
"""What a conversion returns to leave an attribute as it is."""


class LegacyOptionError(ConformanceError):
    """An option of an earlier SDK is not what its function takes."""


@dataclass(frozen=True)
class Option:
    """A parameter of an old function, the attribute of IPUConfig that it sets today, and how its value is put there."""

    name: str
    default: Any = REQUIRED
    attribute: str = ""
    convert: Callable[[Any], Any] = lambda value: value


@dataclass(frozen=True)
class Setter:
    """An old function: what it takes besides the options, and what it refuses."""

    options: Tuple[Option, ...]
    check: Callable[[IpuOptions, Mapping[str, Any]], None] = lambda options, given: None


def _added(name: str) -> Callable[[Any], Any]:
    """Options for a library of the vendor's, which are added to those that were set before."""

    def convert(value: Any) -> Any:
        if not value:
            return UNCHANGED
        refusals.DICTIONARY(name=name, value=value)
        return {str(key): str(item) for key, item in dict(value).items()}

    return convert


_SCHEDULERS = {
    "": SchedulingAlgorithm.CHOOSE_BEST,
    "Clustering": SchedulingAlgorithm.CLUSTERING,
    "PostOrder": SchedulingAlgorithm.POST_ORDER,
    "LookAhead": SchedulingAlgorithm.LOOK_AHEAD,
    "ShortestPath": SchedulingAlgorithm.SHORTEST_PATH,
}
_MERGING = {
    None: MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
    True: MergeRemoteBuffersBehaviour.MERGE,
    False: MergeRemoteBuffersBehaviour.NO_MERGING,
}


def _scheduler(value: Any) -> Any:
    return _SCHEDULERS.get(value, value) if isinstance(value, str) else value


def _merging(value: Any) -> Any:
    return value if isinstance(value, MergeRemoteBuffersBehaviour) else _MERGING[value]


def _not(value: Any) -> bool:
    return not value


def _if_given(value: Any) -> Any:
    return UNCHANGED if value is None else value


def _version(value: Any) -> Any:
    return f"ipu{value}" if isinstance(value, int) else value


def _order(value: Any) -> Any:
    return value or SelectionOrder.AUTO


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, int) else list(value)


def _check_profiling(options: IpuOptions, given: Mapping[str, Any]) -> None:
    profile = given["profile_execution"]
    wanted = profile not in (None, False, ExecutionProfileType.NO_PROFILE)
    refusals.EVENTS(profiling=given["profiling"], enable_ipu_events=given["enable_ipu_events"])
    refusals.EXECUTION_PROFILE(profiling=given["profiling"], profile_execution=wanted)
    if wanted and not isinstance(profile, (bool, ExecutionProfileType)):
        raise LegacyOptionError(f"`profile_execution` is {profile!r}; use True, False or an ExecutionProfileType.")


def _check_number(options: IpuOptions, given: Mapping[str, Any]) -> None:
    refusals.SECOND_SELECTION(chosen=options.auto_select_ipus or options.select_ipus)
    refusals.NUMBER_TYPE(number=given["num_ipus"])


def _check_indices(options: IpuOptions, given: Mapping[str, Any]) -> None:
    refusals.SECOND_SELECTION(chosen=options.auto_select_ipus or options.select_ipus)
    refusals.INDICES_TYPE(indices=given["indices"])
    refusals.INDICES_TWICE(indices=given["indices"])


SETTERS: Dict[str, Setter] = {
    "create_ipu_config": Setter(
        (
            Option("profiling", False),
            Option("enable_ipu_events", False),
            Option("use_poplar_text_report", False),
            Option("use_poplar_cbor_report", False),
            Option("profile_execution", None),
            Option("enable_poplar_serialized_graph", False),
            Option("report_every_nth_execution", 0),
            Option("max_report_size", 0x10000000),
            Option("report_directory", ""),
            Option("scheduler_selection", SchedulingAlgorithm.CHOOSE_BEST, "scheduling.algorithm", _scheduler),
            Option("always_rearrange_copies_on_the_host", False, "experimental.always_rearrange_copies_on_the_host"),
            Option("merge_infeed_io_copies", False, "optimizations.merge_infeed_io_copies"),
            Option("disable_graph_outlining", False, "optimizations.enable_graph_outlining", _not),
            Option("retain_control_dependencies", False),
            Option("max_cross_replica_sum_buffer_size", 0, "optimizations.maximum_cross_replica_sum_buffer_size"),
            Option("max_inter_ipu_copies_buffer_size", 0, "optimizations.maximum_inter_ipu_copies_buffer_size"),
            Option("max_scheduler_lookahead_depth", 5, "scheduling.maximum_scheduler_lookahead_depth"),
            Option("max_scheduler_search_space_size", 64, "scheduling.maximum_scheduler_search_space_size"),
            Option("prefetch_data_streams", True, "optimizations.prefetch_data_streams"),
            Option("selection_order", SelectionOrder.AUTO, "selection_order", _order),
            Option("enable_experimental_remote_buffer_embedding", False, "experimental.enable_remote_buffer_embedding"),
            Option("disable_graph_convolution_caching", False),  # of the SDKs 1.x, where programs give it by name
        ),
        _check_profiling,
    ),
    "set_serialization_options": Setter((Option("output_folder", "", "serialization_output_folder"),)),
    "set_optimization_options": Setter(
        (
            Option("combine_embedding_lookups", False, "optimizations.combine_embedding_lookups"),
            Option("combine_matmuls", False, "optimizations.combine_matmuls"),
            Option("max_cross_replica_sum_buffer_size", 0, "optimizations.maximum_cross_replica_sum_buffer_size"),
            Option("max_reduce_scatter_buffer_size", 0, "optimizations.maximum_reduce_scatter_buffer_size"),
            Option("max_inter_ipu_copies_buffer_size", 0, "optimizations.maximum_inter_ipu_copies_buffer_size"),
            Option("max_send_recv_cluster_size", 0, "optimizations.maximum_send_recv_cluster_size"),
            Option("minimum_remote_tensor_size", 128, "optimizations.minimum_remote_tensor_size"),
            Option(
                "merge_remote_buffers",
                MergeRemoteBuffersBehaviour.NO_MERGING,
                "optimizations.merge_remote_buffers",
                _merging,
            ),
            Option("gather_simplifier", True, "optimizations.enable_gather_simplifier"),
            Option("triangular_solve_expander_block_size", 0, "optimizations.triangular_solve_expander_block_size"),
            Option("cholesky_block_size", 0, "optimizations.cholesky_block_size"),
            Option("enable_fast_math", False, "optimizations.math.fast"),
        )
    ),
    "set_norm_options": Setter(
        (
            Option("use_stable_statistics", False, "norms.use_stable_statistics"),
            Option(
                "experimental_distributed_batch_norm_replica_group_size",
                1,
                "norms.experimental.distributed_batch_norm_replica_group_size",
            ),
        ),
        lambda options, given: refusals.GROUP_SIZE(
            size=given["experimental_distributed_batch_norm_replica_group_size"]
        ),
    ),
    "set_transfer_options": Setter((Option("use_verified_transfers", False),)),
    "set_compilation_options": Setter(
        (Option("compilation_options", None, "compilation_poplar_options", _added("compilation_options")),)
    ),
    "set_convolution_options": Setter(
        (Option("convolution_options", None, "convolutions.poplar_options", _added("convolution_options")),)
    ),
    "set_matmul_options": Setter(
        (
            Option("matmul_options", None, "matmuls.poplar_options", _added("matmul_options")),
            Option("clear_pass_type", False, "matmuls.clear_pass_type"),
        )
    ),
    "set_pooling_options": Setter(
        (Option("pooling_options", None, "pooling.poplar_options", _added("pooling_options")),)
    ),
    "set_gcl_options": Setter((Option("gcl_options", None, "gcl_poplar_options", _added("gcl_options")),)),
    "set_report_options": Setter((Option("graph_options", None), Option("execution_options", None))),
    "set_ipu_model_options": Setter(
        (
            Option("compile_ipu_code", True, "ipu_model.compile_ipu_code"),
            Option("tiles_per_ipu", None, "ipu_model.tiles_per_ipu", _if_given),
            Option("ipu_model_version", "ipu2", "ipu_model.version"),
        )
    ),
    "set_recomputation_options": Setter(
        (Option("allow_recompute", True, "allow_recompute"), Option("allow_stateful_recompute", None))
    ),
    "set_floating_point_behaviour_options": Setter(
        (
            Option("inv", True, "floating_point_behaviour.inv"),
            Option("div0", True, "floating_point_behaviour.div0"),
            Option("oflo", True, "floating_point_behaviour.oflo"),
            Option("esr", True, "floating_point_behaviour.esr", StochasticRoundingBehaviour.from_bool),
            Option("nanoo", True, "floating_point_behaviour.nanoo"),
        )
    ),
    "set_io_tile_options": Setter(
        (
            Option("num_io_tiles", attribute="io_tiles.num_io_tiles"),
            Option("place_ops_on_io_tiles", None, "io_tiles.place_ops_on_io_tiles", _if_given),
            Option("io_tile_available_memory_proportion", 0.9, "io_tiles.available_memory_proportion"),
        ),
        lambda options, given: refusals.IO_TILES(place=given["place_ops_on_io_tiles"], tiles=given["num_io_tiles"]),
    ),
    "auto_select_ipus": Setter((Option("num_ipus", attribute="auto_select_ipus", convert=_listed),), _check_number),
    "select_ipus": Setter((Option("indices", attribute="select_ipus", convert=_listed),), _check_indices),
    "set_ipu_connection_type": Setter(
        (
            Option("connection_type", DeviceConnectionType.ALWAYS, "device_connection.type"),
            Option("ipu_version", "", "device_connection.version", _version),
            Option("enable_remote_buffers", False, "device_connection.enable_remote_buffers"),
        ),
        lambda options, given: refusals.VERSION(kind=given["connection_type"], version=given["ipu_version"]),
    ),
    "set_experimental_multi_replica_distribution_options": Setter(
        (
            Option("process_count", attribute="experimental.multi_replica_distribution.process_count"),
            Option("process_index", attribute="experimental.multi_replica_distribution.process_index"),
        ),
        lambda options, given: refusals.PROCESSES(index=given["process_index"], count=given["process_count"]),
    ),
}
"""Every function that made or changed options, by its name in ``ipu.utils``."""


class _Options(IpuOptions):
    """Options that the functions of the table change; what is put in force is a copy of them."""


@functools.lru_cache(maxsize=None)
def function(name: str) -> Callable[..., IpuOptions]:
    """The old function of that name."""
    setter, makes = SETTERS[name], name == "create_ipu_config"
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(option.name, kind, default=option.default) for option in setter.options]
    if not makes:
        parameters.insert(0, inspect.Parameter("opts", kind))
    signature = inspect.Signature(parameters)

    def change(*args: Any, **kwargs: Any) -> IpuOptions:
        legacy.entered(f"ipu.utils.{name}")
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        options = _Options(IPUConfig()._create_protobuf()._values) if makes else given.pop("opts")
        refusals.NOT_OPTIONS(opts=options, kind=_Options)
        setter.check(options, given)
        for option in setter.options:
            _set(options, option, given[option.name])
        return options

    change.__name__ = change.__qualname__ = name
    change.__doc__ = "Makes options with nothing selected." if makes else "Changes the options and returns them."
    change.__signature__ = signature  # type: ignore[attr-defined]
    return change


def _set(options: IpuOptions, option: Option, value: Any) -> None:
    value = option.convert(value)
    if not option.attribute or value is UNCHANGED:
        return
    AttributeMetadata.of(ATTRIBUTES.rows[option.attribute]).check_type(value)
    before = options._values[option.attribute]
    options._values[option.attribute] = {**before, **value} if isinstance(value, dict) else value
