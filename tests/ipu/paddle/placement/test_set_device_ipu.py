"""The IPU as a device and as a place: ``set_device``, ``get_device``, ``IPUPlace`` and what is run and kept there."""

from __future__ import annotations

import importlib
import re
from typing import Any, Dict

import numpy as np
import pytest

from ipu_conformance import check

from ..device import held

VALUES = np.array([[1.5, -2.0, 0.25], [4.0, 8.0, -0.5]], dtype=np.float32)
RANGE = re.compile(r"ipus:\{0-\d+\}")

pytestmark = pytest.mark.usefixtures("ipu_build")


@pytest.mark.parametrize("name", ["ipu", "IPU", "Ipu"])
def test_the_ipu_is_set_as_the_device(paddle: Any, name: str) -> None:
    """set_device gives an IPU place, and get_device names the range of all IPUs."""
    place = paddle.set_device(name)
    device = paddle.get_device()

    check.instance(actual=place, expected=paddle.IPUPlace, what=f"set_device({name!r})")
    check.holds(RANGE.fullmatch(device), f"get_device() is {device!r}, which does not match {RANGE.pattern!r}.")
    check.equal(actual=paddle.device.get_device(), expected=device, what="paddle.device.get_device()")


@pytest.mark.parametrize("name", ["ipus", "ipu2", "tpu", "", "gpu", "xpu"])
def test_a_device_that_does_not_exist_is_refused(paddle: Any, name: str) -> None:
    """A wrong name is an error, and so is a device of another wheel; the device stays."""
    paddle.set_device("ipu")
    match = name if name in ("gpu", "xpu") else "The device must be a string"
    with check.raises(ValueError, match=match, what=f"set_device({name!r})"):
        paddle.set_device(name)

    check.equal(actual=paddle.get_device()[:5], expected="ipus:", what="the device after the refusal")


@pytest.mark.parametrize("where", ["paddle", "paddle.device", "paddle.framework", "paddle.base"])
def test_places_can_be_made(paddle: Any, where: str) -> None:
    """IPUPlace is callable without arguments wherever Paddle offers it, and prints as the IPU."""
    place = importlib.import_module(where).IPUPlace()

    check.instance(actual=place, expected=paddle.IPUPlace, what=f"{where}.IPUPlace()")
    check.equal(actual=[str(place), repr(place)], expected=["Place(ipu)"] * 2, what="the pair of its str and repr")


def test_a_place_of_the_host_is_no_ipu_place(paddle: Any) -> None:
    """The places of the CPU and of the IPU can be told apart."""
    cpu, ipu, another = paddle.CPUPlace(), paddle.IPUPlace(), paddle.IPUPlace()
    answers = isinstance(cpu, paddle.IPUPlace), ipu._equals(another), ipu._equals(cpu)

    what = "whether a CPUPlace is an IPUPlace, and an IPUPlace equals another IPUPlace and a CPUPlace"
    check.equal(actual=answers, expected=(False, True, False), what=what)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool"])
def test_tensors_are_made_at_the_place(paddle: Any, dtype: str) -> None:
    """A tensor made at the IPU place holds the values it was given, bit for bit."""
    values = VALUES.astype(dtype)

    check.identical(
        actual=paddle.to_tensor(values, place=paddle.IPUPlace()).numpy(), expected=values, what="the tensor"
    )


def test_layers_are_made_on_the_device_that_is_set(paddle: Any) -> None:
    """With the IPU as the device tensors are computed with, a layer's weight is initialised, and gradients flow."""
    paddle.set_device("ipu")
    tensor, layer = paddle.to_tensor(VALUES), paddle.nn.Linear(3, 1, bias_attr=False)
    layer(tensor).sum().backward()

    check.identical(actual=(tensor + tensor).numpy(), expected=VALUES + VALUES, what="the sum")
    check.identical(actual=layer.weight.gradient()[:, 0], expected=VALUES.sum(axis=0), what="the gradient")


def test_random_numbers_do_not_depend_on_the_device(paddle: Any) -> None:
    """After the IPU the CPU can be the device, and the other way round; one seed gives both the same initial values."""
    drawn = []
    for turn, name in enumerate(("cpu", "ipu", "cpu", "ipu")):
        paddle.set_device(name)
        check.equal(actual=paddle.get_device()[:3], expected=name, what=f"the device after set_device number {turn}")
        paddle.seed(7)
        drawn.append(paddle.nn.Linear(3, 4).weight.numpy())

    check.identical(actual=np.stack(drawn), expected=np.stack([drawn[0]] * 4), what="the weight on each device")


def parameters(paddle: Any) -> Dict[str, np.ndarray]:
    """The values of all parameters of the main program, by name."""
    return {each.name: held(paddle, each.name) for each in paddle.static.default_main_program().all_parameters()}


def test_an_executor_has_a_place(static: Any, paddle: Any) -> None:
    """An executor keeps the place it is made for; without one it follows the device."""
    check.instance(actual=static.Executor(paddle.IPUPlace()).place, expected=paddle.IPUPlace, what="Executor(IPUPlace)")
    paddle.set_device("ipu")
    check.instance(actual=static.Executor().place, expected=paddle.IPUPlace, what="Executor() after set_device")


@pytest.mark.parametrize("place", ["ipu", "cpu"])
def test_startup_runs_at_the_place(static: Any, paddle: Any, place: str) -> None:
    """The startup program gives every parameter its value, on an executor of either place."""
    x = static.data("x", [None, 3], "float32")
    constant = paddle.nn.initializer.Constant(0.75)
    static.nn.fc(x, 2, weight_attr=paddle.ParamAttr(initializer=constant))
    executor = static.Executor(paddle.IPUPlace() if place == "ipu" else paddle.CPUPlace())
    executor.run(static.default_startup_program())
    values = parameters(paddle)

    check.equal(actual=sorted(values), expected=["fc_0.b_0", "fc_0.w_0"], what="the list of parameters")
    check.identical(actual=values["fc_0.b_0"], expected=np.zeros(2, np.float32), what="the bias")
    check.identical(actual=values["fc_0.w_0"], expected=np.full((3, 2), 0.75, np.float32), what="the weight")


def test_a_program_that_is_not_compiled_runs_on_the_host(static: Any, paddle: Any) -> None:
    """An executor of the IPU runs a program without ipu_runtime on the host's kernels."""
    x = static.data("x", list(VALUES.shape), "float32")
    executor = static.Executor(paddle.IPUPlace())
    (squares,) = executor.run(static.default_main_program(), feed={"x": VALUES}, fetch_list=[x * x])

    check.identical(actual=squares, expected=VALUES * VALUES, what="the square")


def test_programs_are_saved_and_loaded_at_the_place(static: Any, paddle: Any, tmp_path: Any) -> None:
    """Parameters that were saved from an executor of the IPU come back into one."""
    static.nn.fc(static.data("x", [None, 3], "float32"), 2)
    executor = static.Executor(paddle.IPUPlace())
    executor.run(static.default_startup_program())
    before = parameters(paddle)
    static.save(static.default_main_program(), str(tmp_path / "model"))
    for name, value in before.items():
        static.global_scope().find_var(name).get_tensor().set(value + 1, paddle.IPUPlace())
        check.identical(actual=held(paddle, name), expected=value + 1, what=f"{name} once it is set at the place")
    static.load(static.default_main_program(), str(tmp_path / "model"), executor)

    for name, value in parameters(paddle).items():
        check.identical(actual=value, expected=before[name], what=f"the loaded {name}")
