"""What a strategy's own methods check, set and patch."""

from __future__ import annotations

from typing import Any, Dict

import pytest

GRAPH = {"num_ipus": 4, "is_training": False, "micro_batch_size": 3, "enable_manual_shard": True}
PIPELINE = {
    "enable_pipelining": True,
    "batches_per_step": 5,
    "enable_gradient_accumulation": True,
    "accumulation_factor": 7,
}
GRAPH_DEFAULTS = {"num_ipus": 1, "is_training": True, "micro_batch_size": 1, "enable_manual_shard": False}
PIPELINE_DEFAULTS = {
    "enable_pipelining": False,
    "batches_per_step": 1,
    "enable_gradient_accumulation": False,
    "accumulation_factor": 1,
}


def options(strategy: Any, names: Any) -> Dict[str, Any]:
    """The named options of a strategy."""
    return {name: strategy.get_option(name) for name in names}


@pytest.fixture
def strategy(static: Any) -> Any:
    """A new strategy, made in static mode."""
    return static.IpuStrategy()


def test_a_new_strategy_averages_after_the_steps(strategy: Any) -> None:
    """Gradients are averaged over accumulation and replicas, after they were summed; there are no custom ops."""
    assert strategy.get_option("accumulation_and_replication_reduction_type") == 1
    assert strategy.get_option("mean_accumulation_and_replication_reduction_strategy") == 1
    assert (strategy.has_custom_ops, strategy.custom_op_names, strategy.need_compile) == (False, [], True)


@pytest.mark.parametrize(
    ("configure", "values", "defaults"),
    [("set_graph_config", GRAPH, GRAPH_DEFAULTS), ("set_pipelining_config", PIPELINE, PIPELINE_DEFAULTS)],
    ids=["graph", "pipelining"],
)
def test_a_config_sets_four_options(
    strategy: Any, configure: str, values: Dict[str, Any], defaults: Dict[str, Any]
) -> None:
    """Each argument is the option of its name, and one that is left out is the default again."""
    strategy.set_graph_config(num_ipus=2, enable_manual_shard=True)
    getattr(strategy, configure)(**values)
    configured = options(strategy, values)
    getattr(strategy, configure)()

    assert configured == values
    assert options(strategy, values) == defaults


@pytest.mark.parametrize("name", GRAPH)
def test_graph_config_leaves_the_other_arguments_at_their_defaults(strategy: Any, name: str) -> None:
    """One argument sets one option; a manual shard needs more than one IPU beside it."""
    given = {name: GRAPH[name], "num_ipus": GRAPH["num_ipus"]}
    strategy.set_graph_config(**given)

    assert options(strategy, GRAPH) == {**GRAPH_DEFAULTS, **given}


@pytest.mark.parametrize("given", [{}, {"num_ipus": 1}, {"num_ipus": 1, "is_training": False}], ids=str)
def test_one_ipu_cannot_be_sharded_by_hand(strategy: Any, given: Dict[str, Any]) -> None:
    """enable_manual_shard with one IPU is refused, and nothing is set."""
    before = options(strategy, GRAPH)
    with pytest.raises(RuntimeError, match="Only if num_ipus > 1, enable_manual_shard is able to be set True"):
        strategy.set_graph_config(enable_manual_shard=True, **given)

    assert options(strategy, GRAPH) == before


@pytest.mark.parametrize("ipus", [2, 3, 16])
def test_several_ipus_can_be_sharded_by_hand(strategy: Any, ipus: int) -> None:
    """Any number beyond one is accepted when it is configured."""
    strategy.set_graph_config(num_ipus=ipus, enable_manual_shard=True)

    assert (strategy.num_ipus, strategy.get_option("enable_manual_shard")) == (ipus, True)


@pytest.mark.parametrize("ipus", [1, 2])
def test_pipelining_needs_a_manual_shard(strategy: Any, ipus: int) -> None:
    """enable_pipelining without enable_manual_shard is refused, and nothing is set."""
    strategy.set_graph_config(num_ipus=ipus)
    with pytest.raises(
        RuntimeError, match="Only if enable_manual_shard=True, enable_pipelining is able to be set True"
    ):
        strategy.set_pipelining_config(**PIPELINE)

    assert options(strategy, PIPELINE) == PIPELINE_DEFAULTS


def test_steps_and_accumulation_need_no_manual_shard(strategy: Any) -> None:
    """Batches per step and accumulation are for one IPU too."""
    given = {**PIPELINE, "enable_pipelining": False}
    strategy.set_pipelining_config(**given)

    assert options(strategy, PIPELINE) == given


