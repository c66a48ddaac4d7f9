"""What a strategy's own methods check, set and patch."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from ipu_conformance import check

GRAPH = {"num_ipus": 4, "is_training": False, "micro_batch_size": 3, "enable_manual_shard": True}
PIPELINE = {
    "enable_pipelining": True, "batches_per_step": 5, "enable_gradient_accumulation": True, "accumulation_factor": 7,
}  # fmt: skip
GRAPH_DEFAULTS = {"num_ipus": 1, "is_training": True, "micro_batch_size": 1, "enable_manual_shard": False}
PIPELINE_DEFAULTS = {
    "enable_pipelining": False, "batches_per_step": 1, "enable_gradient_accumulation": False, "accumulation_factor": 1,
}  # fmt: skip


def check_options(strategy: Any, expected: Dict[str, Any], when: str = "") -> None:
    """The options have these values."""
    __tracebackhide__ = True
    options = {name: strategy.get_option(name) for name in expected}
    check.equal(actual=options, expected=expected, what=f"what get_option gives {when}".strip())


@pytest.fixture
def strategy(static: Any) -> Any:
    """A new strategy, made in static mode."""
    return static.IpuStrategy()


def test_a_new_strategy_has_no_custom_ops(strategy: Any) -> None:
    """A new strategy has no custom ops and asks for a compile."""
    check.equal(actual=strategy.has_custom_ops, expected=False, what="has_custom_ops")
    check.equal(actual=strategy.custom_op_names, expected=[], what="custom_op_names")
    check.equal(actual=strategy.need_compile, expected=True, what="need_compile")


@pytest.mark.parametrize(
    ("configure", "values", "defaults"),
    [
        ("set_graph_config", GRAPH, GRAPH_DEFAULTS),
        ("set_pipelining_config", PIPELINE, PIPELINE_DEFAULTS),
        ("set_precision_config", {"enable_fp16": True}, {"enable_fp16": False}),
    ],
    ids=["graph", "pipelining", "precision"],
)
def test_a_config_sets_its_options(
    strategy: Any, configure: str, values: Dict[str, Any], defaults: Dict[str, Any]
) -> None:
    """Each argument is the option of its name, and one that is left out is the default again."""
    strategy.set_graph_config(num_ipus=2, enable_manual_shard=True)
    getattr(strategy, configure)(**values)
    check_options(strategy, values, f"after {configure} with {values}")
    getattr(strategy, configure)()
    check_options(strategy, defaults, f"after {configure}()")


@pytest.mark.parametrize("name", GRAPH)
def test_graph_config_leaves_the_other_arguments_at_their_defaults(strategy: Any, name: str) -> None:
    """One argument sets one option; a manual shard needs more than one IPU beside it."""
    arguments = {name: GRAPH[name], "num_ipus": GRAPH["num_ipus"]}
    strategy.set_graph_config(**arguments)

    check_options(strategy, {**GRAPH_DEFAULTS, **arguments}, f"after set_graph_config with {arguments}")


@pytest.mark.parametrize("arguments", [{}, {"num_ipus": 1}, {"num_ipus": 1, "is_training": False}], ids=str)
def test_one_ipu_cannot_be_sharded_by_hand(strategy: Any, arguments: Dict[str, Any]) -> None:
    """enable_manual_shard with one IPU is refused, and nothing is set."""
    match = "Only if num_ipus > 1, enable_manual_shard is able to be set True"
    with check.raises(RuntimeError, match=match, what="enable_manual_shard with one IPU"):
        strategy.set_graph_config(enable_manual_shard=True, **arguments)

    check_options(strategy, GRAPH_DEFAULTS, "after the refusal")


@pytest.mark.parametrize("ipus", [2, 3, 16])
def test_several_ipus_can_be_sharded_by_hand(strategy: Any, ipus: int) -> None:
    """Any number above one is accepted."""
    strategy.set_graph_config(num_ipus=ipus, enable_manual_shard=True)

    check_options(strategy, {"num_ipus": ipus, "enable_manual_shard": True})


@pytest.mark.parametrize("ipus", [1, 2])
def test_pipelining_needs_a_manual_shard(strategy: Any, ipus: int) -> None:
    """enable_pipelining without enable_manual_shard is refused, and nothing is set."""
    strategy.set_graph_config(num_ipus=ipus)
    match = "Only if enable_manual_shard=True, enable_pipelining is able to be set True"
    with check.raises(RuntimeError, match=match, what="enable_pipelining without enable_manual_shard"):
        strategy.set_pipelining_config(**PIPELINE)

    check_options(strategy, PIPELINE_DEFAULTS, "after the refusal")


def test_steps_and_accumulation_need_no_manual_shard(strategy: Any) -> None:
    """Batches per step and accumulation work on one IPU too."""
    arguments = {**PIPELINE, "enable_pipelining": False}
    strategy.set_pipelining_config(**arguments)

    check_options(strategy, arguments)


@pytest.mark.parametrize(
    "bypassing",
    [{"enable_manual_shard": True}, {"enable_pipelining": True}, {"num_ipus": 0}, {"accumulation_factor": 0}],
    ids=lambda options: next(iter(options)),
)
def test_set_options_has_none_of_these_checks(strategy: Any, bypassing: Dict[str, Any]) -> None:
    """A combination that the configuring methods refuse is stored by set_options."""
    strategy.set_options(bypassing)

    check_options(strategy, bypassing)


@pytest.mark.parametrize(
    ("name", "value"), [("num_ipus", 4), ("is_training", False), ("enable_pipelining", True), ("enable_fp16", True)]
)
def test_properties_are_options(strategy: Any, name: str, value: Any) -> None:
    """num_ipus, is_training, enable_pipelining and enable_fp16 can be read as attributes, and not written."""
    strategy.set_options({name: value})

    check.equal(actual=getattr(strategy, name), expected=value, what=f"strategy.{name}")
    with check.raises(AttributeError, match="", what=f"writing strategy.{name}"):
        setattr(strategy, name, value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"lr": 0.5}, False),
        ({"num_ipus": 1}, True),
        ({"lr": 0.5, "loss_scaling": 2.0}, True),
        ({"runtime_options.enable_eval": True}, True),
        ({}, False),
    ],
    ids=str,
)
def test_every_option_but_the_learning_rate_forces_a_recompile(
    strategy: Any, options: Dict[str, Any], expected: bool
) -> None:
    """Setting an option, even to the value it has, asks for another compile; the learning rate alone does not."""
    strategy.need_compile = False
    strategy.set_options(options)

    check.equal(actual=strategy.need_compile, expected=expected, what=f"need_compile after {options}")


@pytest.mark.parametrize(
    "method", ["set_graph_config", "set_pipelining_config", "set_precision_config", "add_custom_op"]
)
def test_configuring_forces_a_recompile(strategy: Any, method: str) -> None:
    """The methods that set options ask for another compile too."""
    strategy.need_compile = False
    getattr(strategy, method)(*["custom_relu"] if method == "add_custom_op" else [])

    check.equal(actual=strategy.need_compile, expected=True, what=f"need_compile after {method}")


def test_a_refused_option_does_not_force_a_recompile(strategy: Any) -> None:
    """A refused option leaves the compiled program as it is."""
    strategy.need_compile = False
    with check.raises(ValueError, match="Cannot find option", what="an option that does not exist"):
        strategy.set_options({"no_such_option": 1})

    check.equal(actual=strategy.need_compile, expected=False, what="need_compile after the refusal")


def test_custom_ops_are_counted(strategy: Any) -> None:
    """Custom ops are remembered by their Paddle names, in order, whatever they are mapped to."""
    strategy.add_custom_op("second_op")
    strategy.add_custom_op("first_op", popart_op="Relu7")
    strategy.add_custom_op("third_op", popart_op="Relu7", domain="d", version=2)

    check.equal(actual=strategy.has_custom_ops, expected=True, what="has_custom_ops")
    check.equal(actual=strategy.custom_op_names, expected=["second_op", "first_op", "third_op"], what="custom_op_names")


def test_a_custom_op_has_four_keys(strategy: Any) -> None:
    """A key that no custom op has is refused."""
    with check.raises(ValueError, match="opset", what="a custom op with the key opset"):
        strategy.set_options({"custom_op": {"paddle_op": "a", "opset": 11}})


def test_collectives_have_known_settings(strategy: Any) -> None:
    """A setting of replicated collectives that does not exist is refused: ``SetReplicatedCollectivesSettings``."""
    with check.raises(ValueError, match="replicated.collectives", what="a setting that collectives do not have"):
        strategy.set_options({"replicated_collectives_settings": {"merge_everything": True}})


@pytest.mark.parametrize("location", ["location_weight", "location_everything"])
def test_tensor_locations_have_known_names(strategy: Any, location: str) -> None:
    """A location that does not exist, or a setting that locations do not have, is refused."""
    with check.raises(ValueError, match=location, what=f"in_the_cloud as the {location}"):
        strategy.set_options({location: {"in_the_cloud": 1}})


@pytest.mark.parametrize("pattern", ["ViewSimplifyPattern", "InPlace", "SoftMaxGradDirect"])
def test_patterns_are_enabled_and_disabled(strategy: Any, pattern: str) -> None:
    """The last of enable_pattern and disable_pattern counts, for this strategy and this pattern."""
    enabled = strategy._ipu_strategy.is_pattern_enabled
    strategy.disable_pattern(pattern)
    disabled = enabled(pattern), enabled("OpToIdentity")
    strategy.enable_pattern(pattern)

    check.equal(actual=disabled, expected=(False, True), what=f"whether {pattern} and OpToIdentity are enabled")
    check.equal(actual=enabled(pattern), expected=True, what=f"whether {pattern} is enabled again")


# Dynamic mode


@pytest.fixture
def linear(paddle: Any) -> Any:
    """A layer with parameters, in dynamic mode."""
    return paddle.nn.Linear(2, 2)


def test_an_optimizer_is_for_dynamic_mode(static: Any) -> None:
    """In static mode the program holds the optimizer, and set_optimizer is refused."""
    match = "Only needs to set optimizer in dynamic mode"
    with check.raises(RuntimeError, match=match, what="set_optimizer in static mode"):
        static.IpuStrategy().set_optimizer(object())


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


def test_a_scheduler_gives_the_rate_it_has_now(paddle: Any, linear: Any) -> None:
    """The strategy gets the rate of the scheduler's present step."""
    scheduler = paddle.optimizer.lr.StepDecay(learning_rate=1.0, step_size=1, gamma=0.5)
    scheduler.step()
    strategy = paddle.static.IpuStrategy()
    strategy.set_optimizer(paddle.optimizer.SGD(learning_rate=scheduler, parameters=linear.parameters()))

    check_options(strategy, {"lr": 0.5})


def test_a_scheduler_tells_the_strategy_its_rate(paddle: Any, linear: Any) -> None:
    """Every step of a scheduler reaches a strategy of dynamic mode, and asks for no recompile."""
    strategy = paddle.static.IpuStrategy()
    scheduler = paddle.optimizer.lr.ExponentialDecay(learning_rate=1.0, gamma=0.5)
    strategy.set_optimizer(paddle.optimizer.SGD(learning_rate=scheduler, parameters=linear.parameters()))
    strategy.need_compile = False
    rates = []
    for _ in range(3):
        scheduler.step()
        rates.append(strategy.get_option("lr"))

    check.equal(actual=rates, expected=[0.5, 0.25, 0.125], what="lr after each of three steps")
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


# Compiled programs


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


def test_floats_are_kept_in_double_precision(strategy: Any) -> None:
    """A float option keeps what float32 would round away."""
    strategy.set_options({"loss_scaling": 16777217.0, "lr": 0.1})

    check_options(strategy, {"loss_scaling": 16777217.0, "lr": 0.1})
