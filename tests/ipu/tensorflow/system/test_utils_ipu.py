"""The functions around a configuration, and the devices that it gives TensorFlow."""

from __future__ import annotations

import copy
from typing import Any, Callable

import numpy as np
import pytest

from ipu_conformance import check


@pytest.fixture
def config(ipu: Any) -> Any:
    """A configuration with nothing set."""
    return ipu.config.IPUConfig()


def number(ipu: Any, device: str = "/device:IPU:0") -> Any:
    """The number of IPUs in a device."""
    return ipu.utils.get_num_of_ipus_in_device(device)


def test_nothing_is_configured_at_first(tf: Any, ipu: Any) -> None:
    """Without a configuration there is none to ask for, and a reset does nothing."""
    for _ in range(2):
        with check.raises(RuntimeError, match="No IPU devices configured", what="get_ipu_config without one"):
            ipu.utils.get_ipu_config()
        ipu.utils.reset_ipu_configuration()


@pytest.mark.parametrize("way", ["method", "function", "asked for"])
def test_a_configuration_is_put_in_force(ipu: Any, config: Any, way: str) -> None:
    """A configuration is put in force by its method or by the function of utils, which takes what is in force, too."""
    config.auto_select_ipus = 2
    if way != "function":
        config.configure_ipu_system()
    if way == "asked for":
        (config,) = ipu.utils.get_ipu_config()
        ipu.utils.reset_ipu_configuration()
    if way != "method":
        ipu.utils.configure_ipu_system(config)

    values = (number(ipu), len(ipu.utils.get_ipu_config()))
    check.equal(actual=values, expected=(2, 1), what="the number of IPUs in the device, and of configurations")


@pytest.mark.parametrize(
    ("attribute", "value", "ipus"),
    [("auto_select_ipus", *row) for row in
     (([], [1]), (1, [1]), (4, [4]), ([2], [2]), ((1, 1), [1, 1]), ([4, 1, 2], [4, 1, 2]), ([8], [8]))] +
    [pytest.param("select_ipus", *row, marks=pytest.mark.emulator) for row in
     ((0, [1]), ([0, 1], [1, 1]), (64, [2]), ([64, 65], [2, 2]), (96, [4]), ((112,), [8]), ([0, 65], [1, 2]))],
    ids=str,
)  # fmt: skip
def test_selected_ipus_make_devices(tf: Any, ipu: Any, config: Any, attribute: str, value: Any, ipus: Any) -> None:
    """A number makes one device of so many IPUs, several numbers one device each, and nothing one IPU.

    An id stands for one IPU, a pair, four and so on, in the numbering of a system of 64 IPUs.
    """
    setattr(config, attribute, value)
    config.configure_ipu_system()
    devices = tf.config.list_physical_devices("IPU")

    numbers = [number(ipu, f"/device:IPU:{index}") for index in range(len(devices))]
    check.equal(actual=numbers, expected=ipus, what="the number of IPUs, by device")
    check.equal(actual=len(ipu.utils.get_ipu_config()), expected=len(ipus), what="the number of configurations")


def test_ipus_are_selected_in_one_way(config: Any) -> None:
    """A configuration selects IPUs by their number or by their ids, not by both."""
    config.auto_select_ipus = 1
    config.select_ipus = [0]

    sentence = "Only one of `auto_select_ipus` and `select_ipus` can be set"
    with check.raises(Exception, match=sentence, what="a configuration with both selections"):
        config.configure_ipu_system()


def test_the_ipu_model_has_no_ids(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the IPU model IPUs are selected by their number only."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    config.select_ipus = [0]

    with check.raises(Exception, match="When using the IPUModel", what="select_ipus on the IPU model"):
        config.configure_ipu_system()


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("attribute", "value"), [("auto_select_ipus", 65), ("auto_select_ipus", [64, 1]), ("select_ipus", 127)], ids=str
)
def test_more_than_there_is_cannot_be_selected(config: Any, attribute: str, value: Any) -> None:
    """More IPUs than the system has, or an id that it does not have, are refused."""
    setattr(config, attribute, value)

    with check.raises(ValueError, match=r"64|126", what=f"{attribute} = {value} on 64 IPUs"):
        config.configure_ipu_system()


