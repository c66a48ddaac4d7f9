"""Programs of earlier SDKs: functions that configured the system, old names of arguments and of modules.

The vendor's notes on SDK 2.1 name the attribute of IPUConfig that took the place of each option; later SDKs have none
of the functions (graphcore/tensorflow ``tensorflow/python/ipu/utils.py`` of 1.x to 2.3 has them), so only the emulator
is asked.
"""

from __future__ import annotations

import importlib
import operator
from typing import Any, Dict, List, Tuple

import pytest

from ipu_conformance import check

pytestmark = pytest.mark.emulator

CREATE, OPTIMIZE, NORM = "create_ipu_config", "set_optimization_options", "set_norm_options"
IO_TILES, FLOAT, CONNECT = "set_io_tile_options", "set_floating_point_behaviour_options", "set_ipu_connection_type"
DISTRIBUTE = "set_experimental_multi_replica_distribution_options"
OPTIONS: Dict[str, Tuple[str, Dict[str, Any], Any]] = {
    "selection_order": (CREATE, {"selection_order": "SelectionOrder.SNAKE"}, "SelectionOrder.SNAKE"),
    "scheduling.algorithm": (CREATE, {"scheduler_selection": "PostOrder"}, "SchedulingAlgorithm.POST_ORDER"),
    "scheduling.maximum_scheduler_lookahead_depth": (CREATE, {"max_scheduler_lookahead_depth": 7}, 7),
    "scheduling.maximum_scheduler_search_space_size": (CREATE, {"max_scheduler_search_space_size": 33}, 33),
    "experimental.always_rearrange_copies_on_the_host": (CREATE, {"always_rearrange_copies_on_the_host": True}, True),
    "experimental.enable_remote_buffer_embedding": (
        CREATE, {"enable_experimental_remote_buffer_embedding": True}, True,
    ),
    "optimizations.merge_infeed_io_copies": (CREATE, {}, False),
    "optimizations.enable_graph_outlining": (CREATE, {"disable_graph_outlining": True}, False),
    "optimizations.prefetch_data_streams": (CREATE, {"prefetch_data_streams": False}, False),
    "optimizations.combine_matmuls": (OPTIMIZE, {"combine_matmuls": True}, True),
    "optimizations.combine_embedding_lookups": (OPTIMIZE, {"combine_embedding_lookups": True}, True),
    "optimizations.maximum_cross_replica_sum_buffer_size": (OPTIMIZE, {"max_cross_replica_sum_buffer_size": 3}, 3),
    "optimizations.maximum_reduce_scatter_buffer_size": (OPTIMIZE, {"max_reduce_scatter_buffer_size": 4}, 4),
    "optimizations.maximum_inter_ipu_copies_buffer_size": (OPTIMIZE, {"max_inter_ipu_copies_buffer_size": 5}, 5),
    "optimizations.maximum_send_recv_cluster_size": (OPTIMIZE, {"max_send_recv_cluster_size": 6}, 6),
    "optimizations.minimum_remote_tensor_size": (OPTIMIZE, {"minimum_remote_tensor_size": 9}, 9),
    "optimizations.merge_remote_buffers": (
        OPTIMIZE, {"merge_remote_buffers": True}, "MergeRemoteBuffersBehaviour.MERGE",
    ),
    "optimizations.enable_gather_simplifier": (OPTIMIZE, {"gather_simplifier": False}, False),
    "optimizations.triangular_solve_expander_block_size": (OPTIMIZE, {"triangular_solve_expander_block_size": 8}, 8),
    "optimizations.cholesky_block_size": (OPTIMIZE, {"cholesky_block_size": 11}, 11),
    "optimizations.math.fast": (OPTIMIZE, {"enable_fast_math": True}, True),
    "serialization_output_folder": ("set_serialization_options", {"output_folder": "there"}, "there"),
    "norms.use_stable_statistics": (NORM, {"use_stable_statistics": True}, True),
    "norms.experimental.distributed_batch_norm_replica_group_size": (
        NORM, {"experimental_distributed_batch_norm_replica_group_size": 3}, 3,
    ),
    "compilation_poplar_options": ("set_compilation_options", {"compilation_options": {"a": "b"}}, {"a": "b"}),
    "convolutions.poplar_options": ("set_convolution_options", {"convolution_options": {"c": "d"}}, {"c": "d"}),
    "matmuls.poplar_options": ("set_matmul_options", {"matmul_options": {"e": "f"}}, {"e": "f"}),
    "matmuls.clear_pass_type": ("set_matmul_options", {"clear_pass_type": True}, True),
    "pooling.poplar_options": ("set_pooling_options", {"pooling_options": {"g": "h"}}, {"g": "h"}),
    "gcl_poplar_options": ("set_gcl_options", {"gcl_options": {"i": "j"}}, {"i": "j"}),
    "ipu_model.compile_ipu_code": ("set_ipu_model_options", {"compile_ipu_code": False}, False),
    "ipu_model.tiles_per_ipu": ("set_ipu_model_options", {"tiles_per_ipu": 12}, 12),
    "ipu_model.version": ("set_ipu_model_options", {"ipu_model_version": "ipu1"}, "ipu1"),
    "allow_recompute": ("set_recomputation_options", {}, True),
    "floating_point_behaviour.inv": (FLOAT, {}, True),
    "floating_point_behaviour.div0": (FLOAT, {}, True),
    "floating_point_behaviour.oflo": (FLOAT, {}, True),
    "floating_point_behaviour.nanoo": (FLOAT, {}, True),
    "floating_point_behaviour.esr": (FLOAT, {}, "StochasticRoundingBehaviour.ON"),
    "io_tiles.num_io_tiles": (IO_TILES, {"num_io_tiles": 32}, 32),
    "io_tiles.place_ops_on_io_tiles": (IO_TILES, {"num_io_tiles": 32, "place_ops_on_io_tiles": True}, True),
    "io_tiles.available_memory_proportion": (
        IO_TILES, {"num_io_tiles": 32, "io_tile_available_memory_proportion": 0.5}, 0.5,
    ),
    "auto_select_ipus": ("auto_select_ipus", {"num_ipus": [4, 1]}, [4, 1]),
    "select_ipus": ("select_ipus", {"indices": [3, 1]}, [3, 1]),
    "device_connection.type": (
        CONNECT, {"connection_type": "DeviceConnectionType.ON_DEMAND"}, "DeviceConnectionType.ON_DEMAND",
    ),
    "device_connection.version": (CONNECT, {"ipu_version": 2}, "ipu2"),
    "device_connection.enable_remote_buffers": (CONNECT, {"enable_remote_buffers": True}, True),
    "experimental.multi_replica_distribution.process_count": (DISTRIBUTE, {"process_count": 5, "process_index": 3}, 5),
    "experimental.multi_replica_distribution.process_index": (DISTRIBUTE, {"process_count": 5, "process_index": 3}, 3),
}  # fmt: skip
"""The attribute of today, and the old function, its arguments and the value that follows."""
REFUSED: Dict[str, Tuple[str, Dict[str, Any], Any, str]] = {
    "two kinds of events": (CREATE, {"profiling": True, "enable_ipu_events": True}, Exception, "mutually exclusive"),
    "execution alone": (CREATE, {"profile_execution": True}, Exception, "`profiling` is required"),
    "no scheduler": (CREATE, {"scheduler_selection": "Fastest"}, TypeError, "SchedulingAlgorithm"),
    "no dictionary": ("set_matmul_options", {"matmul_options": [("a", "b")]}, Exception, "must be a dictionary"),
    "no number": ("auto_select_ipus", {"num_ipus": "4"}, Exception, "integer, list or tuple"),
    "one index": ("select_ipus", {"indices": 3}, Exception, "must be a list or tuple"),
    "an index twice": ("select_ipus", {"indices": [3, 1, 3]}, Exception, "must be unique"),
    "an empty group": (NORM, {"experimental_distributed_batch_norm_replica_group_size": 0}, ValueError, "at least 1"),
    "no I/O tiles": (IO_TILES, {"num_io_tiles": 0, "place_ops_on_io_tiles": True}, ValueError, "I/O tiles"),
    "no version": (CONNECT, {"connection_type": "DeviceConnectionType.NEVER"}, Exception, "ipu_version"),
    "a process too many": (DISTRIBUTE, {"process_count": 3, "process_index": 3}, ValueError, "process_index"),
}
"""What the old functions refuse, with the vendor's kinds of errors."""


