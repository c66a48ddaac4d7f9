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

PIPELINE = (
    "computational_stages, gradient_accumulation_count=None, repeat_count=1, batch_serialization_iterations=1, "
    "inputs=None, infeed_queue=None, outfeed_queue=None, optimizer_function=None, device_mapping=None, "
    "pipeline_schedule=None, recomputation_mode=None, forward_propagation_stages_poplar_options=None, "
    "backward_propagation_stages_poplar_options=None, weight_update_poplar_options=None, "
    "offload_weight_update_variables=None, replicated_optimizer_state_sharding=False, offload_activations=None, "
    "offload_gradient_accumulation_buffers=None, replicated_weight_sharding=None, offload_weights=None, "
    "continuous_weight_updates=False, outfeed_loss=False, accumulate_outfeed=False, accumulate_outfeed_dtype=None, "
    "outfeed_mask=None, name=None"
)
ACCUMULATION = (
    "num_mini_batches, offload_weight_update_variables=None, replicated_optimizer_state_sharding=False, dtype=None"
)
NORM = (
    "inputs, channels_axis=-1, center=True, scale=True, epsilon=1.53e-05, param_initializers=None, reuse=None, "
    "variables_collections=None, training=True, trainable=True, scope=None"
)
RECURRENT = (
    "num_units, dtype='float32', partials_dtype='float32', seed=None, weights_initializer=None, "
    "bias_initializer=None, activation='tanh', recurrent_activation='sigmoid', return_state=True, name=None, "
    "options=None, options_bwd=None"
)
SCALING = (
    "opt, initial_loss_scaling_factor=1, update_frequency=8, increase_factor=2, max_loss_scaling_factor=32768, "
    "accumulate_statistics_over_update_period=True, ratio_threshold=1e-05, captured_grads_only=False"
)
STRATEGY = "ipu_device='/device:IPU:0', enable_dataset_iterators=True, enable_keras_extensions=True"
IPU: Dict[str, str] = {
    "config.configure_ipu_system": "config, device='cpu', reset_configuration=True",
    "config.get_ipu_config": "session=None",
    "utils.get_num_of_ipus_in_device": "ipu_device, device='cpu'",
    "utils.move_variable_initialization_to_cpu": "graph=None",
    "utils.reset_ipu_seed": "seed, device='/device:IPU:0', cpu_device='cpu', experimental_identical_replicas=False",
    "utils.use_synthetic_data_for": "synthetic_data_category",
    "ipu_strategy.IPUStrategyV1": f"{STRATEGY}, cpu_device='/device:CPU:0'",
    "distributed.popdist_strategy.PopDistStrategy": f"{STRATEGY}, add_ipu_cross_replica_reductions=True",
    "ipu_multi_worker_strategy.IPUMultiWorkerStrategyV1": "cluster_resolver, "
    "ipu_device='/device:IPU:0', variables_on_host=False",
    "ipu_compiler.compile": "computation, inputs=None",
    "scopes.frontend_attribute": "attribute_name, attribute_value, restore_to=None",
    "scopes.ipu_jit_scope": "ipu_scope",
    "scopes.ipu_scope": "device",
    "scopes.ipu_shard": "index",
    "scopes.outside_compilation_scope": "name='outside'",
    "scopes.partials_type": "override_type",
    "scopes.stochastic_rounding": "override",
    "ipu_infeed_queue.IPUInfeedQueue": "dataset, device_ordinal=None, prefetch_depth=None, optimise_latency=False",
    "ipu_infeed_queue.IPUIterator": "dataset=None, infeed_spec=None, element_spec=None",
    "ipu_outfeed_queue.IPUOutfeedQueue": "outfeed_mode=None, "
    "device_ordinal=None, buffer_depth=3, optimise_latency=False",
    "ipu_outfeed_queue.IPUOutfeedQueueIterator": "outfeed_queue",
    "loops.repeat": "n, body, inputs=None, infeed_queue=None, use_while_v1=True",
    "loops.for_loop": "start, end, step, body, inputs=None",
    "loops.while_loop": "condition, body, inputs=None, maximum_iterations=None",
    "pipelining_ops.pipeline": PIPELINE,
    "pipelining_ops.PipelineStageOptions": "convolution_options=None, matmul_options=None, slice_options=None",
    "pipelining_ops.OptimizerFunctionOutput": "opt, loss, compute_gradients_args=None",
    "pipelining_ops.recomputation_checkpoint": "tensors, name=None",
    "control_flow_ops.barrier": "tensors, insert_barrier_for_gradients=False, name=None",
    "dataset_benchmark.dataset_benchmark": "dataset, number_of_epochs, elements_per_epochs, print_stats=True, "
    "apply_debug_options=True, do_memcpy=True",
    "dataset_benchmark.infeed_benchmark": "infeed_queue, "
    "number_of_epochs, elements_per_epochs, print_stats=True, do_memcpy=True",
    "data.ops.dataset_ops.BufferDataset": "input_dataset, buffer_size",
    "cross_replica_ops.cross_replica_sum": "x, replica_group_size=None, name=None",
    "cross_replica_ops.cross_replica_mean": "x, replica_group_size=None, name=None",
    "cross_replica_ops.assume_equal_across_replicas": "tensors, inplace=False",
    "all_to_all_op.all_gather": "x, replication_factor, name=None",
    "all_to_all_op.all_to_all": "x, split_dimension, concat_dimension, replication_factor, name=None",
    "reduce_scatter_op.reduce_scatter": "x, replication_factor, op='COLLECTIVE_OP_ADD', name=None",
    "replication_ops.replication_index": "name=None",
    "embedding_ops.embedding_lookup": "params, ids, name=None, serialization_factor=1",
    "embedding_ops.HostEmbeddingOptimizerSpec": "learning_rate, optimizer_name=None",
    "embedding_ops.HostEmbeddingSGDGAOptimizerSpec": "learning_rate, accumulation_factor",
    "functional_ops.outlined_function": "func=None, unique_sharding=False, keep_input_layouts=None, name=None",
    "image_ops.normalise_image": "image, channel_offsets, channel_scales, scale=1, name=None",
    "math_ops.segment_sum": "data, segment_ids, num_segments, name=None",
    "math_ops.serialized_matmul": "a, b, serialization_factor, serialization_dimension, transpose_a=False, "
    "transpose_b=False, name=None",
    "nn_ops.gelu": "x, approximate=True, name=None",
    "nn_ops.hard_sigmoid": "x, name=None",
    "nn_ops.swish": "x, name=None",
    "nn_ops.multi_conv": "func=None, options=None",
    "nn_ops.ctc_loss_v2": "labels, logits, label_length, logit_length, blank_index, out_dtype=None, name=None",
    "nn_ops.ctc_beam_search_decoder": "logits, logits_lengths, beam_width=100, top_paths=1, blank_index=-1, name=None",
    "normalization_ops.group_norm": f"{NORM}, groups=2, strided_channel_grouping=True",
    "normalization_ops.instance_norm": NORM,
    "normalization_ops.layer_norm": NORM,
    "rand_ops.dropout": "x, rate=0.5, noise_shape=None, seed=None, name=None",
    "rnn_ops.PopnnLSTM": RECURRENT,
    "rnn_ops.PopnnDynamicLSTM": f"{RECURRENT}, preserve_final_state=False",
    "rnn_ops.PopnnDynamicGRU": f"{RECURRENT}, reset_after=False",
    "rnn_ops.PopnnGRU": f"{RECURRENT}, reset_after=False",
    "rnn_ops.PopnnAUGRU": f"{RECURRENT}, reset_after=False",
    "statistics_ops.histogram": "inputs, levels, absolute_of_input=False",
    "cross_replica_optimizer.CrossReplicaOptimizer": "opt, name='CrossReplicaOptimizer'",
    "gradient_accumulation_optimizer.GradientAccumulationOptimizer": "opt, "
    "num_mini_batches, verify_usage=True, name='GradientAccumulationOptimizer'",
    "gradient_accumulation_optimizer.GradientAccumulationOptimizerV2": f"opt, {ACCUMULATION}",
    "gradient_accumulation_optimizer.CrossReplicaGradientAccumulationOptimizerV2": f"opt, {ACCUMULATION}",
    "map_gradient_optimizer.MapGradientOptimizer": "wrapped_optimizer, gradient_mapping_function",
    "automatic_loss_scaling_optimizer.AutomaticLossScalingOptimizer": "wrapped_optimizer, "
    "initial_loss_scaling_factor=1.0, update_frequency=8, increase_factor=2.0, decrease_factor=0.5, "
    "max_loss_scaling_factor=32768, accumulate_statistics_over_update_period=True, ratio_threshold=1e-05, "
    "name='AutomaticLossScalingOptimizer'",
}
KERAS: Dict[str, str] = {
    "FunctionalLayerPipelineStageAssignment": "layer, node_index, pipeline_stage=None",
    "FunctionalNestedModelPipelineStageAssignment": "nested_model, node_index, pipeline_stage_assignments",
    "ModelLayerPipelineStageAssignment": "layer, node_index, pipeline_stage=None",
    "SequentialLayerPipelineStageAssignment": "layer, pipeline_stage=None",
    "PipelineStage": "stage",
    "layers.CTCInferenceLayer": "blank_index=0, beam_width=100, top_paths=1",
    "layers.CTCPredictionsLayer": "blank_index=0, beam_width=100, top_paths=1",
    "layers.Dropout": "rate=0.5, noise_shape=None, seed=None",
    "layers.EffectiveTransformer": "output_layer_size, max_batch_size, use_scale=False, num_attention_heads=1, "
    "attention_head_size=1, sequences_per_iter=1, qkv_activation=None, attention_dropout_prob=None, "
    "output_activation=None, output_dropout_prob=None, layer_norm_output=True",
    "layers.Embedding": "input_dim, output_dim, embeddings_initializer='uniform', serialization_factor=1",
    "layers.SerialDense": "units, serialization_factor, serialization_dimension",
    "losses.CTCLoss": "blank_index=0, from_logits=False",
    "optimizers.ALSOptimizer": SCALING,
    "optimizers.ALSOptimizerGradientAccumulationWrapper": f"als_optimizer, {ACCUMULATION}, "
    "name='ALSOptimizerGradientAccumulationWrapper'",
    "optimizers.CrossReplicaOptimizer": "opt, name='CrossReplicaOptimizer'",
    "optimizers.GradientAccumulationOptimizer": f"opt, {ACCUMULATION}",
    "extensions.ModelExtension.set_pipelining_options": "gradient_accumulation_steps_per_replica=None, "
    "device_mapping=None, accumulate_outfeed=None",
    "extensions.ModelExtension.set_gradient_accumulation_options": "gradient_accumulation_steps_per_replica=None",
    "extensions.ModelExtension.set_asynchronous_callbacks": "asynchronous=False",
    "extensions.ModelExtension.set_replication_options": "replicated_metric_reduction_method='NONE'",
    "extensions.ModelExtension.print_pipeline_stage_assignment_summary": "line_length=None, print_fn=None",
    "extensions.ModelExtension.set_pipeline_stage_assignment": "pipeline_stage_assignment",
}