@pytest.mark.parametrize("wrong", [None, 1, {}, "config", []], ids=repr)
def test_only_a_configuration_can_be_put_in_force(ipu: Any, wrong: Any) -> None:
    """Anything but a configuration is a TypeError."""
    with check.raises(TypeError, match="", what=f"configure_ipu_system({wrong!r})"):
        ipu.utils.configure_ipu_system(wrong)


def test_a_configuration_in_force_does_not_change(ipu: Any, configure: Callable[..., Any]) -> None:
    """What is set after a configuration was put in force has no effect until it is put in force again."""
    configure(2).auto_select_ipus = 4

    check.equal(actual=number(ipu), expected=2, what="the number of IPUs in the device")


def test_the_same_configuration_again_says_nothing(configure: Callable[..., Any], said: Any) -> None:
    """Putting an equal configuration in force again is silent."""
    config = configure(2)
    config.configure_ipu_system()
    copy.deepcopy(config).configure_ipu_system()

    check.equal(actual=said(), expected="", what="the log")


@pytest.mark.parametrize(("attribute", "value"), [("auto_select_ipus", 4), ("allow_recompute", True)])
def test_another_configuration_replaces_the_first(
    ipu: Any, configure: Any, said: Any, attribute: str, value: Any
) -> None:
    """A configuration that differs replaces the one in force, and the log warns of it."""
    config = configure(2)
    setattr(config, attribute, value)
    config.configure_ipu_system()

    check.differs(actual=said(), other="", what="the log after a configuration was replaced")
    check.equal(actual=number(ipu), expected=config.auto_select_ipus, what="the number of IPUs in the device")


