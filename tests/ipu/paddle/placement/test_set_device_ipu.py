"""The IPU as a device and as a place: ``set_device``, ``get_device``, ``IPUPlace`` and what is run and kept there."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

VALUES = np.array([[1.5, -2.0, 0.25], [4.0, 8.0, -0.5]], dtype=np.float32)


pytestmark = pytest.mark.usefixtures("ipu_build")


def test_an_ipu_build_says_so(paddle: Any) -> None:
    """is_compiled_with_ipu is True, under both of its names."""
    assert paddle.is_compiled_with_ipu() is True
    assert paddle.device.is_compiled_with_ipu() is True


def test_an_ipu_build_has_no_other_accelerator(paddle: Any) -> None:
    """The wheel is not one for CUDA or XPU, and refuses their devices."""
    for device in ("gpu", "xpu"):
        with pytest.raises(ValueError, match=device):
            paddle.set_device(device)


@pytest.mark.parametrize("name", ["ipu", "IPU", "Ipu"])
def test_the_ipu_is_set_as_the_device(paddle: Any, name: str) -> None:
    """set_device gives an IPU place, and get_device names the range of all IPUs."""
    place = paddle.set_device(name)

    assert isinstance(place, paddle.IPUPlace)
    assert re.fullmatch(r"ipus:\{0-\d+\}", paddle.get_device())
    assert paddle.device.get_device() == paddle.get_device()


def test_the_host_is_set_as_the_device_again(paddle: Any) -> None:
    """After the IPU the CPU can be the device, and the other way round."""
    found = []
    for name in ("cpu", "ipu", "cpu", "ipu"):
        paddle.set_device(name)
        found.append(paddle.get_device()[:3])

    assert found == ["cpu", "ipu", "cpu", "ipu"]


@pytest.mark.parametrize("name", ["ipus", "ipu2", "tpu", ""])
def test_a_device_that_does_not_exist_is_refused(paddle: Any, name: str) -> None:
    """A wrong name is an error, and the device stays."""
    paddle.set_device("ipu")
    with pytest.raises(ValueError, match="The device must be a string"):
        paddle.set_device(name)

    assert paddle.get_device().startswith("ipus:")


@pytest.mark.parametrize("where", ["paddle", "paddle.device", "paddle.framework", "paddle.base"])
def test_places_can_be_made(paddle: Any, where: str) -> None:
    """IPUPlace is callable without arguments wherever Paddle offers it, and prints as the IPU."""
    module = paddle
    for part in where.split(".")[1:]:
        module = getattr(module, part)
    place = module.IPUPlace()

    assert isinstance(place, paddle.IPUPlace)
    assert (str(place), repr(place)) == ("Place(ipu)", "Place(ipu)")


def test_a_place_of_the_host_is_no_ipu_place(paddle: Any) -> None:
    """The places of the CPU and of the IPU can be told apart."""
    assert not isinstance(paddle.CPUPlace(), paddle.IPUPlace)
    assert paddle.IPUPlace()._equals(paddle.IPUPlace())
    assert not paddle.IPUPlace()._equals(paddle.CPUPlace())


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool"])
def test_tensors_are_made_at_the_place(paddle: Any, dtype: str) -> None:
    """A tensor made at the IPU place holds the values it was given, bit for bit."""
    given = VALUES.astype(dtype)
    tensor = paddle.to_tensor(given, place=paddle.IPUPlace())

    assert (tensor.numpy().dtype, tensor.shape) == (given.dtype, list(given.shape))
    assert np.array_equal(tensor.numpy(), given)


def test_tensors_are_made_on_the_device_that_is_set(paddle: Any) -> None:
    """With the IPU as the device, tensors are made, computed with and read as on the host."""
    paddle.set_device("ipu")
    tensor = paddle.to_tensor(VALUES)
    doubled = tensor + tensor

    assert np.array_equal(doubled.numpy(), VALUES + VALUES)


def test_layers_are_made_on_the_device_that_is_set(paddle: Any) -> None:
    """A layer's parameters are initialised, and gradients flow, with the IPU as the device."""
    paddle.set_device("ipu")
    layer = paddle.nn.Linear(3, 1, bias_attr=False)
    layer(paddle.to_tensor(VALUES)).sum().backward()

    assert np.array_equal(layer.weight.gradient()[:, 0], VALUES.sum(axis=0))