SURFACE: Dict[str, Dict[str, Optional[str]]] = json.loads((Path(__file__).parent / "surface.json").read_text())
"""The parameters of every public function and method, as the vendor's public sources have them; None for others."""


def named(package: str, name: str) -> Any:
    """What a dotted name leads to, module by module and then attribute by attribute."""
    return operator.attrgetter(name)(importlib.import_module(package))


def defaults_of(arguments: str) -> Dict[str, Any]:
    """The defaults of a list of arguments, by their names."""
    listed = ast.parse(f"lambda {arguments}: None", mode="eval").body.args  # type: ignore[attr-defined]
    values = [ast.literal_eval(default) for default in listed.defaults]
    return dict(zip((argument.arg for argument in listed.args), [REQUIRED] * (len(listed.args) - len(values)) + values))


def called(found: Any) -> Any:
    """What a call runs first: of a class, the nearest method. Older Pythons prefer an inherited ``__new__``."""
    for kind in found.__mro__ if isinstance(found, type) else ():
        for method in ("__new__", "__init__"):
            if method in vars(kind):
                return getattr(found, method)
    return found


def differences(function: Any, documented: str) -> Dict[str, Any]:
    """The arguments that do not exist, or that have another default; dtypes are compared by their names."""
    parameters = inspect.signature(called(function)).parameters
    wrong = {}
    for name, default in defaults_of(documented).items():
        if name not in parameters:
            wrong[name] = "missing"
            continue
        actual = parameters[name].default
        actual = REQUIRED if actual is inspect.Parameter.empty else getattr(actual, "name", actual)
        if actual != default or type(actual) is not type(default):
            wrong[name] = actual
    return wrong