def test_without_a_reset_another_configuration_is_refused(tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
    """With reset_configuration=False a system is configured once; the first configuration stays."""
    config = configure(2)
    config.auto_select_ipus = 4
    with check.raises(tf.errors.OpError, match="", what="another configuration without a reset"):
        ipu.utils.configure_ipu_system(config, reset_configuration=False)

    check.equal(actual=number(ipu), expected=2, what="the number of IPUs in the device")


def test_a_reset_forgets_the_configuration(tf: Any, ipu: Any, configure: Callable[..., Any], said: Any) -> None:
    """After a reset nothing is configured, and another configuration causes no warning."""
    configure(2)
    ipu.utils.reset_ipu_configuration()
    with check.raises(RuntimeError, match="No IPU devices configured", what="get_ipu_config after a reset"):
        ipu.utils.get_ipu_config()
    configure(4)

    check.equal(actual=said(), expected="", what="the log")


@pytest.mark.emulator
def test_floating_point_behaviour_is_set_all_at_once(ipu: Any, config: Any) -> None:
    """With set_all every behaviour is on in the configuration in force; the one that was given stays."""
    config.floating_point_behaviour.set_all = True
    config.configure_ipu_system()
    (options,) = ipu.utils.get_ipu_config()

    behaviours = [
        [getattr(chosen.floating_point_behaviour, name) for name in ("inv", "div0", "oflo", "nanoo", "esr")]
        for chosen in (options, config)
    ]
    on, off = ipu.config.StochasticRoundingBehaviour.ON, ipu.config.StochasticRoundingBehaviour.OFF
    expected = [[True, True, True, True, on], [False, False, False, False, off]]
    check.equal(actual=behaviours, expected=expected, what="the behaviours in force, and those that were given")


@pytest.mark.parametrize("name", ["/device:CPU:0", "/device:GPU:0", "/cpu:0", "/device:IPU:1", "/device:IPU:7"])
def test_only_configured_ipu_devices_have_ipus(ipu: Any, configure: Callable[..., Any], name: str) -> None:
    """A device that is not an IPU, or that was not configured, has no number of IPUs."""
    configure(1)

    with check.raises(ValueError, match=name if "IPU" in name else "IPU", what=f"the number of IPUs in {name}"):
        number(ipu, name)


@pytest.mark.parametrize(
    "name", ["/device:IPU:1", "/job:localhost/replica:0/task:0/device:IPU:1", "/replica:0/device:IPU:1"]
)
def test_a_device_may_be_named_in_full(ipu: Any, configure: Callable[..., Any], name: str) -> None:
    """The name of a device may include job, replica and task."""
    configure([1, 4])

    check.equal(actual=number(ipu, name), expected=4, what=f"the number of IPUs in {name}")


@pytest.mark.parametrize("ask", ["list_physical_devices", "list_logical_devices", "get_visible_devices"])
@pytest.mark.parametrize("devices", [0, 1, 3])
def test_tensorflow_lists_ipu_devices(tf: Any, ipu: Any, configure: Callable[..., Any], ask: str, devices: int) -> None:
    """TensorFlow lists the IPU devices of the configuration beside the CPU, until a reset."""
    if devices:
        configure([1] * devices)
    listed, everything = getattr(tf.config, ask)("IPU"), getattr(tf.config, ask)()

    places = [(device.device_type, device.name.rpartition(":")[2]) for device in listed]
    check.equal(actual=places, expected=[("IPU", str(index)) for index in range(devices)], what="the IPU devices")
    among = [device for device in everything if device.device_type == "IPU"]
    check.equal(actual=among, expected=listed, what="the IPU devices among all")
    kinds = [device.device_type for device in everything]
    check.equal(actual=kinds.count("CPU"), expected=1, what="the number of CPUs among all devices")
    ipu.utils.reset_ipu_configuration()
    check.equal(actual=getattr(tf.config, ask)("IPU"), expected=[], what="the IPU devices after a reset")


@pytest.mark.parametrize("name", ["/device:IPU:0", "/job:localhost/replica:0/task:0/device:IPU:0"])
@pytest.mark.parametrize("soft", [False, True])
def test_operations_run_on_an_ipu_device(tf: Any, configure: Callable[..., Any], soft: bool, name: str) -> None:
    """An IPU device runs operations, functions and variables, whether or not TensorFlow places softly."""
    configure(1)
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(soft)
    try:
        with tf.device(name):
            variable, eager = tf.Variable(2.0), tf.constant([1.0, 2.0]) * 3.0
            compiled = tf.function(lambda value: variable * value, jit_compile=True)(tf.constant(3.0))
        check.equal(actual=tf.config.get_soft_device_placement(), expected=soft, what="the soft placement")
    finally:
        tf.config.set_soft_device_placement(before)

    values = (eager.numpy().tolist(), float(compiled))
    check.equal(actual=values, expected=([3, 6], 6), what=f"an operation and a function on {name}")


@pytest.mark.parametrize("soft", [None, False, True])
def test_sessions_run_on_an_ipu_device(tf: Any, configure: Callable[..., Any], soft: Any) -> None:
    """A session runs what is placed on an IPU device, whether or not it places softly."""
    configure(1)
    settings = None if soft is None else tf.compat.v1.ConfigProto(allow_soft_placement=soft)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=settings) as session:
        with tf.device("/device:IPU:0"):
            variable = tf.compat.v1.get_variable("v", initializer=tf.constant(2.0))
            result = variable * 3.0
        try:
            session.run(tf.compat.v1.global_variables_initializer())
            value = float(session.run(result))
        except tf.errors.InvalidArgumentError as error:
            pytest.fail(f"The session refuses what is placed on an IPU device: {error}")

        place = (result.device.rpartition("/")[2], value)
        check.equal(actual=place, expected=("device:IPU:0", 6.0), what="the device and the value of the product")


def test_a_session_lists_ipu_devices(tf: Any, configure: Callable[..., Any]) -> None:
    """A session knows the IPU devices of the configuration."""
    configure([1, 4, 2])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        devices = [device.name for device in session.list_devices() if device.device_type == "IPU"]

    names, expected = [name.rpartition("/")[2] for name in devices], [f"device:IPU:{index}" for index in range(3)]
    check.equal(actual=names, expected=expected, what="the IPU devices of the session")