def test_random_numbers_do_not_depend_on_the_device(paddle: Any) -> None:
    """With one seed a host and an IPU as the device give the same initial values."""
    drawn = []
    for name in ("cpu", "ipu"):
        paddle.set_device(name)
        paddle.seed(7)
        drawn.append(paddle.nn.Linear(3, 4).weight.numpy())

    assert np.array_equal(*drawn)


# Executors


def parameters(static: Any) -> Any:
    """The values of all parameters of the main program, by name."""
    scope = static.global_scope()
    return {
        parameter.name: np.array(scope.find_var(parameter.name).get_tensor())
        for parameter in static.default_main_program().all_parameters()
    }


def test_an_executor_keeps_its_place(static: Any, paddle: Any) -> None:
    """An executor of the IPU says so."""
    assert isinstance(static.Executor(paddle.IPUPlace()).place, paddle.IPUPlace)


def test_an_executor_follows_the_device(static: Any, paddle: Any) -> None:
    """Without a place an executor has that of the device."""
    paddle.set_device("ipu")

    assert isinstance(static.Executor().place, paddle.IPUPlace)


@pytest.mark.parametrize("place", ["ipu", "cpu"])
def test_startup_runs_at_the_place(static: Any, paddle: Any, place: str) -> None:
    """The startup program gives every parameter its value, on an executor of either place."""
    x = static.data("x", [None, 3], "float32")
    constant = paddle.nn.initializer.Constant(0.75)
    static.nn.fc(x, 2, weight_attr=paddle.ParamAttr(initializer=constant))
    executor = static.Executor(paddle.IPUPlace() if place == "ipu" else paddle.CPUPlace())
    executor.run(static.default_startup_program())
    values = {name: value.shape for name, value in parameters(static).items()}

    assert sorted(values.values()) == [(2,), (3, 2)]
    assert np.array_equal(parameters(static)["fc_0.w_0"], np.full((3, 2), 0.75, np.float32))


def test_a_program_that_is_not_compiled_runs_on_the_host(static: Any, paddle: Any) -> None:
    """An executor of the IPU runs a program without ipu_runtime on the host's kernels."""
    x = static.data("x", list(VALUES.shape), "float32")
    y = x * x
    executor = static.Executor(paddle.IPUPlace())
    (found,) = executor.run(static.default_main_program(), feed={"x": VALUES}, fetch_list=[y])

    assert found.shape == VALUES.shape
    assert np.array_equal(found, VALUES * VALUES)


def test_variables_are_set_at_the_place(static: Any, paddle: Any) -> None:
    """A tensor of a scope takes values for the IPU place."""
    tensor = static.global_scope().var("w").get_tensor()
    tensor.set(VALUES, paddle.IPUPlace())

    assert np.array_equal(np.array(tensor), VALUES)


def test_programs_are_saved_and_loaded_at_the_place(static: Any, paddle: Any, tmp_path: Any) -> None:
    """Parameters that were saved from an executor of the IPU come back into one."""
    static.nn.fc(static.data("x", [None, 3], "float32"), 2)
    executor = static.Executor(paddle.IPUPlace())
    executor.run(static.default_startup_program())
    before = parameters(static)
    static.save(static.default_main_program(), str(tmp_path / "model"))
    for name in before:
        static.global_scope().find_var(name).get_tensor().set(np.zeros_like(before[name]), paddle.IPUPlace())
    static.load(static.default_main_program(), str(tmp_path / "model"), executor)

    assert any(value.any() for value in before.values())
    for name, value in parameters(static).items():
        assert np.array_equal(value, before[name]), name
