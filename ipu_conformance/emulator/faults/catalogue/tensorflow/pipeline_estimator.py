"""Ways for a pipelined estimator to be wrong: its loops, its loss and what it hands on."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from ipu_conformance.emulator.faults.catalogue import Fault, Wrong, always, argument, patch, register, result

MODULE = "tensorflow.estimator.pipeline"
PROGRAM = f"{MODULE}:PipelineProgram"


def _specified(**changes: Any) -> Wrong:
    """What the model function returned has other settings."""
    return result(lambda spec: spec._replace(**changes))


def _from_places(places: Callable[[int], List[int]]) -> Wrong:
    """Each micro-batch of a loop has the outputs of the one at another place."""

    def wrong(original: Any, *arguments: Any) -> Any:
        import tensorflow as tf

        return tf.nest.map_structure(lambda leaf: tf.gather(leaf, places(leaf.shape[0])), original(*arguments))

    return wrong


@patch("pipelined-outputs-repeated", "streams", f"{PROGRAM}._left_by",
       "every micro-batch has the first one's outputs")  # fmt: skip
def _first_again(original: Any, program: Any, name: str) -> Any:
    import tensorflow as tf

    places = [0] * program.run.iterations_per_loop
    return tf.nest.map_structure(lambda leaf: tf.gather(leaf, places), original(program, name))


def _numbered(outputs: Any) -> Any:
    if not isinstance(outputs, dict):
        return outputs
    return {f"output_{number}": value for number, value in enumerate(outputs.values())}


@patch("pipelined-loss-undivided", "streams", f"{PROGRAM}._mean_loss", "the loss is the sum over a run")
def _undivided(original: Any, program: Any, added: Any) -> Any:
    return original(program, added) * program.spec.gradient_accumulation_count


@patch("pipelined-loss-last-run", "streams", f"{PROGRAM}._mean_loss", "the loss is that of the last run")
def _last_run(original: Any, program: Any, added: Any) -> Any:
    return original(program, added[-1:])


@patch("pipelined-loss-first-replica", "streams", f"{PROGRAM}._mean_loss", "the loss is that of the first replica")
def _first_replica(original: Any, program: Any, added: Any) -> Any:
    return original(program, added[:, 0] if added.shape.rank > 1 else added)


@patch("pipelined-functions-forgotten", "plan", "tensorflow.estimator.specs:IPUPipelineEstimatorSpec.__new__",
       "a specification holds the functions of its own mode only")  # fmt: skip
def _own_functions(original: Any, *arguments: Any, **settings: Any) -> Any:
    spec = original(*arguments, **settings)
    unused = {"optimizer_function": "train", "eval_metrics_fn": "eval"}
    return spec._replace(**{name: None for name, mode in unused.items() if mode != spec.mode})


@patch("pipelined-metrics-invented", "streams", f"{PROGRAM}._metrics", "metrics without a loss have a loss of 0")
def _invented(original: Any, program: Any, outputs: Any) -> Dict[str, Any]:
    import tensorflow as tf

    try:
        metrics: Dict[str, Any] = original(program, outputs)
    except (KeyError, TypeError):
        metrics = {"loss": tf.constant(0.0)}
    return metrics


for _name, _area, _function, _what, _wrong in (
    ("pipelined-hooks-forgotten", "plan", "tensorflow.estimator.specs:_checked_hooks",
     "hooks of a specification are not called", always(())),
    # Loops
    ("pipelined-run-missing", "plan", f"{MODULE}:runs", "a loop runs the pipeline once less",
     result(lambda runs: runs - 1)),
    ("pipelined-mapping-ignored", "plan", f"{MODULE}:_of_model_fn", "every stage is on an IPU of its own",
     _specified(device_mapping=None)),
    ("pipelined-options-ignored", "plan", f"{MODULE}:_of_model_fn", "options of the pipeline are left out",
     _specified(pipeline_op_kwargs={})),
    ("pipelined-reduction-ignored", "update", f"{MODULE}:_of_model_fn", "gradients are summed whatever is asked",
     _specified(reduction_method="sum")),
    ("pipelined-trains-all", "update", "tensorflow.run.pipeline_machine:FunctionPipeline.trained",
     "variables are trained that were not chosen", lambda original, machine, replica, variables: list(variables)),
    # The loss
    ("pipelined-loss-not-accumulated", "streams", f"{MODULE}:pipeline",
     "losses are not added up before they are divided", argument("accumulate_outfeed", lambda accumulated: False)),
    ("pipelined-loss-type-ignored", "numerics", f"{MODULE}:_of_model_fn", "losses are added up in their own type",
     _specified(loss_accumulator_dtype=None)),
    # What the host gets
    ("pipelined-outputs-backwards", "streams", f"{PROGRAM}._outputs", "micro-batches come in reverse order",
     _from_places(lambda count: list(range(count))[::-1])),
    ("pipelined-names-lost", "streams", f"{PROGRAM}._outputs", "predictions lose their names",
     result(_numbered)),
):  # fmt: skip
    register(Fault(_name, _area, _function, _what, _wrong), __name__)
