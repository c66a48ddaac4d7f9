"""What pipelined estimators refuse, and when."""

from __future__ import annotations

import functools
from typing import Any, Dict, Tuple

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


COUNT = "gradient_accumulation_count"
SPECIFIED: Dict[str, Tuple[str, Any, str, Any]] = {
    "train-optimizer_function": ("train", ValueError, "optimizer_function", None),
    "eval-eval_metrics_fn": ("eval", ValueError, "eval_metrics_fn", None),
    **{f"{mode}-{COUNT}": (mode, ValueError, COUNT, None) for mode in MODES},
    **{f"{COUNT}-{number}": ("train", ValueError, COUNT, number) for number in (0, -4)},
    "computational_stages-function": ("train", TypeError, "computational_stages", lambda x: x),
    "computational_stages-numbers": ("train", TypeError, "computational_stages", [1, 2]),
    "optimizer_function-optimizer": ("train", TypeError, "optimizer_function", "sgd"),
    "eval_metrics_fn-dictionary": ("train", TypeError, "eval_metrics_fn", {"loss": 1.0}),
    f"{COUNT}-text": ("train", TypeError, COUNT, "4"),
    **{
        f"{name}_hooks-function": ("train", TypeError, f"{name}_hooks", [lambda: None])
        for name in ("training", "evaluation", "prediction")
    },
    **{
        name: ("train", ValueError, name, 1)
        for name in ("infeed_queue", "outfeed_queue", "repeat_count", "inputs", "accumulate_outfeed", "outfeed_loss")
    },
}
"""The mode, the error, and a setting with its value: what a mode needs, what has another type, what the estimator sets.

Feeds, the number of runs and the loss belong to the estimator.
"""


@pytest.mark.parametrize("name", SPECIFIED)
def test_a_specification_is_refused(programs: Programs, name: str) -> None:
    """A specification refuses a setting that is missing, of a wrong type, or not its own, and names it."""
    mode, error, setting, value = SPECIFIED[name]
    message = "hooks" if setting.endswith("hooks") else setting

    with check.raises(error, match=message, what=f"a specification for {mode} with {setting}={value}"):
        changed(programs, mode, **{setting: value})


def test_a_mode_is_one_of_three(programs: Programs) -> None:
    """A specification is for training, evaluation or prediction."""
    with check.raises(ValueError, match="mode", what="a specification for the mode serve"):
        programs.spec("serve", **programs.settings(Chain(), "train"))


@pytest.mark.parametrize("mode", MODES)
def test_settings_of_other_modes_may_stay(programs: Programs, mode: str) -> None:
    """A specification may hold the functions of all modes."""
    functions = {"optimizer_function": lambda loss: None, "eval_metrics_fn": lambda products: {}}
    spec = changed(programs, mode, **functions)

    held = {"optimizer_function": spec.optimizer_function, "eval_metrics_fn": spec.eval_metrics_fn}
    check.equal(actual=(spec.mode, held), expected=(mode, functions), what="the mode and the functions")


def counting(p: Programs, loss: Any) -> Any:
    """What an optimizer function returns that advances the global step."""
    step = {"global_step": p.v1.train.get_global_step()}
    return p.ipu.pipelining_ops.OptimizerFunctionOutput(p.optimizer(Chain()), loss, apply_gradients_kwargs=step)


