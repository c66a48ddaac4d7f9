"""What compiling makes of a program, and leaves of it."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Dict, List, Sequence

import numpy as np
import pytest

BATCH = np.array([[1.0, -2.0, 0.5], [0.25, 4.0, -1.0]], np.float32)


pytestmark = pytest.mark.usefixtures("ipu_build")


class Net:
    """A program of one layer, and its variables."""

    def __init__(self, static: Any, paddle: Any, rate: Any = 0.5) -> None:
        self.static, self.paddle = static, paddle
        self.x = static.data("x", [None, 3], "float32")
        self.hidden = static.nn.fc(self.x, 2)
        self.loss = paddle.mean(paddle.tanh(self.hidden))
        paddle.optimizer.SGD(learning_rate=rate).minimize(self.loss)
        self.program = static.default_main_program()
        self.executor = static.Executor(paddle.IPUPlace())
        self.executor.run(static.default_startup_program())
        self.strategy = static.IpuStrategy()
        self.strategy.set_graph_config(num_ipus=1, is_training=True, micro_batch_size=len(BATCH))

    def compile(self, feeds: Sequence[Any] = ("x",), fetches: Sequence[Any] = ()) -> Any:
        """The compiled program, which fetches the loss unless it is told otherwise."""
        compiled = self.static.IpuCompiledProgram(self.program, ipu_strategy=self.strategy)
        return compiled.compile(list(feeds), list(fetches or [self.loss.name]))

    def run(self, program: Any, fetches: List[Any]) -> List[np.ndarray]:
        """What one step fetches."""
        return self.executor.run(program, feed={"x": BATCH}, fetch_list=fetches)


@pytest.fixture
def net(static: Any, paddle: Any) -> Net:
    """A program with its weights initialised."""
    return Net(static, paddle)


def types(program: Any) -> List[str]:
    """The ops of a program."""
    return [op.type for op in program.global_block().ops]


def test_a_compiled_program_is_one_op(net: Net) -> None:
    """All that is left is ipu_runtime, which reads the feeds and writes the fetches."""
    program = net.compile(fetches=[net.loss.name, net.hidden.name])
    (op,) = program.global_block().ops

    assert isinstance(program, net.static.Program)
    assert op.type == "ipu_runtime"
    assert op.input("FeedList") == [net.x.name]
    assert op.output("FetchList") == [net.loss.name, net.hidden.name]


def test_a_compiled_program_knows_what_it_was_made_of(net: Net) -> None:
    """org_program is the program that was given."""
    assert net.compile().org_program is net.program


def test_the_given_program_keeps_its_ops(net: Net) -> None:
    """Forward, backward and optimizer ops are still there, and the program still runs on the host."""
    before = types(net.program)
    net.compile()
    (loss,) = net.run(net.program, [net.loss])

    assert types(net.program) == before
    assert np.isfinite(loss).all()


def test_feeds_and_fetches_of_the_given_program_are_stripped(net: Net) -> None:
    """Ops of the kinds feed and fetch have no place on the device, and are removed from the given program."""
    block = net.program.global_block()
    for name, kind in (("feed", "FEED_MINIBATCH"), ("fetch", "FETCH_LIST")):
        block.create_var(name=name, type=getattr(net.paddle.base.core.VarDesc.VarType, kind), persistable=True)
    block._prepend_op(type="feed", inputs={"X": ["feed"]}, outputs={"Out": [net.x]}, attrs={"col": 0})
    block.append_op(type="fetch", inputs={"X": [net.loss]}, outputs={"Out": ["fetch"]}, attrs={"col": 0})
    program = net.compile()

    assert not {"feed", "fetch"} & set(types(net.program))
    assert not block.has_var("feed")
    assert not block.has_var("fetch")
    assert types(program) == ["ipu_runtime"]


def test_compiling_settles_the_strategy(net: Net) -> None:
    """After compiling nothing asks for another compile, until an option is set."""
    net.compile()
    settled = net.strategy.need_compile
    net.strategy.set_options({"loss_scaling": 2.0})

    assert (settled, net.strategy.need_compile) == (False, True)


@pytest.mark.parametrize("which", ["feeds", "fetches", "both"])
def test_feeds_and_fetches_are_compiled_by_name_or_as_variables(net: Net, which: str) -> None:
    """The compiled op has their names either way."""
    feeds = [net.x.name if which == "fetches" else net.x]
    fetches = [net.loss.name if which == "feeds" else net.loss, net.hidden.name]
    (op,) = net.compile(feeds, fetches).global_block().ops

    assert op.input("FeedList") == [net.x.name]
    assert op.output("FetchList") == [net.loss.name, net.hidden.name]


@pytest.mark.parametrize("how", ["names", "variables"])
def test_fetches_are_names_or_variables(net: Net, how: str) -> None:
    """Running takes either, in any order, and gives each its own value."""
    program = net.compile(fetches=[net.loss.name, net.hidden.name])
    asked = [net.hidden, net.loss]
    hidden, loss = net.run(program, asked if how == "variables" else [variable.name for variable in asked])

    assert (hidden.shape, loss.shape) == ((2, 2), (1,))
    # The mean of four tangents: each is rounded once, and so is every addition and the quotient.
    exact = np.tanh(hidden.astype(np.float64)).mean()
    assert abs(loss[0] - exact) <= 8 * np.finfo(np.float32).eps * np.abs(np.tanh(hidden)).mean()


def test_variables_are_fetched_alone(net: Net) -> None:
    """A part of what was compiled may be fetched, and nothing else."""
    program = net.compile(fetches=[net.loss.name, net.hidden.name])
    (hidden,) = net.run(program, [net.hidden])

    assert hidden.shape == (2, 2)


def test_a_scheduler_stays_with_the_compiled_program(static: Any, paddle: Any) -> None:
    """The scheduler of the given program is that of the compiled one."""
    scheduler = paddle.optimizer.lr.ExponentialDecay(learning_rate=0.5, gamma=0.5)
    net = Net(static, paddle, rate=scheduler)
    program = net.compile()

    assert program.lr_scheduler is scheduler


def test_a_program_without_a_scheduler_has_none(net: Net) -> None:
    """A constant learning rate is no scheduler."""
    assert not hasattr(net.compile(), "lr_scheduler")


@pytest.mark.parametrize("unknown", [{"feeds": ["y"]}, {"fetches": ["no_such_variable"]}], ids=["feed", "fetch"])
def test_what_the_program_does_not_have_is_refused(net: Net, unknown: Dict[str, List[str]]) -> None:
    """A feed or a fetch of no variable of the program cannot be compiled."""
    with pytest.raises(Exception, match=next(iter(unknown.values()))[0]):
        net.compile(**unknown)


def test_without_an_optimizer_nothing_is_trained(static: Any, paddle: Any) -> None:
    """A training strategy needs a program with an optimizer; gradients alone are not enough."""
    x = static.data("x", [None, 3], "float32")
    loss = paddle.mean(static.nn.fc(x, 2))
    static.append_backward(loss)
    static.Executor(paddle.IPUPlace()).run(static.default_startup_program())
    strategy = static.IpuStrategy()
    with pytest.raises(Exception, match="No optimizer found"):
        static.IpuCompiledProgram(ipu_strategy=strategy).compile([x.name], [loss.name])


# Names and signatures

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
    """What a dotted name leads to in Paddle."""
    return functools.reduce(getattr, name.split("."), paddle)


@pytest.mark.parametrize("name", SIGNATURES)
def test_optional_arguments_have_the_specified_defaults(paddle: Any, name: str) -> None:
    """What may be left out, and what it is then."""
    parameters = inspect.signature(named(paddle, name)).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}

    assert defaults == SIGNATURES[name]


NAMES = [
    *(f"static.IpuStrategy.{name}" for name in (
        "set_graph_config", "set_pipelining_config", "set_precision_config", "set_options", "get_option",
        "set_optimizer", "parse_optimizer", "add_custom_op", "enable_pattern", "disable_pattern", "register_patch",
        "release_patch", "num_ipus", "is_training", "enable_pipelining", "enable_fp16",
    )),
    "static.IpuCompiledProgram.compile", "IPUPlace", "device.IPUPlace", "device.set_device", "device.get_device",
    "is_compiled_with_ipu", "device.is_compiled_with_ipu", "incubate.identity_loss", "base.core.IpuBackend",
    "base.core.IpuBackend.get_instance", "base.core.IpuStrategy", "base.core.get_ipu_device_count",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_an_ipu_build_has_the_name(paddle: Any, name: str) -> None:
    """Each name of the IPU's part leads somewhere."""
    attribute = named(paddle, name)

    assert callable(attribute) or isinstance(attribute, property)


@pytest.mark.parametrize(
    "name", ["weights_to_host", "detach", "reset", "set_scope", "set_ipu_strategy", "save_model_proto"]
)
def test_the_backend_has_its_methods(paddle: Any, name: str) -> None:
    """There is one backend in a process, with what a program may ask of it."""
    backend = paddle.base.core.IpuBackend.get_instance()

    assert backend is paddle.base.core.IpuBackend.get_instance()
    assert callable(getattr(backend, name))
