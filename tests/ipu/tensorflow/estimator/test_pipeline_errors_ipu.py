"""What pipelined estimators refuse, and when."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict

import pytest

from ipu_conformance import check

from ..exact import samples
from .pipelines import Chain, Programs

pytestmark = [pytest.mark.ipus(2), pytest.mark.requires("tensorflow_estimator")]

MODES = ("train", "eval", "infer")


def used(programs: Programs, mode: str, chain: Chain, model_fn: Any = None, steps: int = 0, **run: Any) -> None:
    """Use an estimator in one mode, for as many steps as a loop has unless another number is given."""
    estimator = programs.estimator(chain, model_fn=model_fn, run=run)
    steps = steps or estimator.config.ipu_run_config.iterations_per_loop
    fed = programs.input_fn(samples(2 * steps * chain.replicas))
    if mode == "train":
        estimator.train(fed, steps=steps)
    elif mode == "eval":
        estimator.evaluate(fed, steps=steps)
    else:
        list(estimator.predict(fed, num_predictions=1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("iterations", [1, 3, 6, 9])
def test_a_loop_holds_whole_runs(programs: Programs, mode: str, iterations: int) -> None:
    """The iterations of a loop are at least, and divisible by, the micro-batches of a run of the pipeline."""
    with check.raises(ValueError, match="iterations_per_loop", what=f"a loop of {iterations}, with runs of 4,"):
        used(programs, mode, Chain(gradient_accumulation=4), iterations_per_loop=iterations)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_steps_are_whole_loops(programs: Programs, mode: str) -> None:
    """A number of steps that ends within a loop is refused."""
    sentence = r"steps \(12\) must be a multiple of iterations_per_loop \(8\)"
    with check.raises(ValueError, match=sentence, what=f"{mode} for a loop and a half"):
        used(programs, mode, Chain(), steps=12)


def changed(programs: Programs, mode: str, **changes: Any) -> Any:
    """The specification of a chain with other settings."""
    return programs.spec(mode, **{**programs.settings(Chain(), mode), **changes})


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("train", "optimizer_function"),
        ("eval", "eval_metrics_fn"),
        ("train", "gradient_accumulation_count"),
        ("eval", "gradient_accumulation_count"),
        ("infer", "gradient_accumulation_count"),
    ],
)
def test_a_mode_needs_its_settings(programs: Programs, mode: str, name: str) -> None:
    """Training needs an optimizer function, evaluation a function for metrics, and every mode a count."""
    with check.raises(ValueError, match=name, what=f"a specification for {mode} without {name}"):
        changed(programs, mode, **{name: None})


@pytest.mark.parametrize("mode", MODES)
def test_settings_of_other_modes_may_stay(programs: Programs, mode: str) -> None:
    """A specification may hold the functions of all modes."""
    functions = {"optimizer_function": lambda loss: None, "eval_metrics_fn": lambda products: {}}
    spec = changed(programs, mode, **functions)

    held = {"optimizer_function": spec.optimizer_function, "eval_metrics_fn": spec.eval_metrics_fn}
    check.equal(actual=(spec.mode, held), expected=(mode, functions), what="the mode and the functions")


@pytest.mark.parametrize("count", [0, -4])
def test_a_count_is_positive(programs: Programs, count: int) -> None:
    """A pipeline runs at least one micro-batch."""
    with check.raises(ValueError, match="gradient_accumulation_count", what=f"a count of {count}"):
        changed(programs, "train", gradient_accumulation_count=count)


WRONG: Dict[str, Any] = {
    "computational_stages-function": ("computational_stages", lambda x: x),
    "computational_stages-numbers": ("computational_stages", [1, 2]),
    "optimizer_function-optimizer": ("optimizer_function", "sgd"),
    "eval_metrics_fn-dictionary": ("eval_metrics_fn", {"loss": 1.0}),
    "gradient_accumulation_count-text": ("gradient_accumulation_count", "4"),
    "training_hooks-function": ("training_hooks", [lambda: None]),
    "evaluation_hooks-function": ("evaluation_hooks", [lambda: None]),
    "prediction_hooks-function": ("prediction_hooks", [lambda: None]),
}


@pytest.mark.parametrize(("name", "value"), WRONG.values(), ids=list(WRONG))
def test_wrong_types_are_refused(programs: Programs, name: str, value: Any) -> None:
    """A specification refuses what is of another type than it needs."""
    message = "hooks" if name.endswith("hooks") else name

    with check.raises(TypeError, match=message, what=f"{name} of the wrong type"):
        changed(programs, "train", **{name: value})


def test_a_mode_is_one_of_three(programs: Programs) -> None:
    """A specification is for training, evaluation or prediction."""
    with check.raises(ValueError, match="mode", what="a specification for the mode serve"):
        programs.spec("serve", **programs.settings(Chain(), "train"))


OWN = ("infeed_queue", "outfeed_queue", "repeat_count", "inputs", "accumulate_outfeed", "outfeed_loss")


@pytest.mark.parametrize("name", OWN)
def test_options_that_the_estimator_sets_are_refused(programs: Programs, name: str) -> None:
    """Feeds, the number of runs and the loss belong to the estimator."""
    with check.raises(ValueError, match=name, what=f"a specification with {name}"):
        changed(programs, "train", **{name: 1})


def test_options_that_no_pipeline_has_are_refused(programs: Programs) -> None:
    """What a pipeline has no option for is refused when it is built."""
    with check.raises(TypeError, match="pipeline_colour", what="an option that no pipeline has"):
        used(programs, "train", Chain(), programs.model_fn(Chain(), pipeline_colour="red"))


BUILT: Dict[str, Any] = {
    "one-stage": (ValueError, "at least two|requires 1", {"computational_stages": [abs], "device_mapping": None}),
    "mapping-too-short": (ValueError, "Each stage must be mapped|requires 1", {"device_mapping": [0]}),
    "schedule-by-name": (TypeError, "pipeline_schedule", {"pipeline_schedule": "Grouped"}),
    "unknown-reduction": (ValueError, "Cannot parse .?most", {"reduction_method": "most"}),
    "no-output-of-an-optimizer": ((AttributeError, TypeError), "", {"optimizer_function": lambda loss: loss}),
}


@pytest.mark.parametrize(("error", "text", "changes"), BUILT.values(), ids=list(BUILT))
def test_no_pipeline_is_built(programs: Programs, error: Any, text: str, changes: Dict[str, Any]) -> None:
    """An option that makes no pipeline is refused before anything is trained."""
    with check.raises(error, match=text, what=f"a pipeline with another {', '.join(changes)}"):
        used(programs, "train", Chain(), programs.model_fn(Chain(), **changes))


@pytest.mark.emulator
def test_the_count_of_a_specification_has_an_old_name(programs: Programs) -> None:
    """Programs of SDK 1.x call the micro-batches of a run ``pipeline_depth``, and the two are not given together."""
    make = functools.partial(
        programs.ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec, "infer", [abs, abs], pipeline_depth=6
    )
    with check.raises(ValueError, match="pipeline_depth", what="a specification with both names of its count"):
        make(gradient_accumulation_count=4)

    spec = make()
    found = spec.gradient_accumulation_count, spec.pipeline_op_kwargs
    check.equal(actual=found, expected=(6, {}), what="the count of a specification, and its other options")


def test_no_half_of_the_ipus_is_idle(programs: Programs) -> None:
    """A pipeline takes more than half of the IPUs of num_shards, by the vendor's ipu_pipeline_estimator.py."""
    chain = Chain(schedule="Sequential")

    with check.raises(ValueError, match="requires 1", what="both stages on one of two IPUs"):
        used(programs, "train", chain, programs.model_fn(chain, device_mapping=[0, 0]))


