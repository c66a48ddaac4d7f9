"""Arguments of the vendor's functions and classes: their names and their defaults."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import operator
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from ipu_conformance import check

REQUIRED = "…"
"""Stands for an argument that must be given."""

RECURRENT = (
    "num_units, dtype='float32', partials_dtype='float32', seed=None, weights_initializer=None, "
    "bias_initializer=None, activation='tanh', recurrent_activation='sigmoid', return_state=True, name=None, "
    "options=None, options_bwd=None"
)
ARGUMENTS: Dict[str, str] = {
    "loops.for_loop": "start, end, step, body, inputs=None",
    "rnn_ops.PopnnLSTM": RECURRENT,
    "rnn_ops.PopnnDynamicLSTM": f"{RECURRENT}, preserve_final_state=False",
    "rnn_ops.PopnnDynamicGRU": f"{RECURRENT}, reset_after=False",
    "rnn_ops.PopnnGRU": f"{RECURRENT}, reset_after=False",
    "rnn_ops.PopnnAUGRU": f"{RECURRENT}, reset_after=False",
    "automatic_loss_scaling_optimizer.AutomaticLossScalingOptimizer": "wrapped_optimizer, "
    "initial_loss_scaling_factor=1.0, update_frequency=8, increase_factor=2.0, decrease_factor=0.5, "
    "max_loss_scaling_factor=32768, accumulate_statistics_over_update_period=True, ratio_threshold=1e-05, "
    "name='AutomaticLossScalingOptimizer'",
    "keras.FunctionalLayerPipelineStageAssignment": "layer, node_index, pipeline_stage=None",
    "keras.FunctionalNestedModelPipelineStageAssignment": "nested_model, node_index, pipeline_stage_assignments",
    "keras.ModelLayerPipelineStageAssignment": "layer, node_index, pipeline_stage=None",
    "keras.SequentialLayerPipelineStageAssignment": "layer, pipeline_stage=None",
    "keras.PipelineStage": "stage",
    "keras.layers.CTCInferenceLayer": "blank_index=0, beam_width=100, top_paths=1",
    "keras.layers.CTCPredictionsLayer": "blank_index=0, beam_width=100, top_paths=1",
    "keras.layers.Dropout": "rate=0.5, noise_shape=None, seed=None",
    "keras.layers.EffectiveTransformer": "output_layer_size, max_batch_size, use_scale=False, num_attention_heads=1, "
    "attention_head_size=1, sequences_per_iter=1, qkv_activation=None, attention_dropout_prob=None, "
    "output_activation=None, output_dropout_prob=None, layer_norm_output=True",
    "keras.layers.Embedding": "input_dim, output_dim, embeddings_initializer='uniform', serialization_factor=1",
    "keras.layers.SerialDense": "units, serialization_factor, serialization_dimension",
    "keras.losses.CTCLoss": "blank_index=0, from_logits=False",
    "keras.optimizers.ALSOptimizer": "opt, initial_loss_scaling_factor=1, update_frequency=8, increase_factor=2, "
    "max_loss_scaling_factor=32768, accumulate_statistics_over_update_period=True, ratio_threshold=1e-05, "
    "captured_grads_only=False",
    "keras.optimizers.ALSOptimizerGradientAccumulationWrapper": "als_optimizer, num_mini_batches, "
    "offload_weight_update_variables=None, replicated_optimizer_state_sharding=False, dtype=None, "
    "name='ALSOptimizerGradientAccumulationWrapper'",
    "keras.optimizers.CrossReplicaOptimizer": "opt, name='CrossReplicaOptimizer'",
    "keras.optimizers.GradientAccumulationOptimizer": "opt, num_mini_batches, "
    "offload_weight_update_variables=None, replicated_optimizer_state_sharding=False, dtype=None",
}
"""Documented arguments, with their defaults, of what the surface does not hold or hold with its values."""
SURFACE: Dict[str, Dict[str, Optional[str]]] = json.loads((Path(__file__).parent / "surface.json").read_text())
"""The parameters of every public function and method, as the vendor's public sources have them; None for others."""
REFUSING = ("experimental_application_compile_op", "export_dataset_to_file", "export_inputs_to_file")
"""What may be there to refuse whatever it is given."""
OWN = object()
"""Stands for a default that is a name of the vendor's own."""