@pytest.mark.parametrize("given", [True, False])
def test_precision_config_sets_one_option(strategy: Any, given: bool) -> None:
    """enable_fp16 is what was given, and False when nothing is."""
    strategy.set_precision_config(enable_fp16=given)
    found = strategy.enable_fp16
    strategy.set_precision_config()

    assert (found, strategy.enable_fp16) == (given, False)


@pytest.mark.parametrize(
    "bypassing",
    [{"enable_manual_shard": True}, {"enable_pipelining": True}, {"num_ipus": 0}, {"accumulation_factor": 0}],
    ids=lambda given: next(iter(given)),
)
def test_set_options_has_none_of_these_checks(strategy: Any, bypassing: Dict[str, Any]) -> None:
    """A combination that the configuring methods refuse is stored by set_options."""
    strategy.set_options(bypassing)

    assert options(strategy, bypassing) == bypassing


@pytest.mark.parametrize(
    ("name", "value"), [("num_ipus", 4), ("is_training", False), ("enable_pipelining", True), ("enable_fp16", True)]
)
def test_properties_are_options(strategy: Any, name: str, value: Any) -> None:
    """num_ipus, is_training, enable_pipelining and enable_fp16 can be read as attributes, and not written."""
    strategy.set_options({name: value})

    assert getattr(strategy, name) == value
    with pytest.raises(AttributeError):
        setattr(strategy, name, value)


@pytest.mark.parametrize(
    ("given", "expected"),
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
    strategy: Any, given: Dict[str, Any], expected: bool
) -> None:
    """Setting an option, even to the value it has, asks for another compile; the learning rate alone does not."""
    strategy.need_compile = False
    strategy.set_options(given)

    assert strategy.need_compile is expected


@pytest.mark.parametrize(
    "configure",
    [
        lambda strategy: strategy.set_graph_config(),
        lambda strategy: strategy.set_pipelining_config(),
        lambda strategy: strategy.set_precision_config(),
        lambda strategy: strategy.add_custom_op("custom_relu"),
    ],
    ids=["graph", "pipelining", "precision", "custom op"],
)
def test_configuring_forces_a_recompile(strategy: Any, configure: Any) -> None:
    """So do the methods that set options."""
    strategy.need_compile = False
    configure(strategy)

    assert strategy.need_compile is True


def test_a_refused_option_does_not_force_a_recompile(strategy: Any) -> None:
    """What was not set does not change the compiled program."""
    strategy.need_compile = False
    with pytest.raises(ValueError, match="Cannot find option"):
        strategy.set_options({"no_such_option": 1})

    assert strategy.need_compile is False


@pytest.mark.parametrize(
    "given", [{}, {"popart_op": "Relu7"}, {"popart_op": "Relu7", "domain": "d", "version": 2}], ids=str
)
def test_custom_ops_are_counted(strategy: Any, given: Dict[str, Any]) -> None:
    """Custom ops are remembered by their Paddle names, in order."""
    strategy.add_custom_op("first_op", **given)
    strategy.add_custom_op("second_op", **given)

    assert (strategy.has_custom_ops, strategy.custom_op_names) == (True, ["first_op", "second_op"])


def test_a_custom_op_has_four_keys(strategy: Any) -> None:
    """A key that no custom op has is refused."""
    with pytest.raises(ValueError, match="opset"):
        strategy.set_options({"custom_op": {"paddle_op": "a", "opset": 11}})


@pytest.mark.parametrize("location", ["location_weight", "location_everything"])
def test_tensor_locations_have_known_names(strategy: Any, location: str) -> None:
    """A location that does not exist, or a setting that locations do not have, is refused."""
    with pytest.raises(ValueError, match=location):
        strategy.set_options({location: {"in_the_cloud": 1}})


@pytest.mark.parametrize("pattern", ["ViewSimplifyPattern", "InPlace", "SoftMaxGradDirect"])
def test_patterns_are_enabled_and_disabled(strategy: Any, pattern: str) -> None:
    """The last of enable_pattern and disable_pattern counts, for this strategy and this pattern."""
    told = strategy._ipu_strategy
    strategy.disable_pattern(pattern)
    disabled = told.is_pattern_enabled(pattern), told.is_pattern_enabled("OpToIdentity")
    strategy.enable_pattern(pattern)

    assert disabled == (False, True)
    assert told.is_pattern_enabled(pattern)


# Dynamic mode


@pytest.fixture
def linear(paddle: Any) -> Any:
    """A layer with parameters, in dynamic mode."""
    return paddle.nn.Linear(2, 2)


