"""What the import hook makes of the stock wheel, before and after Paddle was imported, and what it is without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from ipu_conformance.emulator.faults import catalogue

ASK = """
import json
from paddle.base import core
import paddle.static as static

def error(call):
    try:
        call()
    except Exception as refused:
        return [type(refused).__name__, str(refused)]
    return None

def guarded():
    with static.ipu_shard_guard(index=1):
        pass

print(json.dumps({
    "build": paddle.is_compiled_with_ipu(),
    "place": None if not paddle.is_compiled_with_ipu() else str(paddle.IPUPlace()),
    "places": None if not paddle.is_compiled_with_ipu() else len({
        paddle.IPUPlace, paddle.base.IPUPlace, paddle.framework.IPUPlace, core.IPUPlace, type(paddle.device.IPUPlace()),
    }),
    "device": error(lambda: paddle.set_device("ipu")) or paddle.get_device().partition(":")[0],
    "strategy": error(static.IpuStrategy),
    "guard": error(guarded),
    "compiled": error(lambda: static.IpuCompiledProgram(static.Program(), ipu_strategy=static.IpuStrategy())),
    "pass": error(lambda: core.get_pass("no_such_pass")) and error(lambda: core.get_pass("no_such_pass"))[0],
    "own pass": core.get_pass("graph_viz_pass").type(),
    "ipu pass": error(lambda: core.get_pass("avg_shard_pass")),
}))
"""
INSTALL = "from ipu_conformance.emulator import hook; hook.install('paddle')\n"
ORDERS = {
    "before Paddle": INSTALL + "import paddle\n",
    "after Paddle": "import paddle\n" + INSTALL,
    "twice": INSTALL + "import paddle\nhook.install('paddle')\n"
    "from ipu_conformance.emulator.paddle import activation\n"
    "activation.change_core(paddle.base.core); activation.change_paddle(paddle)\n",
}

NAMES = """
import inspect, json, sys
import paddle, paddle.inference, paddle.jit, paddle.static, paddle.utils.cpp_extension

def public(holder):
    return {name for name in vars(holder) if not name.startswith("_")}

def names():
    modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "paddle"}
    held = {name: public(module) for name, module in modules.items()}
    for module in modules.values():
        for kind in vars(module).values():
            if inspect.isclass(kind) and str(getattr(kind, "__module__", "")).split(".")[0] == "paddle":
                held[f"{kind.__module__}.{kind.__qualname__}"] = public(kind)
    return held

before = names()
from ipu_conformance.emulator import hook
hook.install("paddle")
after = names()
print(json.dumps([
    {holder: sorted(more) for holder in after for more in [after[holder] - before.get(holder, set())] if more},
    {holder: sorted(less) for holder in before for less in [before[holder] - after[holder]] if less},
]))
"""
VENDOR_NAMES = {"paddle.base.core": ["IpuBackend", "IpuStrategy", "get_ipu_device_count"]}
"""The public names that an IPU build adds to the modules and classes of the stock wheel."""


def answer(program: str, **variables: str) -> Any:
    """What a process of its own prints last, read as JSON."""
    environment = {name: value for name, value in os.environ.items() if name != catalogue.ENVIRONMENT}
    process = subprocess.run(
        [sys.executable, "-c", program], env={**environment, **variables}, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.parametrize("order", ORDERS)
def test_paddle_becomes_an_ipu_build(order: str) -> None:
    """Whether the hook or Paddle comes first, and however often, every name leads to the IPU."""
    assert answer(ORDERS[order] + ASK) == {
        "build": True,
        "place": "Place(ipu)",
        "places": 1,
        "device": "ipus",
        "strategy": None,
        "guard": None,
        "compiled": None,
        "pass": "ValueError",
        "own pass": "graph_viz_pass",
        "ipu pass": None,
    }


def test_the_stock_wheel_is_left_alone() -> None:
    """Without the hook Paddle refuses everything of the IPU in its own words."""
    found = answer("import ipu_conformance, paddle\n" + ASK)

    assert (found["build"], found["place"], found["own pass"]) == (False, None, "graph_viz_pass")
    assert found["device"] == [
        "ValueError",
        "The device should not be 'ipu', since PaddlePaddle is not compiled with IPU",
    ]
    assert found["strategy"][0] == "RuntimeError"
    assert "non IPU compiled environment" in found["strategy"][1]
    refusal = ["ValueError", "Can not use this function since PaddlePaddle is not compiled with IPU"]
    assert found["guard"] == refusal
    assert found["compiled"][0] == "RuntimeError"
    assert found["ipu pass"][0] == "ValueError"


def test_the_modules_of_paddle_gain_the_names_of_the_vendor_alone() -> None:
    """No module and no class of the wheel has a public name more or less than in an IPU build."""
    added, removed = answer(NAMES)

    assert added == VENDOR_NAMES
    assert removed == {}


def test_faults_are_turned_on_by_the_environment() -> None:
    """IPU_CONFORMANCE_FAULT names faults of Paddle, which are on once it is imported."""
    program = INSTALL + "import json, paddle\nprint(json.dumps([paddle.is_compiled_with_ipu()]))"

    assert answer(program, **{catalogue.ENVIRONMENT: "paddle-cpu-build"}) == [False]