@pytest.mark.emulator
def test_a_session_knows_the_memory_of_devices(tf: Any, configure: Callable[..., Any]) -> None:
    """A device has the memory of all of its IPUs."""
    configure([1, 4, 2])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        held = [device.memory_limit_bytes for device in session.list_devices() if device.device_type == "IPU"]

    check.equal(actual=[each / held[0] for each in held], expected=[1, 4, 2], what="the memory, in that of one IPU")


def test_a_session_keeps_its_own_settings(tf: Any, ipu: Any) -> None:
    """A session keeps its other settings, and the settings that it was given are not changed."""
    settings = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, allow_soft_placement=False)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=settings) as session:
        values = (session._config.intra_op_parallelism_threads, settings.allow_soft_placement)

    check.equal(actual=values, expected=(1, False), what="the session's threads, and the soft placement that was given")


def test_variables_are_initialised_on_the_host(tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
    """move_variable_initialization_to_cpu moves every initialiser, and leaves what uses a variable on the IPU."""
    configure(1)
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        with tf.device("/device:IPU:0"):
            variable = tf.compat.v1.get_variable("v", initializer=tf.ones([2]) * 2.0, use_resource=True)
            local = tf.compat.v1.get_local_variable("w", initializer=tf.ones([2]) * 5.0, use_resource=True)
            result = variable * local
        ipu.utils.move_variable_initialization_to_cpu()
        values = [op for op in graph.get_operations() if op.type == "Mul" and op is not result.op]

        for op in (variable.initializer, local.initializer, *values):
            check.contains(actual=op.device, expected="CPU", what=f"the device of {op.name}")
        check.contains(actual=result.device, expected="IPU", what="the device of the product")
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        check.equal(actual=session.run(result).tolist(), expected=[10, 10], what="the product of the variables")


def test_the_graph_of_variables_can_be_named(tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
    """move_variable_initialization_to_cpu changes the graph that it is given, and no other."""
    configure(1)
    graphs, variables = [tf.Graph(), tf.Graph()], []
    for graph in graphs:
        with graph.as_default(), tf.device("/device:IPU:0"):
            variables.append(tf.compat.v1.get_variable("v", initializer=tf.ones([2]), use_resource=True))
    ipu.utils.move_variable_initialization_to_cpu(graphs[0])

    for variable, kind, graph in zip(variables, ("CPU", "IPU"), ("given", "other")):
        what = f"the device of the initialiser in the {graph} graph"
        check.contains(actual=variable.initializer.device, expected=kind, what=what)


@pytest.mark.parametrize(("device", "identical"), [("/device:IPU:0", False), ("/device:IPU:1", True)])
def test_a_seed_repeats_random_numbers(tf: Any, ipu: Any, configure: Any, device: str, identical: bool) -> None:
    """The same program on a device draws the same numbers after the same seed, and others after another."""
    configure([1, 1])
    draws = []
    for seed in (42, 42, 43):
        ipu.utils.reset_ipu_seed(seed, device=device, experimental_identical_replicas=identical)
        with tf.device(device):
            compiled = tf.function(lambda: tf.random.normal([4]))
            draws.append(np.concatenate([tf.random.uniform([4]), compiled(), compiled()]))

    check.identical(actual=draws[1], expected=draws[0], what="the random numbers after the same seed")
    numbers = np.concatenate([draws[0], draws[2]]).tolist()
    check.holds(len(set(numbers)) == 24, f"12 numbers after each of two seeds are {numbers}, some of them alike.")


@pytest.mark.parametrize("wrong", ["1", 1.5, None, True], ids=repr)
def test_a_seed_is_a_whole_number(ipu: Any, configure: Callable[..., Any], wrong: Any) -> None:
    """Anything but a whole number is refused as a seed."""
    configure(1)

    with check.raises((TypeError, ValueError), match="", what=f"the seed {wrong!r}"):
        ipu.utils.reset_ipu_seed(wrong)
