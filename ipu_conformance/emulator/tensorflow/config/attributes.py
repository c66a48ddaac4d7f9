"""Every attribute of IPUConfig with its default, and the enumerations that some of them take."""

from __future__ import annotations

from enum import Enum

from ipu_conformance.emulator.tensorflow.config.tree import Row, Table


class SelectionOrder(Enum):
    """The order in which the IPUs of a device are numbered along the links of the machine."""

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3


class DeviceConnectionType(Enum):
    """When the host takes hold of an IPU device."""

    ALWAYS = 0
    ON_DEMAND = 1
    NEVER = 2
    PRE_COMPILE = 3


class ExecutionProfileType(Enum):
    """What an execution profile counts cycles of."""

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class MergeRemoteBuffersBehaviour(Enum):
    """Whether remote buffers of one shape become one."""

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


class SchedulingAlgorithm(Enum):
    """How the compiler orders what may be ordered freely."""

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4


class StochasticRoundingBehaviour(Enum):
    """Whether values are rounded at random, everywhere or only where replicas stay identical."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @classmethod
    def from_bool(cls, value: bool) -> StochasticRoundingBehaviour:
        """ON for True, OFF for False."""
        if not isinstance(value, bool):
            raise TypeError(f"{value!r} was given; use True or False.")
        return cls.ON if value else cls.OFF


ATTRIBUTES = Table(
    (
        Row("auto_select_ipus", [], "How many IPUs each device has, for devices that are found on their own.",
            selection=True),
        Row("select_ipus", [], "The id of the IPUs of each device, as the vendor's tools list them.", selection=True),
        Row("allow_recompute", False, "Whether activations are computed again in the backward pass, not kept."),
        Row("selection_order", SelectionOrder.AUTO, "How the IPUs of a device are numbered."),
        Row("serialization_output_folder", "", "Where compiled programs are written; nowhere if empty."),
        Row("compilation_poplar_options", {}, "Options of the compiler."),
        Row("gcl_poplar_options", {}, "Options of the library of collectives."),
        Row("convolutions.poplar_options", {}, "Options of every convolution."),
        Row("device_connection.version", "", "The IPU to compile for when none is attached: ipu1, ipu2 or ipu21."),
        Row("device_connection.type", DeviceConnectionType.ALWAYS, "When the host takes hold of the device."),
        Row("device_connection.enable_remote_buffers", False,
            "Whether a device that is not attached is taken to have remote buffers."),
        Row("experimental.always_rearrange_copies_on_the_host", False,
            "Whether the host arranges data for the device, not the device."),
        Row("experimental.enable_remote_buffer_embedding", False,
            "Whether host embeddings live in remote buffers."),
        Row("experimental.enable_prng_stability", False,
            "Whether the random numbers of replicas stay in step where they must."),
        Row("experimental.multi_replica_distribution.process_index", 0, "The number of this process of the run."),
        Row("experimental.multi_replica_distribution.process_count", 0,
            "How many processes share a run; 0 for a run of one process."),
        Row("floating_point_behaviour.inv", False, "Whether an invalid operation stops the program."),
        Row("floating_point_behaviour.div0", False, "Whether a division by zero stops the program."),
        Row("floating_point_behaviour.oflo", False, "Whether an overflow stops the program."),
        Row("floating_point_behaviour.nanoo", False, "Whether a float16 overflow gives NaN, not the largest value."),
        Row("floating_point_behaviour.esr", StochasticRoundingBehaviour.OFF, "Whether float16 rounds at random."),
        Row("floating_point_behaviour.set_all", False, "Whether all of this category is on, whatever else is set."),
        Row("io_tiles.num_io_tiles", 0, "How many tiles of each IPU are kept for input and output."),
        Row("io_tiles.place_ops_on_io_tiles", False, "Whether ops that only move data run on those tiles."),
        Row("io_tiles.available_memory_proportion", 0.9, "How much of those tiles' memory ops may take."),
        Row("ipu_model.compile_ipu_code", True, "Whether the IPU model compiles the code of a real IPU."),
        Row("ipu_model.tiles_per_ipu", 0, "The tiles of an IPU of the model; 0 for those of its version."),
        Row("ipu_model.version", "ipu2", "The IPU that the model stands for: ipu1, ipu2 or ipu21."),
        Row("matmuls.clear_pass_type", False, "Whether all matrix products share one layout plan."),
        Row("matmuls.poplar_options", {}, "Options of every matrix product."),
        Row("norms.use_stable_statistics", False, "Whether variances are computed from centred values."),
        Row("norms.experimental.distributed_batch_norm_replica_group_size", 1,
            "How many neighbouring replicas share the statistics of batch normalisation."),
        Row("optimizations.math.fast", False, "Whether rules of real numbers may be applied to floating point."),
        Row("optimizations.math.dot_strength", True, "Whether small matrix products may become other ops."),
        Row("optimizations.prefetch_data_streams", True, "Whether data is fetched before it is needed."),
        Row("optimizations.combine_embedding_lookups", False, "Whether lookups in one table become one."),
        Row("optimizations.combine_matmuls", False, "Whether matrix products with one operand in common become one."),
        Row("optimizations.enable_graph_outlining", True, "Whether repeated parts of a program share their code."),
        Row("optimizations.merge_infeed_io_copies", True, "Whether the copies of an infeed are made together."),
        Row("optimizations.maximum_cross_replica_sum_buffer_size", 0, "Bytes of all-reduces that may wait."),
        Row("optimizations.maximum_reduce_scatter_buffer_size", 0, "Bytes of reduce-scatters that may wait."),
        Row("optimizations.maximum_inter_ipu_copies_buffer_size", 0, "Bytes of copies between IPUs that may wait."),
        Row("optimizations.maximum_send_recv_cluster_size", 0, "Bytes of sends and receives that may wait."),
        Row("optimizations.maximum_reduce_many_buffer_size", 0, "Bytes of reductions that may wait."),
        Row("optimizations.maximum_all_gather_buffer_size", 0, "Bytes of all-gathers that may wait."),
        Row("optimizations.minimum_remote_tensor_size", 128, "Bytes from which a tensor may live in remote memory."),
        Row("optimizations.merge_remote_buffers", MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
            "Whether remote buffers of one shape become one."),
        Row("optimizations.enable_gather_simplifier", True, "Whether gathers with known indices become slices."),
        Row("optimizations.triangular_solve_expander_block_size", 0, "The block of a triangular solve; 0 for any."),
        Row("optimizations.cholesky_block_size", 0, "The block of a Cholesky factorisation; 0 for any."),
        Row("optimizations.enable_dynamic_slice_replacement", True,
            "Whether dynamic slices become lookups where these are faster."),
        Row("optimizations.enable_fast_math", False, "Another name of optimizations.math.fast.",
            deprecated="use optimizations.math.fast instead.", sets="optimizations.math.fast"),
        Row("pooling.poplar_options", {}, "Options of every pooling."),
        Row("scheduling.algorithm", SchedulingAlgorithm.CHOOSE_BEST, "How ops are ordered."),
        Row("scheduling.maximum_scheduler_lookahead_depth", 5, "How far the look-ahead scheduler sees."),
        Row("scheduling.maximum_scheduler_search_space_size", 64, "How many orders the look-ahead scheduler tries."),
        Row("slices.poplar_options", {}, "Options of every slice."),
    )
)  # fmt: skip
"""The rows in the order in which a configuration is printed."""