@pytest.mark.parametrize("name", IPU)
def test_a_function_has_its_arguments(ipu: Any, name: str) -> None:
    """Every documented argument of the package's functions and classes exists, with its default."""
    wrong = differences(named("tensorflow.python.ipu", name), IPU[name])
    check.equal(actual=wrong, expected={}, what=f"the defaults of {name} that are not as documented")


@pytest.mark.parametrize("name", KERAS)
def test_a_function_of_keras_has_its_arguments(tf: Any, ipu: Any, name: str) -> None:
    """Every documented argument of what ``keras.ipu`` has exists, with its default."""
    wrong = differences(named("keras.ipu", name), KERAS[name])
    check.equal(actual=wrong, expected={}, what=f"the defaults of {name} that are not as documented")


def listed(parameters: str) -> Dict[str, str]:
    """The defaults of parameters as they are written, in order; without ``self`` and stars."""
    arguments = ast.parse(f"def function({parameters}): pass").body[0].args  # type: ignore[attr-defined]
    given = [argument.arg for argument in arguments.args]
    written = [REQUIRED] * (len(given) - len(arguments.defaults)) + [ast.unparse(each) for each in arguments.defaults]
    made = dict(zip(given, written))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        made[argument.arg] = REQUIRED if default is None else ast.unparse(default)
    made.update((star.arg, REQUIRED) for star in (arguments.vararg, arguments.kwarg) if star is not None)
    return {name: default for name, default in made.items() if name not in ("self", "cls")}


