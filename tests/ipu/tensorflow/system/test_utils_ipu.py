"""The functions around a configuration, and the devices that it gives TensorFlow."""

from __future__ import annotations

import copy
from typing import Any, Callable

import numpy as np
import pytest


@pytest.fixture
def config(ipu: Any) -> Any:
    """A configuration with nothing set."""
    return ipu.config.IPUConfig()


def test_nothing_is_configured_at_first(tf: Any, ipu: Any) -> None:
    """Before a configuration there is no IPU device, and asking for the configuration is an error."""
    with pytest.raises(RuntimeError, match="No IPU devices configured"):
        ipu.utils.get_ipu_config()


@pytest.mark.parametrize("way", ["method", "function"])
def test_a_configuration_is_put_in_force(tf: Any, ipu: Any, config: Any, way: str) -> None:
    """The method of a configuration and the function of utils do the same."""
    config.auto_select_ipus = 2
    if way == "method":
        config.configure_ipu_system()
    else:
        ipu.utils.configure_ipu_system(config)

    assert ipu.utils.get_num_of_ipus_in_device("/device:IPU:0") == 2
    assert len(ipu.utils.get_ipu_config()) == 1


@pytest.mark.parametrize(
    ("selected", "ipus"),
    [
        ([], [1]),
        (1, [1]),
        (4, [4]),
        ([2], [2]),
        ((1, 1), [1, 1]),
        ([4, 1, 2], [4, 1, 2]),
        ([8], [8]),
    ],
    ids=str,
)
def test_auto_select_makes_devices(tf: Any, ipu: Any, config: Any, selected: Any, ipus: Any) -> None:
    """A number makes one device of so many IPUs, several numbers one device each, and nothing one IPU."""
    config.auto_select_ipus = selected
    config.configure_ipu_system()
    names = [f"/device:IPU:{index}" for index in range(len(ipus))]

    assert [ipu.utils.get_num_of_ipus_in_device(name) for name in names] == ipus
    assert len(tf.config.list_physical_devices("IPU")) == len(ipus)
    assert len(ipu.utils.get_ipu_config()) == len(ipus)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("ids", "ipus"),
    [(0, [1]), ([0, 1], [1, 1]), (64, [2]), ([64, 65], [2, 2]), (96, [4]), ((112,), [8]), ([0, 65], [1, 2])],
    ids=str,
)
def test_select_makes_devices(ipu: Any, config: Any, ids: Any, ipus: Any) -> None:
    """An id stands for one IPU, a pair, four and so on, as the system of 64 IPUs numbers them."""
    config.select_ipus = ids
    config.configure_ipu_system()

    assert [ipu.utils.get_num_of_ipus_in_device(f"/device:IPU:{index}") for index in range(len(ipus))] == ipus


def test_ipus_are_selected_in_one_way(config: Any) -> None:
    """IPUs cannot be selected by their number and by their ids at once: such a configuration cannot be used."""
    config.auto_select_ipus = 1
    config.select_ipus = [0]

    with pytest.raises(Exception, match="Only one of `auto_select_ipus` and `select_ipus` can be set"):
        config.configure_ipu_system()


def test_the_ipu_model_has_no_ids(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the IPU model IPUs are selected by their number only."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    config.select_ipus = [0]

    with pytest.raises(Exception, match="When using the IPUModel"):
        config.configure_ipu_system()


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("attribute", "value"), [("auto_select_ipus", 65), ("auto_select_ipus", [64, 1]), ("select_ipus", 127)], ids=str
)
def test_more_than_there_is_cannot_be_selected(config: Any, attribute: str, value: Any) -> None:
    """More IPUs than the system has, or an id that it does not have, are refused."""
    setattr(config, attribute, value)

    with pytest.raises(ValueError, match=r"64|126"):
        config.configure_ipu_system()


