"""Ways for float16, dynamic-to-static, predictors and the model runtime of Paddle to be wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Mapping

import numpy as np

from ipu_conformance.emulator.faults.catalogue import Fault, Wrong, always, argument, never, register, result
from ipu_conformance.emulator.faults.catalogue.paddle import VALUE, told

PRECISION = "paddle.compile.precision"
Original = Callable[..., Any]


def _exact(original: Original, array: Any, declared: Any) -> Any:
    """All bits arrive, in the type in which the device holds them."""
    return np.asarray(array).astype(original(array, declared).dtype)


def _with_float32_weights(original: Original, block: Any, names: Any, round_of: Any) -> None:
    original(block, names - {variable.name() for variable in block.all_vars() if variable.persistable()}, round_of)


def _first_of(factor: str) -> Wrong:
    """A predictor computes the first of ``factor`` batches."""

    def wrong(original: Original, predictor: Any, inputs: Any = None) -> Any:
        answer = original(predictor, inputs)
        for handle in predictor._outputs.values():
            handle.hold(handle.array[: len(handle.array) // predictor._strategy.value(factor)])
        return answer

    return wrong


def _of_zeros(original: Original, executor: Any, dirname: Any, program: Any, filename: Any = None) -> None:
    import paddle

    original(executor, dirname, program, filename)
    for variable in program.list_vars():
        if variable.persistable and variable.name not in ("feed", "fetch"):
            tensor = paddle.static.global_scope().find_var(variable.name).get_tensor()
            tensor.set(np.zeros_like(np.array(tensor)), paddle.CPUPlace())


def _unanswered(original: Original, request: Any, fetched: Any) -> Any:
    answer = original(request, fetched)
    return answer if request.samples == request.capacity else [array[:0] for array in answer]


def _differentiable(original: Original, array: Any) -> Any:
    tensor = original(array)
    tensor.stop_gradient = False
    return tensor


def _brought_home(original: Original, *arguments: Any) -> Any:
    from ipu_conformance.emulator.paddle.run.device import DEVICE

    outputs = original(*arguments)
    DEVICE.weights_to_host()
    return outputs


def _shared(original: Original, handle: Any, data: Any) -> None:
    original(handle, data)
    handle.array = data


def _of_their_own(found: Any) -> Any:
    """Another class of the same name and behaviour."""
    return type(found.__name__, (found,), {}) if isinstance(found, type) else found


def _without_a_reason(original: Original, module: str, name: str) -> None:
    raise AttributeError(name)


def _without_batch(functions: Mapping[str, Any]) -> Mapping[str, Any]:
    def data(name: str, shape: Any, append_batch_size: bool = True, **words: Any) -> Any:
        return functions["data"](name, shape, False, **words)

    return {**functions, "data": data}


def _last_piece_kept(functions: Mapping[str, Any]) -> Mapping[str, Any]:
    def piecewise_decay(boundaries: Any, values: Any) -> Any:
        return functions["piecewise_decay"](boundaries, [*values, values[-1]][: len(boundaries) + 1])

    return {**functions, "piecewise_decay": piecewise_decay}


for _name, _area, _place, _what, _wrong in (
    ("half-program-runs-in-float32", "numerics", f"{PRECISION}:_insert", "programs in float16 compute in float32",
     always(None)),
    ("half-feed-not-rounded", "numerics", f"{PRECISION}:to_device",
     "feeds of float16 variables keep the bits of a float32", _exact),
    ("half-arrives-as-float32", "numerics", f"{PRECISION}:to_host", "the host gets float16 variables as float32",
     lambda original, array, declared: np.asarray(array)),
    ("stochastic-rounding-ignored", "numerics", VALUE, "the option for stochastic rounding has no effect",
     told(enable_stochastic_rounding=False)),
    ("half-weights-become-float32", "weights", f"{PRECISION}:_insert",
     "weights that the host holds in float16 are float32", _with_float32_weights),
    ("unscaled-gradient-rounded", "numerics", f"{PRECISION}:_is_made_by_the_device",
     "gradients are rounded when the loss scale is taken out", never),
    ("call-outputs-reversed", "streams", "paddle.run.dynamic:_run",
     "a call of a model returns its outputs in the wrong order", result(lambda outputs: outputs[::-1])),
    ("call-brings-weights-home", "weights", "paddle.run.dynamic:_run",
     "a call of a model overwrites the host's weights", _brought_home),
    ("model-cut-into-programs", "plan", "paddle.run.dynamic:is_patched",
     "a model becomes several programs, each compiled by itself", never),
    ("shapes-of-the-call-traced", "streams", "paddle.run.dynamic:_is_several",
     "a call is compiled in its own shape, whatever was asked for", never),
    ("first-names-forget-accumulation", "plan", "paddle.api.first_strategy:_pipelining",
     "a strategy by its first names never accumulates gradients",
     lambda original, strategy, *config, **words: original(strategy, *config[:2])),
    ("host-differentiates-again", "update", "paddle.run.dynamic:_tensor",
     "what a call returned can be differentiated on the host", _differentiable),
    ("predictor-ignores-batches", "streams", "paddle.api.inference:Predictor.run",
     "a predictor has one batch per step", _first_of("batches_per_step")),
    ("predictor-ignores-replicas", "streams", "paddle.api.inference:Predictor.run", "a predictor has one replica",
     _first_of("replicated_graph_count")),
    ("predictor-ignores-float16", "numerics", "paddle.api.inference_config:IpuSettings.strategy",
     "a predictor computes in float32",
     lambda original, settings: original(replace(settings, ipu_enable_fp16=False))),
    ("predictor-shares-inputs", "streams", "paddle.api.inference:Handle.copy_from_cpu",
     "a handle keeps the array itself that is copied into it", _shared),
    ("predictor-always-on-ipu", "plan", "paddle.api.inference_config:settings_of",
     "predictors run on the IPU without enable_ipu", result(lambda settings: replace(settings, enabled=True))),
    ("timeout-ignored", "streams", "paddle.run.model_runtime:Request.answer",
     "the model runtime answers small batches with nothing in spite of a timeout", _unanswered),
    ("timeout-always", "streams", VALUE, "the model runtime completes small batches without a timeout",
     told(timeout_ms=1.0)),
    ("request-not-cut", "streams", "paddle.run.model_runtime:Request.answer",
     "the answer holds what completed the batch", lambda original, request, fetched: list(fetched)),
    ("paddle-fluid-activations-left-out", "numerics", "paddle.legacy.table:activated",
     "old layers have no activation behind them", lambda original, value, act: value),
    ("paddle-fluid-zeros-written-nowhere", "streams", "name:paddle.legacy.layers:_FUNCTIONS",
     "zeros_like of old leaves the variable as it is that it is told to write",
     lambda functions: {**functions, "zeros_like": lambda x, out=None: functions["zeros_like"](x)}),
    ("paddle-fluid-arrays-keep-their-type", "streams", "paddle.legacy.dygraph:to_variable",
     "an array of old becomes a tensor of its own type, whichever is asked for", argument("dtype", always(None))),
    ("paddle-fluid-models-without-weights", "weights", "paddle.legacy.io:load_persistables",
     "a model of old is loaded with weights of zeros", _of_zeros),
    ("paddle-fluid-weights-not-loaded", "weights", "paddle.legacy.io:load_params",
     "weights that were saved are not loaded", always(None)),
    ("paddle-fluid-feeds-without-batch", "streams", "name:paddle.legacy.layers:_FUNCTIONS",
     "a feed of old has the shape that it is given, without a batch in front", _without_batch),
    ("paddle-fluid-classes-of-its-own", "plan", "paddle.legacy.compiler:__getattr__",
     "old names of classes for IPUs stand for other classes", result(_of_their_own)),
    ("paddle-fluid-decays-stand-still", "update", "paddle.run.executor:count",
     "learning rates of old keep the rate of the first run", always(None)),
    ("paddle-fluid-decays-a-run-early", "update", "paddle.legacy.decays:Decay.get_lr",
     "a learning rate of old is that of the run after", lambda original, decay: decay.rule(decay.last_epoch + 1)),
    ("paddle-fluid-pieces-not-counted", "update", "name:paddle.legacy.decays:_FUNCTIONS",
     "piecewise rates of old with too few values keep the last one", _last_piece_kept),
    ("paddle-fluid-refuses-without-a-reason", "plan", "paddle.legacy.table:missing",
     "a name that Paddle no longer has is refused without a reason", _without_a_reason),
):  # fmt: skip
    register(Fault(_name, _area, _place, _what, _wrong), __name__)
