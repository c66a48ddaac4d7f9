"""What a strategy's own methods check, set and patch."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import pytest

from ipu_conformance import check

from .options_table import DEFAULTS

GRAPH = {"num_ipus": 4, "is_training": False, "micro_batch_size": 3, "enable_manual_shard": True}
PIPELINE = {
    "enable_pipelining": True, "batches_per_step": 5, "enable_gradient_accumulation": True, "accumulation_factor": 7,
}  # fmt: skip
GRAPH_DEFAULTS, PIPELINE_DEFAULTS = ({name: DEFAULTS[name] for name in options} for options in (GRAPH, PIPELINE))


def check_options(strategy: Any, expected: Dict[str, Any], when: str = "") -> None:
    """The options have these values."""
    __tracebackhide__ = True
    options = {name: strategy.get_option(name) for name in expected}
    check.equal(actual=options, expected=expected, what=f"what get_option gives {when}".strip())


def call(strategy: Any, method: str, arguments: Dict[str, Any]) -> None:
    """Call a method; set_options takes the arguments as they are."""
    if method == "set_options":
        strategy.set_options(arguments)
    else:
        getattr(strategy, method)(**arguments)


def test_a_new_strategy_has_no_custom_ops(strategy: Any) -> None:
    """A new strategy has no custom ops and asks for a compile."""
    check.equal(actual=strategy.has_custom_ops, expected=False, what="has_custom_ops")
    check.equal(actual=strategy.custom_op_names, expected=[], what="custom_op_names")
    check.equal(actual=strategy.need_compile, expected=True, what="need_compile")


PLAIN = {**PIPELINE, "enable_pipelining": False}
SET: Dict[str, Tuple[str, Dict[str, Any], Dict[str, Any]]] = {
    "graph": ("set_graph_config", GRAPH, {}),
    "pipelining": ("set_pipelining_config", PIPELINE, {}),
    "precision": ("set_precision_config", {"enable_fp16": True}, {}),
    # One argument sets one option; a manual shard needs more than one IPU beside it.
    **{
        name: ("set_graph_config", {name: value, "num_ipus": 4}, {**GRAPH_DEFAULTS, name: value, "num_ipus": 4})
        for name, value in GRAPH.items()
    },
    **{f"{n} IPUs": ("set_graph_config", {"num_ipus": n, "enable_manual_shard": True}, {}) for n in (2, 3, 16)},
    "steps and accumulation on one IPU": ("set_pipelining_config", PLAIN, {}),
    # What the configuring methods refuse is stored by set_options, and floats keep what float32 would round away.
    "manual shard unchecked": ("set_options", {"enable_manual_shard": True}, {}),
    "pipelining unchecked": ("set_options", {"enable_pipelining": True}, {}),
    "IPUs unchecked": ("set_options", {"num_ipus": 0}, {}),
    "factor unchecked": ("set_options", {"accumulation_factor": 0}, {}),
    "floats": ("set_options", {"loss_scaling": 16777217.0, "lr": 0.1}, {}),
}  # fmt: skip


@pytest.mark.parametrize(("method", "arguments", "others"), SET.values(), ids=list(SET))
def test_a_method_sets_options(strategy: Any, method: str, arguments: Dict[str, Any], others: Dict[str, Any]) -> None:
    """Each argument is the option of its name, and one that is left out is the default again."""
    if method == "set_pipelining_config" and arguments["enable_pipelining"]:
        strategy.set_graph_config(num_ipus=2, enable_manual_shard=True)
    call(strategy, method, arguments)
    check_options(strategy, {**others, **arguments}, f"after {method} with {arguments}")
    if method != "set_options":
        call(strategy, method, {})
        check_options(strategy, {name: DEFAULTS[name] for name in arguments}, f"after {method}()")


MANUAL = "Only if num_ipus > 1, enable_manual_shard is able to be set True"
PIPELINED = "Only if enable_manual_shard=True, enable_pipelining is able to be set True"
DYNAMIC = "Only needs to set optimizer in dynamic mode"  # in static mode the program holds the optimizer
REFUSED: Dict[str, Tuple[int, str, Dict[str, Any], Any, str]] = {
    "manual shard": (1, "set_graph_config", {"enable_manual_shard": True}, RuntimeError, MANUAL),
    "manual shard of 1": (1, "set_graph_config", {"enable_manual_shard": True, "num_ipus": 1}, RuntimeError, MANUAL),
    "manual shard for inference": (
        1, "set_graph_config", {"enable_manual_shard": True, "num_ipus": 1, "is_training": False}, RuntimeError, MANUAL,
    ),
    "pipelining on 1": (1, "set_pipelining_config", PIPELINE, RuntimeError, PIPELINED),
    "pipelining on 2": (2, "set_pipelining_config", PIPELINE, RuntimeError, PIPELINED),
    "optimizer": (1, "set_optimizer", {"optimizer": object()}, RuntimeError, DYNAMIC),
    "option": (1, "set_options", {"no_such_option": 1}, ValueError, "Cannot find option"),
    "custom op": (1, "set_options", {"custom_op": {"paddle_op": "a", "opset": 11}}, ValueError, "opset"),
    "collectives": (
        1, "set_options", {"replicated_collectives_settings": {"merge_everything": True}},
        ValueError, "replicated.collectives",
    ),  # SetReplicatedCollectivesSettings
    "location setting": (1, "set_options", {"location_weight": {"in_the_cloud": 1}}, ValueError, "location_weight"),
    "location": (1, "set_options", {"location_all": {"in_the_cloud": 1}}, ValueError, "location_all"),
}  # fmt: skip


@pytest.mark.parametrize(("ipus", "method", "arguments", "error", "match"), REFUSED.values(), ids=list(REFUSED))
def test_what_a_method_refuses_sets_nothing(
    strategy: Any, ipus: int, method: str, arguments: Dict[str, Any], error: Any, match: str
) -> None:
    """What an IPU cannot do, or does not have, is refused; nothing is set, and nothing asks for another compile."""
    strategy.set_graph_config(num_ipus=ipus)
    strategy.need_compile = False
    with check.raises(error, match=match, what=f"{method} with {arguments}"):
        call(strategy, method, arguments)

    check_options(strategy, {**GRAPH_DEFAULTS, **PIPELINE_DEFAULTS, "num_ipus": ipus}, "after the refusal")
    check.equal(actual=strategy.need_compile, expected=False, what="need_compile after the refusal")


@pytest.mark.parametrize(
    ("name", "value"), [("num_ipus", 4), ("is_training", False), ("enable_pipelining", True), ("enable_fp16", True)]
)
def test_properties_are_options(strategy: Any, name: str, value: Any) -> None:
    """num_ipus, is_training, enable_pipelining and enable_fp16 can be read as attributes, and not written."""
    strategy.set_options({name: value})

    check.equal(actual=getattr(strategy, name), expected=value, what=f"strategy.{name}")
    with check.raises(AttributeError, match="", what=f"writing strategy.{name}"):
        setattr(strategy, name, value)


RECOMPILES: Dict[str, Tuple[str, Dict[str, Any], bool]] = {
    "lr": ("set_options", {"lr": 0.5}, False),
    "num_ipus": ("set_options", {"num_ipus": 1}, True),
    "lr and loss_scaling": ("set_options", {"lr": 0.5, "loss_scaling": 2.0}, True),
    "enable_eval": ("set_options", {"runtime_options.enable_eval": True}, True),
    "nothing": ("set_options", {}, False),
    **{method: (method, {}, True) for method in ("set_graph_config", "set_pipelining_config", "set_precision_config")},
    "add_custom_op": ("add_custom_op", {"paddle_op": "custom_relu"}, True),
}


@pytest.mark.parametrize(("method", "arguments", "expected"), RECOMPILES.values(), ids=list(RECOMPILES))
def test_every_option_but_the_learning_rate_forces_a_recompile(
    strategy: Any, method: str, arguments: Dict[str, Any], expected: bool
) -> None:
    """Setting an option, even to the value it has, asks for another compile; the learning rate alone does not."""
    strategy.need_compile = False
    call(strategy, method, arguments)

    check.equal(actual=strategy.need_compile, expected=expected, what=f"need_compile after {method} with {arguments}")


def test_custom_ops_are_counted(strategy: Any) -> None:
    """Custom ops are remembered by their Paddle names, in order, whatever they are mapped to."""
    strategy.add_custom_op("second_op")
    strategy.add_custom_op("first_op", popart_op="Relu7")
    strategy.add_custom_op("third_op", popart_op="Relu7", domain="d", version=2)

    check.equal(actual=strategy.has_custom_ops, expected=True, what="has_custom_ops")
    check.equal(actual=strategy.custom_op_names, expected=["second_op", "first_op", "third_op"], what="custom_op_names")


@pytest.mark.parametrize("pattern", ["ViewSimplifyPattern", "InPlace", "SoftMaxGradDirect"])
def test_patterns_are_enabled_and_disabled(strategy: Any, pattern: str) -> None:
    """The last of enable_pattern and disable_pattern counts, for this strategy and this pattern."""
    enabled = strategy._ipu_strategy.is_pattern_enabled
    strategy.disable_pattern(pattern)
    disabled = enabled(pattern), enabled("OpToIdentity")
    strategy.enable_pattern(pattern)

    check.equal(actual=disabled, expected=(False, True), what=f"whether {pattern} and OpToIdentity are enabled")
    check.equal(actual=enabled(pattern), expected=True, what=f"whether {pattern} is enabled again")


@pytest.fixture
def linear(paddle: Any) -> Any:
    """A layer with parameters, in dynamic mode."""
    return paddle.nn.Linear(2, 2)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Lamb"])
def test_an_optimizer_gives_its_learning_rate(paddle: Any, linear: Any, name: str) -> None:
    """set_optimizer stores the rate and turns dynamic mode on; parse_optimizer only says what would be stored."""
    strategy = paddle.static.IpuStrategy()
    optimizer = getattr(paddle.optimizer, name)(learning_rate=0.25, parameters=linear.parameters())
    parsed = strategy.parse_optimizer(optimizer)

    check.equal(actual=parsed, expected={"is_dynamic": True, "lr": 0.25}, what="what parse_optimizer gives")
    check_options(strategy, {"is_dynamic": False, "lr": 0.0}, "after parse_optimizer")
    strategy.set_optimizer(optimizer)
    check_options(strategy, parsed, "after set_optimizer")


def test_a_scheduler_tells_the_strategy_its_rate(paddle: Any, linear: Any) -> None:
    """A strategy of dynamic mode gets the present rate of a scheduler, and that of every step without a recompile."""
    strategy = paddle.static.IpuStrategy()
    scheduler = paddle.optimizer.lr.ExponentialDecay(learning_rate=1.0, gamma=0.5)
    scheduler.step()
    strategy.set_optimizer(paddle.optimizer.SGD(learning_rate=scheduler, parameters=linear.parameters()))
    strategy.need_compile = False
    rates = [strategy.get_option("lr")]
    for _ in range(3):
        scheduler.step()
        rates.append(strategy.get_option("lr"))

    check.equal(actual=rates, expected=[0.5, 0.25, 0.125, 0.0625], what="lr at first and after each of three steps")
    check.equal(actual=strategy.need_compile, expected=False, what="need_compile after the steps")


def test_released_patches_leave_schedulers_alone(paddle: Any) -> None:
    """After release_patch a scheduler's step tells the strategy nothing; register_patch puts it back."""
    scheduler = paddle.optimizer.lr.ExponentialDecay(learning_rate=1.0, gamma=0.5)
    strategy = paddle.static.IpuStrategy()
    strategy.release_patch()
    scheduler.step()
    check_options(strategy, {"lr": 0.0}, "after release_patch and a step")
    strategy.register_patch()
    scheduler.step()
    check_options(strategy, {"lr": 0.25}, "after register_patch and a step")