@pytest.mark.parametrize("wrong", [None, 1, {}, "config", []], ids=repr)
def test_only_a_configuration_can_be_put_in_force(ipu: Any, wrong: Any) -> None:
    """Anything else than a configuration is a TypeError."""
    with pytest.raises(TypeError):
        ipu.utils.configure_ipu_system(wrong)


def test_a_configuration_that_was_asked_for_can_be_put_in_force(ipu: Any, configure: Callable[..., Any]) -> None:
    """What get_ipu_config gives is accepted by configure_ipu_system."""
    configure(2)
    (options,) = ipu.utils.get_ipu_config()
    ipu.utils.reset_ipu_configuration()
    ipu.utils.configure_ipu_system(options)

    assert ipu.utils.get_num_of_ipus_in_device("/device:IPU:0") == 2


def test_a_configuration_in_force_does_not_change(ipu: Any, config: Any) -> None:
    """What is set after a configuration was put in force counts from the next time on."""
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    config.auto_select_ipus = 4

    assert ipu.utils.get_num_of_ipus_in_device("/device:IPU:0") == 2


def test_the_same_configuration_again_says_nothing(ipu: Any, config: Any, said: Any) -> None:
    """Putting an equal configuration in force again is silent."""
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    config.configure_ipu_system()
    copy.deepcopy(config).configure_ipu_system()

    assert said() == ""


@pytest.mark.parametrize(("attribute", "value"), [("auto_select_ipus", 4), ("allow_recompute", True)])
def test_another_configuration_replaces_the_first(ipu: Any, config: Any, said: Any, attribute: str, value: Any) -> None:
    """A configuration that differs replaces the one in force, and the log warns of it."""
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    setattr(config, attribute, value)
    config.configure_ipu_system()

    assert said() != ""
    assert ipu.utils.get_num_of_ipus_in_device("/device:IPU:0") == config.auto_select_ipus


def test_without_a_reset_another_configuration_is_refused(tf: Any, ipu: Any, config: Any) -> None:
    """With reset_configuration=False a system is configured once; the first configuration stays."""
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    config.auto_select_ipus = 4
    with pytest.raises(tf.errors.OpError):
        ipu.utils.configure_ipu_system(config, reset_configuration=False)

    assert ipu.utils.get_num_of_ipus_in_device("/device:IPU:0") == 2


def test_a_reset_forgets_the_configuration(tf: Any, ipu: Any, configure: Callable[..., Any], said: Any) -> None:
    """After a reset nothing is configured, and another configuration is nothing to warn of."""
    configure(2)
    ipu.utils.reset_ipu_configuration()
    with pytest.raises(RuntimeError, match="No IPU devices configured"):
        ipu.utils.get_ipu_config()
    configure(4)

    assert said() == ""


def test_a_reset_of_nothing_is_allowed(ipu: Any) -> None:
    """Resetting a system that is not configured does nothing."""
    ipu.utils.reset_ipu_configuration()
    ipu.utils.reset_ipu_configuration()


@pytest.mark.emulator
def test_floating_point_behaviour_is_set_all_at_once(ipu: Any, config: Any) -> None:
    """With set_all every behaviour is on in the configuration in force, and the tree itself is unchanged."""
    config.floating_point_behaviour.set_all = True
    config.configure_ipu_system()
    (options,) = ipu.utils.get_ipu_config()
    in_force = options.floating_point_behaviour

    assert [in_force.inv, in_force.div0, in_force.oflo, in_force.nanoo] == [True] * 4
    assert in_force.esr is ipu.config.StochasticRoundingBehaviour.ON
    assert config.floating_point_behaviour.inv is False


@pytest.mark.parametrize("name", ["/device:CPU:0", "/device:GPU:0", "/cpu:0"])
def test_only_ipu_devices_have_ipus(ipu: Any, configure: Callable[..., Any], name: str) -> None:
    """The number of IPUs of another device is an error."""
    configure(1)

    with pytest.raises(ValueError, match="IPU"):
        ipu.utils.get_num_of_ipus_in_device(name)