def misfits(found: Any, parameters: Optional[str]) -> List[str]:
    """How the parameters of what was found differ in name, order or literal default."""
    if parameters is None or isinstance(found, property):
        return []
    actual = {name: own for name, own in inspect.signature(found).parameters.items() if name not in ("self", "cls")}
    if [own.kind for own in actual.values()] == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
        return []  # whatever is passed is passed on
    expected = listed(parameters)
    if list(actual) != list(expected):
        return [f"takes {', '.join(actual)} for {', '.join(expected)}"]
    wrong = []
    for name, written in expected.items():
        if written == REQUIRED:
            continue
        try:
            default = ast.literal_eval(written)
        except ValueError:
            continue  # a name of the vendor's own
        if actual[name].default != default:
            wrong.append(f"{name} is {actual[name].default!r} for {written} by default")
    return wrong


@pytest.mark.parametrize("module", SURFACE)
def test_a_module_has_the_vendors_surface(tf: Any, ipu: Any, module: str) -> None:
    """Every public function and method of a module exists, with the vendor's parameters in order and its defaults."""
    imported, wrong = importlib.import_module(module), []
    for name, parameters in SURFACE[module].items():
        try:
            found = operator.attrgetter(name)(imported)
        except AttributeError:
            wrong.append(f"{name} is missing")
            continue
        wrong += [f"{name} {misfit}" for misfit in misfits(found, parameters)]

    check.equal(actual=wrong, expected=[], what=f"what differs in {module}")