def test_interleaved_stages_have_devices_of_their_own(programs: Programs) -> None:
    """Two stages on one IPU cannot be interleaved."""
    with check.raises(NotImplementedError, match="stages on", what="both stages on IPU 0"):
        used(programs, "train", Chain(gradient_accumulation=2, schedule="Interleaved", devices=(0, 0)))


def stock(programs: Programs) -> Any:
    """The specification of stock estimators."""
    zero = programs.tf.constant(0.0)
    return programs.tf.estimator.EstimatorSpec("train", loss=zero, train_op=programs.tf.no_op())


def single(programs: Programs) -> Any:
    """The specification of estimators on one IPU."""
    zero = programs.tf.constant(0.0)
    return programs.ipu.ipu_estimator.IPUEstimatorSpec("train", loss=zero, train_op=programs.tf.no_op())


def nothing(programs: Programs) -> None:
    """No specification."""


@pytest.mark.parametrize("returned", [stock, single, nothing], ids=["stock", "single", "nothing"])
def test_a_model_function_returns_a_pipeline(programs: Programs, returned: Callable[[Programs], Any]) -> None:
    """Other specifications than a pipeline's are refused."""
    with check.raises(TypeError, match="IPUPipelineEstimatorSpec", what="another specification"):
        used(programs, "train", Chain(), lambda mode, params: returned(programs))