def literal(default: Optional[ast.expr]) -> Any:
    """A default as it is written."""
    try:
        return REQUIRED if default is None else ast.literal_eval(default)
    except ValueError:
        return OWN


def listed(parameters: str) -> Dict[str, Any]:
    """The defaults of parameters, in order; without ``self``."""
    arguments = ast.parse(f"def function({parameters}): pass").body[0].args  # type: ignore[attr-defined]
    required = [None] * (len(arguments.args) - len(arguments.defaults))
    pairs = [*zip(arguments.args, [*required, *arguments.defaults]), *zip(arguments.kwonlyargs, arguments.kw_defaults)]
    pairs += [(star, None) for star in (arguments.vararg, arguments.kwarg) if star is not None]
    return {each.arg: literal(default) for each, default in pairs if each.arg not in ("self", "cls")}


def called(found: Any) -> Any:
    """What a call runs first: of a class, the nearest method. Older Pythons prefer an inherited ``__new__``."""
    for kind in found.__mro__ if isinstance(found, type) else ():
        for method in ("__new__", "__init__"):
            if method in vars(kind):
                return getattr(found, method)
    return found


def misfits(found: Any, documented: str, whole: bool) -> List[str]:
    """How parameters differ in default, by value and type, and in order if the whole list of them is documented.

    Dtypes are compared by their names.
    """
    signature, expected = inspect.signature(called(found)).parameters, listed(documented)
    actual = {name: own.default for name, own in signature.items() if name not in ("self", "cls")}
    if whole and list(actual) != list(expected):
        return [f"takes {', '.join(actual)} for {', '.join(expected)}"]
    wrong = [f"{name} is missing" for name in expected if name not in actual]
    for name in expected.keys() & actual.keys():
        default = getattr(actual[name], "name", actual[name])
        default = REQUIRED if default is inspect.Parameter.empty else default
        if expected[name] is not OWN and (type(default), default) != (type(expected[name]), expected[name]):
            wrong.append(f"{name} is {default!r} for {expected[name]!r} by default")
    return wrong


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_function_has_its_arguments(tf: Any, ipu: Any, name: str) -> None:
    """Every documented argument of functions and classes exists, with its default."""
    package = tf.keras.ipu if name.startswith("keras.") else importlib.import_module("tensorflow.python.ipu")
    found = operator.attrgetter(name[len("keras.") :] if package is tf.keras.ipu else name)(package)

    wrong = misfits(found, ARGUMENTS[name], whole=False)
    check.equal(actual=wrong, expected=[], what=f"what differs in the arguments of {name}")


@pytest.mark.parametrize("module", SURFACE)
def test_a_module_has_the_vendors_surface(tf: Any, ipu: Any, module: str) -> None:
    """Every public function and method of a module exists, with the vendor's parameters in order and its defaults.

    Functions and classes are found by dir, and ``ipu`` has the modules of operations and optimizers by their last name.
    """
    imported, wrong = importlib.import_module(module), []
    for name, parameters in SURFACE[module].items():
        try:
            found = operator.attrgetter(name)(imported)
        except AttributeError:
            wrong.append(f"{name} is missing")
            continue
        if name.partition(".")[0] not in dir(imported):
            wrong.append(f"{name} is not listed")
        if parameters is not None and name not in REFUSING and not isinstance(found, property):
            wrong += [f"{name} {misfit}" for misfit in misfits(found, parameters, whole=True)]

    check.equal(actual=wrong, expected=[], what=f"what differs in {module}")
    if module.startswith(("tensorflow.python.ipu.ops.", "tensorflow.python.ipu.optimizers.")):
        short = module.rpartition(".")[2]
        check.equal(actual=getattr(ipu, short, None), expected=imported, what=f"ipu.{short}")