def meant(ipu: Any, value: Any) -> Any:
    """The member of an enumeration that a text names; any other value as it is."""
    kind, _, member = value.partition(".") if isinstance(value, str) else ("", "", "")
    return getattr(getattr(ipu.config, kind), member) if member else value


def called(ipu: Any, name: str, settings: Dict[str, Any]) -> Any:
    """What an old function returns; all but the first get options to change."""
    given = {key: meant(ipu, value) for key, value in settings.items()}
    function = getattr(ipu.utils, name)
    return function(**given) if name == "create_ipu_config" else function(ipu.utils.create_ipu_config(), **given)


@pytest.mark.parametrize("attribute", OPTIONS)
def test_an_old_option_is_an_attribute_today(ipu: Any, attribute: str) -> None:
    """Every option of an earlier SDK sets the attribute that took its place, and is put in force like it."""
    name, settings, value = OPTIONS[attribute]
    ipu.utils.configure_ipu_system(called(ipu, name, settings))
    found = operator.attrgetter(attribute)(ipu.utils.get_ipu_config()[0])

    check.equal(actual=found, expected=meant(ipu, value), what=f"{attribute} after {name}({settings})")


@pytest.mark.parametrize("case", REFUSED)
def test_an_old_function_refuses_what_it_refused(ipu: Any, case: str) -> None:
    """Earlier SDKs refused some values, with errors of their kinds."""
    name, settings, error, message = REFUSED[case]

    with check.raises(error, match=message, what=f"{name} with {settings}"):
        called(ipu, name, settings)