def test_a_strategy_of_static_mode_patches_nothing(static: Any, paddle: Any) -> None:
    """Schedulers are patched by strategies that are made in dynamic mode only."""
    strategy = static.IpuStrategy()
    scheduler = paddle.optimizer.lr.ExponentialDecay(learning_rate=1.0, gamma=0.5)
    scheduler.step()

    check.equal(actual=scheduler(), expected=0.5, what="the rate of the scheduler")
    check_options(strategy, {"lr": 0.0}, "after a step")


def test_released_patches_let_the_host_translate_again(paddle: Any) -> None:
    """A function that is made static after release_patch runs on the host, with no device compile."""
    strategy = paddle.static.IpuStrategy()
    strategy.release_patch()
    square = paddle.jit.to_static(lambda x: x * x)

    squares = square(paddle.to_tensor([3.0, -2.0])).numpy().tolist()
    check.equal(actual=squares, expected=[9.0, 4.0], what="the square of 3 and -2")
    check.equal(actual=strategy.need_compile, expected=True, what="need_compile after the call")


@pytest.mark.parametrize("kind", ["int", "str", "list", "object", "compiled"])
def test_only_programs_are_compiled(static: Any, kind: str) -> None:
    """IpuCompiledProgram takes a Program and nothing else, not even another IpuCompiledProgram."""
    compiled = static.IpuCompiledProgram(ipu_strategy=static.IpuStrategy())
    program = {"int": 3, "str": "main", "list": [], "object": object(), "compiled": compiled}[kind]
    match = "The type of program is wrong, expected Program"
    with check.raises(TypeError, match=match, what=f"IpuCompiledProgram({program!r})"):
        static.IpuCompiledProgram(program, ipu_strategy=static.IpuStrategy())


def test_a_compiled_program_defaults_to_the_main_program_and_the_global_scope(static: Any) -> None:
    """Without arguments beside the strategy the program is the main program, the scope the global one."""
    strategy = static.IpuStrategy()
    compiled = static.IpuCompiledProgram(ipu_strategy=strategy)

    check.holds(compiled._program is static.default_main_program(), "the program is not the main program.")
    check.holds(compiled._scope is static.global_scope(), "the scope is not the global one.")
    check.holds(compiled._ipu_strategy is strategy, "the strategy is not the one that was given.")
