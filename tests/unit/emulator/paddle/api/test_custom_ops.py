"""Custom ops that are registered from Python, as ops of stock Paddle programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import paddle
import pytest
from paddle.base import core

from ipu_conformance.emulator.paddle.api import custom_ops
from ipu_conformance.emulator.paddle.api.strategy import IpuStrategy
from ipu_conformance.emulator.paddle.compile.custom_ops import CustomOpError, bind, name_of

from ..programs import run, static

X = np.array([[1.0, -2.0, 3.0], [-0.5, 0.25, -8.0]], np.float32)


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has registered nothing but its own ops."""
    registered: Dict[str, Any] = {}
    monkeypatch.setattr("ipu_conformance.emulator.paddle.compile.custom_ops.REGISTERED", registered)


def leaky(x: np.ndarray, *, alpha: float) -> np.ndarray:
    return np.where(x > 0, x, alpha * x)


def leaky_gradient(x: np.ndarray, y: np.ndarray, grad: np.ndarray, *, alpha: float) -> np.ndarray:
    return np.where(x > 0, grad, alpha * grad)


def test_forward_and_gradient_are_called_with_the_attributes() -> None:
    """The op computes what its functions say; each use has attributes of its own."""
    op = custom_ops.register("custom_leaky", leaky, leaky_gradient)
    with static() as (program, _, scope):
        x = paddle.static.data("x", [2, 3], "float32")
        x.stop_gradient = False
        y = op(op(x, alpha=0.25), alpha=0.5)
        (grad,) = paddle.static.gradients(paddle.sum(y * y), x)
        got = run(program, {"x": X}, [y.name, grad.name], scope)

    slope = np.where(X > 0, 1, 0.125)
    assert got[0].tolist() == (X * slope).tolist()
    assert got[1].tolist() == (2 * X * slope * slope).tolist()