def test_an_optimizer_is_for_dynamic_mode(static: Any) -> None:
    """In static mode the program holds the optimizer, and set_optimizer is refused."""
    strategy = static.IpuStrategy()
    with pytest.raises(RuntimeError, match="Only needs to set optimizer in dynamic mode"):
        strategy.set_optimizer(object())


@pytest.mark.parametrize("name", ["SGD", "Adam", "Lamb"])
def test_an_optimizer_gives_its_learning_rate(paddle: Any, linear: Any, name: str) -> None:
    """set_optimizer stores the rate and turns dynamic mode on; parse_optimizer only says what would be stored."""
    strategy = paddle.static.IpuStrategy()
    optimizer = getattr(paddle.optimizer, name)(learning_rate=0.25, parameters=linear.parameters())
    parsed = strategy.parse_optimizer(optimizer)
    before = options(strategy, parsed)
    strategy.set_optimizer(optimizer)

    assert parsed == {"is_dynamic": True, "lr": 0.25}
    assert before == {"is_dynamic": False, "lr": 0.0}
    assert options(strategy, parsed) == parsed


def test_a_scheduler_gives_the_rate_it_has_now(paddle: Any, linear: Any) -> None:
    """The rate of a scheduler is that of its present step."""
    scheduler = paddle.optimizer.lr.StepDecay(learning_rate=1.0, step_size=1, gamma=0.5)
    scheduler.step()
    strategy = paddle.static.IpuStrategy()
    strategy.set_optimizer(paddle.optimizer.SGD(learning_rate=scheduler, parameters=linear.parameters()))

    assert strategy.get_option("lr") == 0.5


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

    assert rates == [0.5, 0.25, 0.125]
    assert strategy.need_compile is False


def test_released_patches_leave_schedulers_alone(paddle: Any) -> None:
    """After release_patch a scheduler's step tells the strategy nothing; register_patch puts it back."""
    scheduler = paddle.optimizer.lr.ExponentialDecay(learning_rate=1.0, gamma=0.5)
    strategy = paddle.static.IpuStrategy()
    strategy.release_patch()
    scheduler.step()
    released = strategy.get_option("lr")
    strategy.register_patch()
    scheduler.step()

    assert (released, strategy.get_option("lr")) == (0.0, 0.25)


def test_a_strategy_of_static_mode_patches_nothing(static: Any, paddle: Any) -> None:
    """Schedulers are patched by strategies that are made in dynamic mode only."""
    strategy = static.IpuStrategy()
    scheduler = paddle.optimizer.lr.ExponentialDecay(learning_rate=1.0, gamma=0.5)
    scheduler.step()

    assert (scheduler(), strategy.get_option("lr")) == (0.5, 0.0)


def test_released_patches_let_the_host_translate_again(paddle: Any) -> None:
    """A function that is made static after release_patch runs on the host, with no device compile."""
    strategy = paddle.static.IpuStrategy()
    strategy.release_patch()
    square = paddle.jit.to_static(lambda x: x * x)

    assert square(paddle.to_tensor([3.0, -2.0])).numpy().tolist() == [9.0, 4.0]
    assert strategy.need_compile is True


# Compiled programs


@pytest.mark.parametrize("given", [3, "main", [], object()], ids=["int", "str", "list", "object"])
def test_only_programs_are_compiled(static: Any, given: Any) -> None:
    """IpuCompiledProgram takes a Program, and nothing else."""
    with pytest.raises(TypeError, match="The type of program is wrong, expected Program"):
        static.IpuCompiledProgram(given, ipu_strategy=static.IpuStrategy())


def test_a_compiled_program_is_no_program_to_compile(static: Any) -> None:
    """What IpuCompiledProgram made is not compiled again."""
    strategy = static.IpuStrategy()
    once = static.IpuCompiledProgram(ipu_strategy=strategy)
    with pytest.raises(TypeError, match="expected Program"):
        static.IpuCompiledProgram(once, ipu_strategy=strategy)


def test_a_compiled_program_defaults_to_the_main_program_and_the_global_scope(static: Any) -> None:
    """Without arguments beside the strategy the program is the main program, the scope the global one."""
    strategy = static.IpuStrategy()
    compiled = static.IpuCompiledProgram(ipu_strategy=strategy)

    assert compiled._program is static.default_main_program()
    assert compiled._scope is static.global_scope()
    assert compiled._ipu_strategy is strategy


def test_learning_rates_are_kept_in_double_precision(strategy: Any) -> None:
    """A float option keeps what float32 would round away."""
    strategy.set_options({"loss_scaling": 16777217.0, "lr": 0.1})

    assert (strategy.get_option("loss_scaling"), strategy.get_option("lr")) == (16777217.0, 0.1)
