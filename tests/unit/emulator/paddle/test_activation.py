"""What the import hook makes of the stock wheel, before and after Paddle was imported, and what it is without it."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List

import pytest

from ipu_conformance.emulator.faults import catalogue
from tests.unit.commands import Forks, printed

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
AGAIN = (
    "hook.install('paddle')\nfrom ipu_conformance.emulator.paddle import activation\n"
    "activation.change_core(paddle.base.core); activation.change_paddle(paddle)\n"
)

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


def read(shown: str) -> List[Any]:
    """What a program printed, each line read as JSON; Paddle's own lines come first."""
    return [json.loads(line) for line in shown.splitlines() if line[:1] in ("{", "[")]


@pytest.fixture(scope="module")
def stock() -> Iterator[Forks]:
    """A process that has imported Paddle alone, and forks for each program."""
    process = Forks("paddle")
    yield process
    process.close()


@pytest.fixture(scope="module")
def builds(stock: Forks) -> Dict[str, Any]:
    """What programs that ask the same see, by when the hook was installed."""
    before, twice = read(printed(INSTALL + "import paddle\n" + ASK + AGAIN + ASK))
    (after,) = read(printed("import paddle\n" + INSTALL + ASK, start=stock.run))
    return {"before Paddle": before, "after Paddle": after, "twice": twice}


@pytest.mark.parametrize("order", ["before Paddle", "after Paddle", "twice"])
def test_paddle_becomes_an_ipu_build(builds: Dict[str, Any], order: str) -> None:
    """Whether the hook or Paddle comes first, and however often, every name leads to the IPU."""
    assert builds[order] == {
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


def test_the_stock_wheel_is_left_alone(stock: Forks) -> None:
    """Without the hook Paddle refuses everything of the IPU in its own words."""
    (found,) = read(printed("import ipu_conformance, paddle\n" + ASK, start=stock.run))

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


def test_the_modules_of_paddle_gain_the_names_of_the_vendor_alone(stock: Forks) -> None:
    """No module and no class of the wheel has a public name more or less than in an IPU build."""
    ((added, removed),) = read(printed(NAMES, start=stock.run))

    assert added == VENDOR_NAMES
    assert removed == {}


def test_faults_are_turned_on_by_the_environment(stock: Forks) -> None:
    """IPU_CONFORMANCE_FAULT names faults of Paddle, which are on once it is an IPU build."""
    named = f"import os; os.environ[{catalogue.ENVIRONMENT!r}] = 'paddle-cpu-build'\n"
    program = named + INSTALL + "import json, paddle\nprint(json.dumps([paddle.is_compiled_with_ipu()]))"

    assert read(printed(program, start=stock.run)) == [[False]]