SEQUENTIAL, REPLICATED = Chain(schedule="Sequential"), Chain(replicas=2)
BUILT: Dict[str, Tuple[str, Chain, Any, str, Any]] = {
    "one-stage": (
        "train", Chain(), ValueError, "at least two|requires 1",
        {"computational_stages": [abs], "device_mapping": None},
    ),
    "mapping-too-short": (
        "train", Chain(), ValueError, "Each stage must be mapped|requires 1", {"device_mapping": [0]},
    ),
    "half-of-the-ipus-idle": ("train", SEQUENTIAL, ValueError, "requires 1", {"device_mapping": [0, 0]}),
    "interleaved-on-one-ipu": (
        "train", Chain(gradient_accumulation=2, schedule="Interleaved", devices=(0, 0)),
        NotImplementedError, "stages on", {},
    ),
    "schedule-by-name": ("train", Chain(), TypeError, "pipeline_schedule", {"pipeline_schedule": "Grouped"}),
    "unknown-reduction": ("train", Chain(), ValueError, "Cannot parse .?most", {"reduction_method": "most"}),
    "unknown-option": ("train", Chain(), TypeError, "pipeline_colour", {"pipeline_colour": "red"}),
    "no-output-of-an-optimizer": (
        "train", Chain(), (AttributeError, TypeError), "", {"optimizer_function": lambda loss: loss},
    ),
    "counting-steps": (
        "train", Chain(), ValueError, "global.step", lambda p: {"optimizer_function": functools.partial(counting, p)},
    ),
    "replicas-that-never-meet": (
        "train", REPLICATED, ValueError, "CrossReplicaOptimizer",
        lambda p: {"optimizer_function": p.optimizer_function(Chain())},
    ),
    "metrics-nothing": (
        "eval", Chain(), (KeyError, TypeError, ValueError), "loss", {"eval_metrics_fn": lambda products: None},
    ),
    "metrics-without-loss": (
        "eval", Chain(), (KeyError, TypeError, ValueError), "loss",
        lambda p: {"eval_metrics_fn": lambda products: {"mean": p.v1.metrics.mean(products)}},
    ),
    "predictions-without-names": (
        "infer", Chain(), (TypeError, ValueError), "dict|Tensor",
        {"computational_stages": [lambda x: x, lambda x: (x, x + 1)]},
    ),
}  # fmt: skip
"""The mode and the chain, the error with a word of it, and what the specification has besides.

That no half of the IPUs is idle is by the vendor's ipu_pipeline_estimator.py.
"""


@pytest.mark.parametrize("name", BUILT)
def test_no_pipeline_is_built(programs: Programs, name: str) -> None:
    """An option that makes no pipeline is refused before anything is run."""
    mode, chain, error, text, options = BUILT[name]
    changes = options(programs) if callable(options) else options

    with check.raises(error, match=text, what=f"a pipeline for {mode}: {name}"):
        used(programs, mode, chain, programs.model_fn(chain, **changes))


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


@pytest.mark.parametrize("returned", ["stock", "single", "nothing"])
def test_a_model_function_returns_a_pipeline(programs: Programs, returned: str) -> None:
    """Other specifications than a pipeline's are refused: stock's, that of estimators on one IPU, and none."""

    def model_fn(mode: str, params: Any) -> Any:
        kinds = {"stock": programs.tf.estimator.EstimatorSpec, "single": programs.ipu.ipu_estimator.IPUEstimatorSpec}
        kind = kinds.get(returned)
        return kind and kind("train", loss=programs.tf.constant(0.0), train_op=programs.tf.no_op())

    with check.raises(TypeError, match="IPUPipelineEstimatorSpec", what=f"another specification: {returned}"):
        used(programs, "train", Chain(), model_fn)


@pytest.mark.parametrize(("shards", "replicas"), [(1, 1), (4, 1), (2, 2)])
def test_a_configuration_has_the_ipus_of_all_replicas(programs: Programs, shards: int, replicas: int) -> None:
    """Replicas times shards is the number of configured IPUs."""
    what = f"{shards} shards and {replicas} replicas on two IPUs"
    with check.raises(ValueError, match=r"num_replicas|num_shards|IPUs", what=what):
        used(programs, "train", Chain(), num_shards=shards, num_replicas=replicas)


def test_features_go_to_the_first_stage(programs: Programs) -> None:
    """A model function that asks for features and labels is refused: the first stage gets them."""
    with check.raises((TypeError, ValueError), match="features", what="a model function of features"):
        used(programs, "train", Chain(), lambda features, labels, mode: changed(programs, mode))


def test_a_model_function_asks_for_what_is_known(programs: Programs) -> None:
    """A model function takes mode, params and config: anything else is refused when the estimator is made."""
    with check.raises(ValueError, match="colour", what="a model function that asks for a colour"):
        programs.estimator(Chain(), model_fn=lambda mode, colour: changed(programs, mode))


def test_params_are_for_those_who_take_them(programs: Programs) -> None:
    """Params that the model function does not take are refused."""
    with check.raises(ValueError, match="params", what="params for a model function without them"):
        programs.estimator(Chain(), model_fn=lambda mode: None, params={"stages": 2})


def test_unknown_shapes_are_refused(programs: Programs) -> None:
    """A batch that may be smaller than the others cannot be fed."""
    fed = lambda: programs.tf.data.Dataset.from_tensor_slices(samples(8)).batch(1)  # noqa: E731
    with check.raises(ValueError, match="drop_remainder=True", what="training with a last batch of an open size"):
        programs.estimator(Chain()).train(fed, steps=8)