def test_old_options_select_ipus_once(ipu: Any) -> None:
    """IPUs that were selected cannot be selected again, in either way."""
    options = ipu.utils.auto_select_ipus(ipu.utils.create_ipu_config(), 2)

    with check.raises(Exception, match="already been configured", what="select_ipus after auto_select_ipus"):
        ipu.utils.select_ipus(options, [0])


def test_old_functions_take_old_options(ipu: Any) -> None:
    """An IPUConfig is not what the old functions change."""
    with check.raises(TypeError, match="create_ipu_config", what="an old function of an IPUConfig"):
        ipu.utils.auto_select_ipus(ipu.config.IPUConfig(), 2)


def test_old_options_are_added_up(ipu: Any) -> None:
    """A function adds to options of a library, and leaves alone those that the others set."""
    options = ipu.utils.create_ipu_config()
    for given in ({"a": "1"}, {"b": "2"}):
        options = ipu.utils.set_convolution_options(options, given)
    options = ipu.utils.set_matmul_options(options, {"c": "3"})

    found = options.convolutions.poplar_options, options.matmuls.poplar_options
    check.equal(actual=found, expected=({"a": "1", "b": "2"}, {"c": "3"}), what="the options of two libraries")


def test_old_options_in_force_do_not_change(ipu: Any) -> None:
    """What an old function changes after options were put in force has no effect on them."""
    options = ipu.utils.auto_select_ipus(ipu.utils.create_ipu_config(), 4)
    ipu.utils.configure_ipu_system(options)
    ipu.utils.set_recomputation_options(options)

    found = ipu.utils.get_num_of_ipus_in_device("/device:IPU:0"), ipu.utils.get_ipu_config()[0].allow_recompute
    check.equal(actual=found, expected=(4, False), what="the IPUs and the recomputation in force")


OUTFEEDS: Dict[str, Tuple[List[Any], Dict[str, Any], Any]] = {
    "named": ([], {"feed_name": "losses"}, [3.0, 5.0, 7.0]),
    "positional": (["losses", None, False], {}, 7.0),
    "last": ([], {"feed_name": "losses", "outfeed_all": False, "replication_factor": 1}, 7.0),
    "all": (["losses"], {"outfeed_all": True, "io_batch_size": 2}, [3.0, 5.0, 7.0]),
}
"""Arguments of an outfeed in SDK 1.x, and what it gives after 3, 5 and 7 were enqueued."""


@pytest.mark.parametrize("name", OUTFEEDS)
def test_queues_have_names(tf: Any, ipu: Any, strategy: Any, name: str) -> None:
    """Queues of SDK 1.x have a name, which stands where other arguments stand today."""
    arguments, settings, expected = OUTFEEDS[name]
    data = tf.data.Dataset.from_tensor_slices([3.0, 5.0, 7.0])
    with check.accepted("a queue with a name"):
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(data, "training", 0, prefetch_depth=2)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(*arguments, **settings)

    @tf.function(jit_compile=True)
    def program() -> None:
        ipu.loops.repeat(3, lambda x: outfeed.enqueue(x), [], queue)

    strategy.run(program)

    check.equal(actual=outfeed.dequeue().numpy().tolist(), expected=expected, what="what the outfeed gives")


MOVED = {
    "tensorflow.python.ops.array_ops:unstack": "unstack",
    "tensorflow.python.ops.control_flow_ops:cond": "compat.v1.cond",
    "tensorflow.python.ops.control_flow_ops:switch_case": "switch_case",
    "tensorflow.python.ops.control_flow_ops:while_loop": "compat.v1.while_loop",
    "tensorflow.python.framework.ops:IndexedSlices": "IndexedSlices",
    "tensorflow.python.framework.ops:Tensor": "Tensor",
    "tensorflow.python.data.ops.dataset_ops:Options": "data.Options",
    "tensorflow.python.distribute.distribution_strategy_context:get_strategy": "distribute.get_strategy",
    "tensorflow.python.layers.normalization:batch_normalization": "compat.v1.layers.batch_normalization",
    "tensorflow.python.training.tracking.util:Checkpoint": "train.Checkpoint",
    "keras.engine.training:Model": "keras.Model",
    "keras.optimizer_v2.adam:Adam": "keras.optimizers.legacy.Adam",
    "keras.optimizer_v2.gradient_descent:SGD": "keras.optimizers.legacy.SGD",
    "keras.optimizer_v2.rmsprop:RMSprop": "keras.optimizers.legacy.RMSprop",
    "keras.layers.core:Dropout": "keras.layers.Dropout",
    "keras.layers.normalization.layer_normalization:LayerNormalization": "keras.layers.LayerNormalization",
    "keras.utils.np_utils:to_categorical": "keras.utils.to_categorical",
}
"""Names inside of TensorFlow 2.6, which the vendor's modules import, and what is public of them."""


