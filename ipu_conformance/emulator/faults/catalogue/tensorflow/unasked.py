"""Ways to be wrong about what programs rely on without asking: structures, names, first values, what is saved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, never, patch, register, result

Original = Callable[..., Any]


@patch("outfeed-of-one-is-a-list", "streams", "tensorflow.run.pipeline_machine:_leaving",
       "the one output of an inference is dequeued as a list")  # fmt: skip
def _listed(original: Original, program: Any, outputs: Any, loss: Any) -> Any:
    left = original(program, outputs, loss)
    return left if isinstance(left, (list, tuple, dict)) or left is loss else [left]


@patch("outfeed-of-names-is-a-list", "streams", "tensorflow.run.pipeline_machine:_leaving",
       "outputs with names are dequeued as a list")  # fmt: skip
def _nameless(original: Original, program: Any, outputs: Any, loss: Any) -> Any:
    left = original(program, outputs, loss)
    return list(left.values()) if isinstance(left, dict) else left


@patch("loop-of-one-is-a-list", "streams", "tensorflow.compile.loops:_returned",
       "a loop of one value returns a list")  # fmt: skip
def _always_listed(original: Original, finished: Any, values: Any) -> Any:
    returned = original(finished, values)
    return [returned] if len(values) == 1 else returned


@patch("keras-stages-lost-by-saving", "plan", "tensorflow.keras.saving:described",
       "a saved model does not tell its stages")  # fmt: skip
def _without_stages(original: Original, model: Any) -> Any:
    held = original(model)
    return {key: {**own, "stages": None} for key, own in held.items()}


@patch("whole-numbers-begin-at-zero", "weights", "tensorflow.compile.graph_context:_of_its_value",
       "a variable whose first value is a whole number begins with 0")  # fmt: skip
def _from_zero(original: Original, getter: Any, *arguments: Any, **settings: Any) -> Any:
    if isinstance(settings.get("initializer"), int):
        settings["initializer"] = 0
    return original(getter, *arguments, **settings)


@patch("evaluation-does-not-count", "plan", "tensorflow.estimator.hooks:CountSteps.after_run",
       "the steps of an evaluation are not counted")  # fmt: skip
def _uncounted(original: Original, hook: Any, run_context: Any, run_values: Any) -> None:
    pass


@patch("names-of-an-element-by-place", "streams", "tensorflow.compile.functions:fed",
       "tensors of a dictionary are given to a body backwards")  # fmt: skip
def _backwards(original: Original, function: Any, values: Any, element: Any) -> Any:
    if isinstance(element, dict):
        element = dict(zip(element, [*element.values()][::-1]))
    return original(function, values, element)


@patch("keras-old-optimizer-halved", "update", "tensorflow.keras.execution:_native",
       "optimizers of TensorFlow 1 move weights half as far in a model")  # fmt: skip
def _half_as_far(original: Original, optimizer: Any) -> Any:
    native = original(optimizer)
    if native is not optimizer and not hasattr(native, "_halved"):
        native._halved, apply = True, native.apply_gradients
        native.apply_gradients = lambda pairs, *arguments, **settings: apply(
            [(None if gradient is None else gradient / 2, variable) for gradient, variable in pairs],
            *arguments,
            **settings,
        )
    return native


@patch("captured-in-a-pipeline-not-divided", "reduce", "tensorflow.run.pipeline_machine:FunctionPipeline.captured",
       "a mean of captured gradients is their sum")  # fmt: skip
def _not_divided(original: Original, machine: Any, replica: int) -> Any:
    return {
        tag: [tensor * machine.divisor for tensor in tensors] for tag, tensors in original(machine, replica).items()
    }


@patch("captured-in-a-pipeline-of-the-first-replica", "reduce",
       "tensorflow.run.pipeline_machine:FunctionPipeline.captured",
       "every replica has the captured gradients of the first")  # fmt: skip
def _of_the_first(original: Original, machine: Any, replica: int) -> Any:
    return original(machine, 0)


@patch("loss-of-a-pipeline-not-scaled", "update", "tensorflow.run.pipeline_machine:_transformed",
       "a pipeline takes the gradients of the loss itself for an optimizer that scales it")  # fmt: skip
def _not_scaled(original: Original, optimizer: Any, loss: Any) -> Any:
    return loss


@patch("estimator-shows-its-training", "ir", "tensorflow.estimator.base:BaseEstimator._call_model_fn",
       "an estimator that has trained shows the program of the training for good")  # fmt: skip
def _of_the_training(original: Original, estimator: Any, *call: Any) -> Any:
    before = getattr(estimator, "last_program", None)
    spec = original(estimator, *call)
    estimator.last_program = before or estimator.last_program
    return spec


@patch("keras-one-stage-for-good", "plan", "tensorflow.keras.stages:assign",
       "a nested model that was assigned once gets no stages of its own any more")  # fmt: skip
def _one_for_good(original: Original, node: Any, stage: Any) -> None:
    if not (isinstance(stage, dict) and hasattr(node, "_assigned_before")):
        original(node, stage)
    node._assigned_before = True


@patch("keras-memory-without-schedule", "ir", "tensorflow.reports.keras:on_device",
       "the memory of a pipeline is that of stages one by one, whatever the schedule")  # fmt: skip
def _one_by_one(original: Original, executed: Any) -> Any:
    return original(replace(executed, schedule="sequential"))


@patch("keras-subclass-not-exported", "ir", "tensorflow.keras.serving:_network",
       "a subclassed model that was built has no inputs to export")  # fmt: skip
def _itself(original: Original, model: Any) -> Any:
    return model


ACCUMULATED = {
    "offload_weight_update_variables": None,
    "replicated_optimizer_state_sharding": False,
    "reduction_method": "SUM",
}
KEPT = "tensorflow.optim.keras_accumulation:GradientAccumulationOptimizer.get_config"
for _fault in (
    Fault("keras-validation-before-callbacks", "streams", "tensorflow.keras.callbacks:Stepped.on_test_begin",
          "a validation begins before the callbacks of the training have ended", never),
    Fault("keras-old-pipeline-without-dtype", "numerics", "tensorflow.legacy.keras_models:Pipelined._use_pipelining",
          "an old pipeline accumulates in the type of the gradients",
          argument("options", lambda options: {**options, "gradient_accumulation_dtype": None})),
    Fault("keras-accumulation-not-told", "update", KEPT, "a configuration does not tell how gradients are accumulated",
          result(lambda config: {**config, **ACCUMULATED})),
    Fault("keras-wrapper-without-slots", "update", "tensorflow.optim.keras_wrappers:IpuOptimizer.get_slot",
          "a wrapper has no slots", never),
    Fault("graph-built-for-the-first-device", "plan", "tensorflow.compile.compiler:_ordinal",
          "a graph has the IPUs of the first device, whichever it is for", always(0)),
    Fault("session-devices-of-one-ipu", "ir", "tensorflow.config.system:session_devices",
          "a device of a session has the memory of the first device",
          result(lambda devices: [type(each)(each.name, each.device_type, devices[0].memory_limit_bytes, 0)
                                  for each in devices])),
):  # fmt: skip
    register(_fault, __name__)