def test_an_op_may_have_several_inputs_and_outputs() -> None:
    """Outputs come as a tuple, with the shapes that the op's own function states."""

    def halves(a: np.ndarray, b: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        return a + b, (a * b).sum(axis=1)

    def shapes(a: Tuple[int, ...], b: Tuple[int, ...]) -> List[Tuple[int, ...]]:
        return [a, a[:1]]

    op = custom_ops.register("custom_two", halves, shapes=shapes)
    with static() as (program, _, scope):
        a, b = paddle.static.data("a", [2, 3], "float32"), paddle.static.data("b", [2, 3], "float32")
        total, products = op(a, b)
        got = run(program, {"a": X, "b": X + 1}, [total.name, products.name], scope)

    assert tuple(products.shape) == (2,)
    assert got[0].tolist() == (2 * X + 1).tolist()
    assert got[1].tolist() == (X * (X + 1)).sum(axis=1).tolist()


def test_an_op_may_be_composed_of_paddle_ops() -> None:
    """Paddle ops that make up a custom op carry its name and have Paddle's gradients."""
    op = custom_ops.register("custom_cube", lambda x: x * x * x, composed=True)
    with static() as (program, _, scope):
        x = paddle.static.data("x", [2, 3], "float32")
        x.stop_gradient = False
        y = op(x)
        named = [name_of(item) for item in program.global_block().ops]
        (grad,) = paddle.static.gradients(y, x)
        got = run(program, {"x": X}, [y.name, grad.name], scope)

    assert named == ["custom_cube", "custom_cube"]
    assert got[0].tolist() == (X * X * X).tolist()
    assert got[1].tolist() == (3 * X * X).tolist()


def test_a_loaded_program_calls_what_this_process_registered() -> None:
    """A program from another process has no functions of its own: binding finds them by name and attributes."""
    op = custom_ops.register("custom_leaky", leaky, leaky_gradient)
    with static() as (program, _, scope):
        x = paddle.static.data("x", [2, 3], "float32")
        y = op(x, alpha=0.25)
        saved = program.desc.serialize_to_string()
        loaded = paddle.static.Program.parse_from_string(saved)
        loaded.global_block().ops[0].desc._set_attr("forward_callable_id", 10**6)
        bind(loaded, IpuStrategy())
        (got,) = run(loaded, {"x": X}, [y.name], scope)

    assert got.tolist() == leaky(X, alpha=0.25).tolist()


@pytest.mark.parametrize("where", ["program", "strategy"])
def test_an_op_that_nobody_registered_is_refused(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence names the op, whether the program uses it or the strategy maps it."""
    op = custom_ops.register("custom_leaky", leaky)
    strategy = IpuStrategy()
    with static() as (program, _, _):
        x = paddle.static.data("x", [2, 3], "float32")
        if where == "program":
            op(x, alpha=1)
        else:
            strategy.set_options({"custom_op": {"paddle_op": "custom_leaky", "popart_op": "LeakyRelu"}})
        monkeypatch.setattr("ipu_conformance.emulator.paddle.compile.custom_ops.REGISTERED", {})

        with pytest.raises(CustomOpError, match=r"nobody registered the custom op 'custom_leaky' \(registered: none\)"):
            bind(program, strategy)


def test_an_op_of_paddle_may_be_mapped() -> None:
    """add_custom_op may also name an op that Paddle has."""
    strategy = IpuStrategy()
    strategy.set_options({"custom_op": {"paddle_op": "relu", "popart_op": "Relu"}})
    with static() as (program, _, _):
        bind(program, strategy)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("relu", {}, "'relu' is an op of Paddle's own"),
        ("not a name", {}, "is an identifier, not 'not a name'"),
        ("custom_leaky", {"composed": True, "gradient": leaky_gradient}, "composed of Paddle ops"),
    ],
)
def test_a_wrong_registration_is_refused(name: str, options: Dict[str, Any], sentence: str) -> None:
    """Names are free identifiers; a composed op has no gradient of its own."""
    with pytest.raises(CustomOpError, match=sentence):
        custom_ops.register(name, leaky, **options)


def test_a_wrong_use_is_refused() -> None:
    """Inputs are variables, attributes are those of the function and can be saved."""
    op = custom_ops.register("custom_leaky", leaky)
    with static():
        x = paddle.static.data("x", [2, 3], "float32")
        with pytest.raises(CustomOpError, match="without inputs"):
            op(alpha=1)
        with pytest.raises(CustomOpError, match="given a ndarray"):
            op(X, alpha=1)
        with pytest.raises(CustomOpError, match=r"1 inputs and the attributes \['beta'\]"):
            op(x, beta=1)
        with pytest.raises(CustomOpError, match="cannot be saved"):
            op(x, alpha=core.CPUPlace())
    with pytest.raises(CustomOpError, match="dynamic mode"):
        op(paddle.to_tensor(X), alpha=1)


@pytest.mark.parametrize("for_ipu", [True, False])
def test_sources_for_the_ipu_are_refused(tmp_path: Path, for_ipu: bool) -> None:
    """A C++ source that includes PopART is refused in one sentence; others reach Paddle's own builder."""
    source = tmp_path / "op.cc"
    source.write_text("#include <popart/op.hpp>\n" if for_ipu else "#include <vector>\n", encoding="utf-8")
    built: List[Any] = []

    def load(name: str, sources: List[str]) -> None:
        built.append((name, sources))

    checked = custom_ops.refuse_sources(load)
    if for_ipu:
        with pytest.raises(CustomOpError, match=r"op\.cc is a custom op in C\+\+ for the IPU"):
            checked("op", sources=[str(source)])
    else:
        checked("op", sources=[str(source)])

    assert built == ([] if for_ipu else [("op", [str(source)])])


def test_a_process_with_custom_ops_ends_well() -> None:
    """Paddle outlives the interpreter with the registered functions, and the process still ends with zero."""
    script = (
        "import json, numpy as np, paddle\n"
        "from ipu_conformance.emulator.paddle.api import custom_ops\n"
        "paddle.enable_static()\n"
        "op = custom_ops.register('custom_negation', lambda x: -x)\n"
        "y = op(paddle.static.data('x', [2], 'float32'))\n"
        "out = paddle.static.Executor().run(feed={'x': np.ones(2, 'float32')}, fetch_list=[y])[0]\n"
        "print(json.dumps(out.tolist()))\n"
    )
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout.splitlines()[-1]) == [-1, -1]