@pytest.mark.parametrize("name", ["/device:IPU:1", "/device:IPU:7"])
def test_a_device_that_was_not_configured_has_no_ipus(ipu: Any, configure: Callable[..., Any], name: str) -> None:
    """The number of IPUs of a device that does not exist is an error."""
    configure(1)

    with pytest.raises(ValueError, match=name):
        ipu.utils.get_num_of_ipus_in_device(name)


@pytest.mark.parametrize(
    "name", ["/device:IPU:1", "/job:localhost/replica:0/task:0/device:IPU:1", "/replica:0/device:IPU:1"]
)
def test_a_device_may_be_named_in_full(ipu: Any, configure: Callable[..., Any], name: str) -> None:
    """A device's name may say job, replica and task."""
    configure([1, 4])

    assert ipu.utils.get_num_of_ipus_in_device(name) == 4


@pytest.mark.parametrize("ask", ["list_physical_devices", "list_logical_devices", "get_visible_devices"])
@pytest.mark.parametrize("devices", [0, 1, 3])
def test_tensorflow_lists_ipu_devices(tf: Any, ipu: Any, configure: Callable[..., Any], ask: str, devices: int) -> None:
    """The IPU devices of the configuration stand in TensorFlow's lists, beside the CPU, until a reset."""
    if devices:
        configure([1] * devices)
    listed = getattr(tf.config, ask)("IPU")
    everything = getattr(tf.config, ask)()

    assert [device.device_type for device in listed] == ["IPU"] * devices
    assert [device.name.rpartition(":")[2] for device in listed] == [str(index) for index in range(devices)]
    assert [device for device in everything if device.device_type == "IPU"] == listed
    assert [device.device_type for device in everything].count("CPU") == 1
    ipu.utils.reset_ipu_configuration()
    assert getattr(tf.config, ask)("IPU") == []


@pytest.mark.parametrize("name", ["/device:IPU:0", "/job:localhost/replica:0/task:0/device:IPU:0"])
def test_eager_operations_run_on_an_ipu_device(tf: Any, configure: Callable[..., Any], name: str) -> None:
    """Operations under an IPU device are computed."""
    configure(1)
    with tf.device(name):
        result = tf.constant([1.0, 2.0]) * 3.0

    np.testing.assert_array_equal(result, np.asarray([3, 6], np.float32))


@pytest.mark.parametrize("name", ["/device:IPU:0", "/job:localhost/replica:0/task:0/device:IPU:0"])
def test_compiled_functions_run_on_an_ipu_device(tf: Any, configure: Callable[..., Any], name: str) -> None:
    """A tf.function under an IPU device is computed, its variables included."""
    configure(1)
    with tf.device(name):
        variable = tf.Variable(2.0)

    @tf.function(jit_compile=True)
    def scaled(value: Any) -> Any:
        with tf.device(name):
            return variable * value

    with tf.device(name):
        assert float(scaled(tf.constant(3.0))) == 6.0


@pytest.mark.parametrize("soft", [False, True])
def test_an_ipu_device_needs_no_soft_placement(tf: Any, configure: Callable[..., Any], soft: bool) -> None:
    """An IPU device runs operations and functions whether or not TensorFlow places softly."""
    configure(1)
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(soft)
    try:
        with tf.device("/device:IPU:0"):
            eager = tf.constant(2.0) * 3.0
            compiled = tf.function(lambda: tf.constant(2.0) * 4.0)()
        said = tf.config.get_soft_device_placement()
    finally:
        tf.config.set_soft_device_placement(before)

    assert [float(eager), float(compiled)] == [6.0, 8.0]
    assert said is soft


