"""What compiling makes of a program, and what it leaves of it."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Dict, List, Sequence

import numpy as np
import pytest

from ipu_conformance import check

BATCH = np.array([[1.0, -2.0, 0.5], [0.25, 4.0, -1.0]], np.float32)

pytestmark = pytest.mark.usefixtures("ipu_build")


class Net:
    """A linear layer with SGD, and what compiles it for one IPU and runs it."""

    def __init__(self, static: Any, paddle: Any, rate: Any = 0.5) -> None:
        self.static, self.paddle = static, paddle
        self.x = static.data("x", [None, 3], "float32")
        self.hidden = static.nn.fc(self.x, 2)
        self.loss = paddle.mean(paddle.tanh(self.hidden))
        paddle.optimizer.SGD(learning_rate=rate).minimize(self.loss)
        self.program = static.default_main_program()
        self.executor = static.Executor(paddle.IPUPlace())
        self.executor.run(static.default_startup_program())

    def compile(self, feeds: Sequence[Any] = ("x",), fetches: Sequence[Any] = (), **options: Any) -> Any:
        """The compiled program, which fetches the loss unless it is told otherwise."""
        self.strategy = self.static.IpuStrategy()
        self.strategy.set_graph_config(num_ipus=1, is_training=True, micro_batch_size=len(BATCH))
        self.strategy.set_options(options)
        compiled = self.static.IpuCompiledProgram(self.program, ipu_strategy=self.strategy)
        self.backend = compiled._backend
        return compiled.compile(list(feeds), list(fetches or [self.loss.name]))

    def run(self, program: Any) -> np.ndarray:
        """The loss of one step."""
        (loss,) = self.executor.run(program, feed={"x": BATCH}, fetch_list=[self.loss])
        return np.asarray(loss)


@pytest.fixture
def net(static: Any, paddle: Any) -> Net:
    """A program with its weights initialised."""
    return Net(static, paddle)


def types(program: Any) -> List[str]:
    """The ops of a program."""
    return [op.type for op in program.global_block().ops]


@pytest.mark.parametrize("which", ["none", "feeds", "fetches", "both"])
def test_feeds_and_fetches_are_compiled_by_name_or_as_variables(net: Net, which: str) -> None:
    """All that is left is ipu_runtime, which has the names of the feeds and the fetches either way."""
    feeds = [net.x if which in ("feeds", "both") else net.x.name]
    fetches = [net.loss if which in ("fetches", "both") else net.loss.name, net.hidden.name]
    program = net.compile(feeds, fetches)
    op = program.global_block().ops[0]

    check.equal(actual=types(program), expected=["ipu_runtime"], what="the compiled program's list of ops")
    check.equal(actual=op.input("FeedList"), expected=[net.x.name], what="the FeedList")
    check.equal(actual=op.output("FetchList"), expected=[net.loss.name, net.hidden.name], what="the FetchList")


def test_the_given_program_keeps_its_ops(net: Net) -> None:
    """Forward, backward and optimizer ops are still there, and the program, org_program, still runs on the host.

    After compiling nothing asks for another compile, until an option is set.
    """
    before = types(net.program)
    program = net.compile()
    settled = net.strategy.need_compile
    net.strategy.set_options({"loss_scaling": 2.0})
    needed = settled, net.strategy.need_compile
    loss = net.run(net.program)

    check.instance(actual=program, expected=net.static.Program, what="the compiled program")
    check.holds(program.org_program is net.program, "org_program is another program than the compiled one was made of.")
    check.equal(actual=types(net.program), expected=before, what="the given program's list of ops")
    check.holds(np.isfinite(loss).all(), f"the loss on the host is {loss}.")
    check.equal(actual=needed, expected=(False, True), what="need_compile after compiling and after an option is set")


def test_feeds_and_fetches_of_the_given_program_are_stripped(net: Net) -> None:
    """Ops of the kinds feed and fetch have no place on the device, and are removed from the given program."""
    block = net.program.global_block()
    for name, kind in (("feed", "FEED_MINIBATCH"), ("fetch", "FETCH_LIST")):
        block.create_var(name=name, type=getattr(net.paddle.base.core.VarDesc.VarType, kind), persistable=True)
    block._prepend_op(type="feed", inputs={"X": ["feed"]}, outputs={"Out": [net.x]}, attrs={"col": 0})
    block.append_op(type="fetch", inputs={"X": [net.loss]}, outputs={"Out": ["fetch"]}, attrs={"col": 0})
    program = net.compile()
    left = [name for name in ("feed", "fetch") if name in types(net.program) or block.has_var(name)]

    check.equal(actual=left, expected=[], what="what is left of feed and fetch in the given program")
    check.equal(actual=types(program), expected=["ipu_runtime"], what="the compiled program's list of ops")


@pytest.mark.parametrize("scheduled", [True, False])
def test_a_scheduler_stays_with_the_compiled_program(static: Any, paddle: Any, scheduled: bool) -> None:
    """The scheduler of the given program is that of the compiled one; a constant learning rate is not a scheduler."""
    rate = paddle.optimizer.lr.ExponentialDecay(learning_rate=0.5, gamma=0.5) if scheduled else 0.5
    scheduler = getattr(Net(static, paddle, rate=rate).compile(), "lr_scheduler", None)

    expected = rate if scheduled else None
    check.holds(scheduler is expected, f"the compiled program has the scheduler {scheduler}, not {expected}.")


@pytest.mark.parametrize("unknown", [{"feeds": ["y"]}, {"fetches": ["no_such_variable"]}], ids=["feed", "fetch"])
def test_what_the_program_does_not_have_is_refused(net: Net, unknown: Dict[str, Any]) -> None:
    """A feed or a fetch that the program does not have is refused."""
    with check.raises(Exception, match=next(iter(unknown.values()))[0], what=f"compiling with {unknown}"):
        net.compile(**unknown)


def test_without_an_optimizer_nothing_is_trained(static: Any, paddle: Any) -> None:
    """A training strategy needs a program with an optimizer; gradients alone are not enough."""
    x = static.data("x", [None, 3], "float32")
    loss = paddle.mean(static.nn.fc(x, 2))
    static.append_backward(loss)
    static.Executor(paddle.IPUPlace()).run(static.default_startup_program())
    compiled = static.IpuCompiledProgram(ipu_strategy=static.IpuStrategy())
    with check.raises(Exception, match="No optimizer found", what="training without an optimizer"):
        compiled.compile([x.name], [loss.name])


SIGNATURES = {
    "static.IpuStrategy.set_graph_config": {
        "num_ipus": 1, "is_training": True, "micro_batch_size": 1, "enable_manual_shard": False,
    },
    "static.IpuStrategy.set_pipelining_config": {
        "enable_pipelining": False, "batches_per_step": 1, "enable_gradient_accumulation": False,
        "accumulation_factor": 1,
    },
    "static.IpuStrategy.set_precision_config": {"enable_fp16": False},
    "static.IpuStrategy.add_custom_op": {"popart_op": None, "domain": "custom.ops", "version": 1},
    "static.IpuCompiledProgram": {"program": None, "scope": None, "ipu_strategy": None},
    "static.ipu_shard_guard": {"index": -1, "stage": -1},
    "static.set_ipu_shard": {"index": -1, "stage": -1},
}  # fmt: skip


def named(paddle: Any, name: str) -> Any:
    """What a dotted name leads to in Paddle, None where it leads nowhere."""
    return functools.reduce(lambda parent, part: getattr(parent, part, None), name.split("."), paddle)


@pytest.mark.parametrize("name", SIGNATURES)
def test_optional_arguments_have_the_specified_defaults(paddle: Any, name: str) -> None:
    """Every optional argument has its specified default."""
    parameters = inspect.signature(named(paddle, name)).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}

    check.equal(actual=defaults, expected=SIGNATURES[name], what=f"the table of paddle.{name}'s defaults")


NAMES = [
    *(f"static.IpuStrategy.{name}" for name in (
        "set_graph_config", "set_pipelining_config", "set_precision_config", "set_options", "get_option",
        "set_optimizer", "parse_optimizer", "add_custom_op", "enable_pattern", "disable_pattern", "register_patch",
        "release_patch", "num_ipus", "is_training", "enable_pipelining", "enable_fp16",
    )),
    "static.IpuCompiledProgram.compile", "IPUPlace", "device.IPUPlace", "device.set_device", "device.get_device",
    "is_compiled_with_ipu", "device.is_compiled_with_ipu", "incubate.identity_loss", "base.core.IpuBackend",
    *(f"base.core.IpuBackend.{name}" for name in (
        "get_instance", "weights_to_host", "detach", "reset", "set_scope", "set_ipu_strategy", "save_model_proto",
    )),
    "base.core.IpuStrategy", "base.core.get_ipu_device_count",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_an_ipu_build_has_the_name(paddle: Any, name: str) -> None:
    """Paddle has each name of the IPU's API."""
    attribute = named(paddle, name)
    usable = callable(attribute) or isinstance(attribute, property)

    check.holds(usable, f"paddle.{name} is {attribute!r}, neither callable nor a property.")


def test_a_process_has_one_backend(paddle: Any) -> None:
    """IpuBackend.get_instance gives the same backend each time."""
    backend, again = (paddle.base.core.IpuBackend.get_instance() for _ in range(2))

    check.holds(again is backend, "IpuBackend.get_instance() gives two different backends.")