@pytest.mark.parametrize("place", MOVED)
def test_names_of_the_vendor_s_tensorflow_are_found(tf: Any, ipu: Any, place: str) -> None:
    """What the vendor's version of TensorFlow has in a module can be had from there."""
    module, _, name = place.partition(":")

    actual = getattr(importlib.import_module(module), name)
    check.equal(actual=actual, expected=operator.attrgetter(MOVED[place])(tf), what=place)


PLUGIN = "tensorflow.compiler.plugin.poplar"
NUMBERED = {
    "DeviceConnectionType": ("ALWAYS", "ON_DEMAND", "NEVER", "PRE_COMPILE"),
    "ExecutionProfileType": ("NO_PROFILE", "DEVICE_PROFILE", "IPU_PROFILE", "TILE_PROFILE"),
    "SchedulingAlgorithm": ("CHOOSE_BEST", "CLUSTERING", "POST_ORDER", "LOOK_AHEAD", "SHORTEST_PATH"),
    "SelectionOrder": ("AUTO", "ZIGZAG", "SNAKE", "HOOF"),
}
"""The members of enumerations in the order of ``config.proto``, which numbers them from 0."""


@pytest.mark.parametrize("name", NUMBERED)
def test_enumerations_have_the_numbers_of_their_messages(ipu: Any, name: str) -> None:
    """A member of an enumeration is the number that the compiler knows it by."""
    expected = {member: number for number, member in enumerate(NUMBERED[name])}
    messages = importlib.import_module(f"{PLUGIN}.driver.config_pb2")

    check.equal(actual={each.name: each.value for each in getattr(ipu.config, name)}, expected=expected, what=name)
    check.equal(actual=dict(getattr(messages, f"Ipu{name}").items()), expected=expected, what=f"the message of {name}")


def test_operations_are_in_the_vendor_s_modules(tf: Any, ipu: Any, configure: Any) -> None:
    """What functions of the API are made of can be called by itself; the rest can be imported, and refuses a call."""
    configure(3)
    operations = {
        name: importlib.import_module(f"{PLUGIN}.ops.gen_{name}_ops") for name in ("ipu", "popnn", "functional")
    }
    numbers = tf.constant([-2.0, 0.5, 3.0])

    check.equal(actual=int(operations["ipu"].ipu_get_num_devices("/device:IPU:0")), expected=3, what="the IPUs")
    check.identical(
        actual=operations["popnn"].ipu_gelu(numbers).numpy(), expected=ipu.nn_ops.gelu(numbers).numpy(), what="gelu"
    )
    with check.raises(NotImplementedError, match="pipeline", what="an operation that only Poplar has"):
        operations["functional"].pipeline()


READERS = {
    "extract_all_strings_from_event_trace": "",
    "extract_all_types_from_event_trace": [],
    "extract_all_events": [],
    "extract_compile_reports": [],
    "extract_execute_reports": [],
}
"""What read a trace of events in SDK 1.x, and what it makes of an empty one."""


def test_a_trace_of_events_is_empty(tf: Any, ipu: Any, said: Any) -> None:
    """Programs of SDK 1.x fetch a trace of events and read it; here it has none, and the log says so."""
    operations = importlib.import_module(f"{PLUGIN}.ops.gen_ipu_ops")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        events = session.run(operations.ipu_event_trace())

    found = {name: getattr(ipu.utils, name)(events) for name in READERS}
    check.equal(actual=found, expected=READERS, what="what is read of a trace")
    event = importlib.import_module(f"{PLUGIN}.driver.trace_pb2").IpuTraceEvent
    read = event.FromString(event(type=event.COMPILE_END, compile_end={"duration": 7}).SerializeToString())
    actual = (read.type, read.compile_end.duration, read.WhichOneof("msg"))
    check.equal(actual=actual, expected=(1, 7, "compile_end"), what="an event that is read from its bytes")
    check.holds("no events" in said(), "nothing is said of events that are not recorded")


def test_events_of_a_device_cannot_be_read(ipu: Any) -> None:
    """A trace that a device has written is refused."""
    with check.raises(NotImplementedError, match="3 events", what="reading a trace of three events"):
        ipu.utils.extract_all_strings_from_event_trace([b"a", b"b", b"c"])