@pytest.mark.parametrize("soft", [None, False, True])
def test_sessions_run_on_an_ipu_device(tf: Any, configure: Callable[..., Any], soft: Any) -> None:
    """A session runs what is placed on an IPU device, whether or not it places softly."""
    configure(1)
    settings = None if soft is None else tf.compat.v1.ConfigProto(allow_soft_placement=soft)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=settings) as session:
        with tf.device("/device:IPU:0"):
            variable = tf.compat.v1.get_variable("v", initializer=tf.constant(2.0))
            result = variable * 3.0
        session.run(tf.compat.v1.global_variables_initializer())

        assert result.device.endswith("device:IPU:0")
        assert float(session.run(result)) == 6.0


def test_a_session_lists_ipu_devices(tf: Any, configure: Callable[..., Any]) -> None:
    """A session knows the IPU devices of the configuration."""
    configure([1, 2])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        names = [device.name for device in session.list_devices() if device.device_type == "IPU"]

    assert [name.rpartition("/")[2] for name in names] == ["device:IPU:0", "device:IPU:1"]


def test_a_session_keeps_its_own_settings(tf: Any, ipu: Any) -> None:
    """What a session was told about anything but placement is not changed."""
    settings = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, allow_soft_placement=False)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=settings) as session:
        assert session._config.intra_op_parallelism_threads == 1

    assert settings.allow_soft_placement is False


def test_variables_are_initialised_on_the_host(tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
    """After move_variable_initialization_to_cpu no initialiser is left on an IPU, and what uses the variable is."""
    configure(1)
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        with tf.device("/device:IPU:0"):
            variable = tf.compat.v1.get_variable("v", initializer=tf.ones([2]) * 2.0, use_resource=True)
            local = tf.compat.v1.get_local_variable("w", initializer=tf.ones([2]) * 5.0, use_resource=True)
            result = variable * local
        ipu.utils.move_variable_initialization_to_cpu()
        values = [op for op in graph.get_operations() if op.type == "Mul" and op is not result.op]

        assert all("CPU" in op.device for op in [variable.initializer, local.initializer, *values])
        assert "IPU" in result.device
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        np.testing.assert_array_equal(session.run(result), np.asarray([10, 10], np.float32))


def test_the_graph_of_variables_can_be_named(tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
    """move_variable_initialization_to_cpu changes the graph that it is given, and no other."""
    configure(1)
    graphs = [tf.Graph(), tf.Graph()]
    variables = []
    for graph in graphs:
        with graph.as_default(), tf.device("/device:IPU:0"):
            variables.append(tf.compat.v1.get_variable("v", initializer=tf.ones([2]), use_resource=True))
    ipu.utils.move_variable_initialization_to_cpu(graphs[0])

    assert "CPU" in variables[0].initializer.device
    assert "IPU" in variables[1].initializer.device


def draws(tf: Any) -> Any:
    """Some random numbers of an eager program and of a compiled one."""
    compiled = tf.function(lambda: tf.random.normal([4]))
    return np.concatenate([tf.random.uniform([4]), compiled(), compiled()])


def test_a_seed_repeats_random_numbers(tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
    """The same program draws the same numbers after the same seed, and others after another."""
    configure(1)
    drawn = []
    for seed in (42, 42, 43):
        ipu.utils.reset_ipu_seed(seed)
        drawn.append(draws(tf))

    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).all()
    assert len(set(drawn[0].tolist())) == drawn[0].size


@pytest.mark.parametrize("wrong", ["1", 1.5, None, True], ids=repr)
def test_a_seed_is_a_whole_number(ipu: Any, configure: Callable[..., Any], wrong: Any) -> None:
    """Anything else than a whole number is refused as a seed."""
    configure(1)

    with pytest.raises((TypeError, ValueError)):
        ipu.utils.reset_ipu_seed(wrong)


@pytest.mark.parametrize("identical", [False, True])
def test_a_seed_takes_a_device(ipu: Any, configure: Callable[..., Any], identical: bool) -> None:
    """A seed may be given for any configured device, with identical replicas or not."""
    configure([1, 1])

    ipu.utils.reset_ipu_seed(3, device="/device:IPU:1", experimental_identical_replicas=identical)