@pytest.mark.parametrize("returned", ["nothing", "other"])
def test_metrics_hold_the_loss(programs: Programs, returned: str) -> None:
    """The function for metrics returns a dictionary that holds the loss."""

    def metrics(products: Any) -> Any:
        return None if returned == "nothing" else {"mean": programs.v1.metrics.mean(products)}

    with check.raises((KeyError, TypeError, ValueError), match="loss", what="evaluation without a loss"):
        used(programs, "eval", Chain(), programs.model_fn(Chain(), eval_metrics_fn=metrics))


def test_several_predictions_have_names(programs: Programs) -> None:
    """A last stage that returns several predictions returns a dictionary."""
    stages = [lambda x: x, lambda x: (x, x + 1)]

    with check.raises((TypeError, ValueError), match=r"dict|Tensor", what="a tuple of predictions"):
        used(programs, "infer", Chain(), programs.model_fn(Chain(), computational_stages=stages))


def test_replicas_that_never_meet_are_refused(programs: Programs) -> None:
    """Replicated training with an optimizer that leaves replicas alone is refused."""
    chain = Chain(replicas=2)
    alone = programs.optimizer_function(Chain(replicas=1))

    with check.raises(ValueError, match="CrossReplicaOptimizer", what="training of two replicas that never meet"):
        used(programs, "train", chain, programs.model_fn(chain, optimizer_function=alone))


@pytest.mark.parametrize(("shards", "replicas"), [(1, 1), (4, 1), (2, 2)])
def test_a_configuration_has_the_ipus_of_all_replicas(programs: Programs, shards: int, replicas: int) -> None:
    """Replicas times shards is the number of configured IPUs."""
    what = f"{shards} shards and {replicas} replicas on two IPUs"
    with check.raises(ValueError, match=r"num_replicas|num_shards|IPUs", what=what):
        used(programs, "train", Chain(), num_shards=shards, num_replicas=replicas)


def test_features_go_to_the_first_stage(programs: Programs) -> None:
    """A model function that asks for features and labels is refused: the first stage gets them."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        return changed(programs, mode)

    with check.raises((TypeError, ValueError), match="features", what="a model function of features"):
        used(programs, "train", Chain(), model_fn)


def test_a_model_function_asks_for_what_is_known(programs: Programs) -> None:
    """A model function takes mode, params and config: anything else is refused when the estimator is made."""

    def model_fn(mode: str, colour: Any) -> Any:
        return changed(programs, mode)

    with check.raises(ValueError, match="colour", what="a model function that asks for a colour"):
        programs.estimator(Chain(), model_fn=model_fn)


def test_params_are_for_those_who_take_them(programs: Programs) -> None:
    """Params that the model function does not take are refused."""
    with check.raises(ValueError, match="params", what="params for a model function without them"):
        programs.estimator(Chain(), model_fn=lambda mode: None, params={"stages": 2})


def test_unknown_shapes_are_refused(programs: Programs) -> None:
    """A batch that may be smaller than the others cannot be fed."""
    estimator = programs.estimator(Chain())

    def input_fn() -> Any:
        return programs.tf.data.Dataset.from_tensor_slices(samples(8)).batch(1)

    with check.raises(ValueError, match="drop_remainder=True", what="training with a last batch of an open size"):
        estimator.train(input_fn, steps=8)


def test_a_model_that_counts_steps_is_refused(programs: Programs) -> None:
    """The global step belongs to the estimator: an optimizer that advances it is refused."""
    chain, ops = Chain(), programs.ipu.pipelining_ops

    def optimizer_function(loss: Any) -> Any:
        step = programs.v1.train.get_global_step()
        return ops.OptimizerFunctionOutput(
            programs.optimizer(chain), loss, apply_gradients_kwargs={"global_step": step}
        )

    with check.raises(ValueError, match=r"global.step", what="training with an optimizer that counts steps"):
        used(programs, "train", chain, programs.model_fn(chain, optimizer_function=optimizer_function))
