"""Arguments of the vendor's functions and classes: their names, and what they are when they are left out."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Dict

import pytest

REQUIRED = "…"
"""Stands for an argument that must be given."""

PIPELINE = {
    "computational_stages": REQUIRED,
    "gradient_accumulation_count": None,
    "repeat_count": 1,
    "batch_serialization_iterations": 1,
    "inputs": None,
    "infeed_queue": None,
    "outfeed_queue": None,
    "optimizer_function": None,
    "device_mapping": None,
    "pipeline_schedule": None,
    "recomputation_mode": None,
    "forward_propagation_stages_poplar_options": None,
    "backward_propagation_stages_poplar_options": None,
    "weight_update_poplar_options": None,
    "offload_weight_update_variables": None,
    "replicated_optimizer_state_sharding": False,
    "offload_activations": None,
    "offload_gradient_accumulation_buffers": None,
    "replicated_weight_sharding": None,
    "offload_weights": None,
    "continuous_weight_updates": False,
    "outfeed_loss": False,
    "accumulate_outfeed": False,
    "accumulate_outfeed_dtype": None,
    "outfeed_mask": None,
    "name": None,
}
ACCUMULATION = {
    "num_mini_batches": REQUIRED,
    "offload_weight_update_variables": None,
    "replicated_optimizer_state_sharding": False,
    "dtype": None,
}
NORM = {
    "inputs": REQUIRED,
    "channels_axis": -1,
    "center": True,
    "scale": True,
    "epsilon": 1.53e-5,
    "param_initializers": None,
    "reuse": None,
    "variables_collections": None,
    "training": True,
    "trainable": True,
    "scope": None,
}
RECURRENT = {
    "num_units": REQUIRED,
    "dtype": "float32",
    "partials_dtype": "float32",
    "seed": None,
    "weights_initializer": None,
    "bias_initializer": None,
    "activation": "tanh",
    "recurrent_activation": "sigmoid",
    "return_state": True,
    "name": None,
    "options": None,
    "options_bwd": None,
}
SCALING = {
    "opt": REQUIRED,
    "initial_loss_scaling_factor": 1,
    "update_frequency": 8,
    "increment_factor": 2,
    "max_loss_scaling_factor": 32768,
    "accumulate_statistics_over_update_period": True,
    "ratio_threshold": 10e-6,
    "captured_grads_only": False,
}
STRATEGY = {
    "ipu_device": "/device:IPU:0",
    "enable_dataset_iterators": True,
    "enable_keras_extensions": True,
}
IPU: Dict[str, Dict[str, Any]] = {
    "config.configure_ipu_system": {"config": REQUIRED, "device": "cpu", "reset_configuration": True},
    "config.get_ipu_config": {"session": None},
    "utils.get_num_of_ipus_in_device": {"ipu_device": REQUIRED, "device": "cpu"},
    "utils.move_variable_initialization_to_cpu": {"graph": None},
    "utils.reset_ipu_seed": {
        "seed": REQUIRED,
        "device": "/device:IPU:0",
        "cpu_device": "cpu",
        "experimental_identical_replicas": False,
    },
    "utils.use_synthetic_data_for": {"synthetic_data_category": REQUIRED},
    "ipu_strategy.IPUStrategyV1": {**STRATEGY, "cpu_device": "/device:CPU:0"},
    "distributed.popdist_strategy.PopDistStrategy": {**STRATEGY, "add_ipu_cross_replica_reductions": True},
    "ipu_multi_worker_strategy.IPUMultiWorkerStrategyV1": {
        "cluster_resolver": REQUIRED,
        "ipu_device": "/device:IPU:0",
        "variables_on_host": False,
    },
    "ipu_compiler.compile": {"computation": REQUIRED, "inputs": None},
    "scopes.frontend_attribute": {"attribute_name": REQUIRED, "attribute_value": REQUIRED, "restore_to": None},
    "scopes.ipu_jit_scope": {"ipu_scope": REQUIRED},
    "scopes.ipu_scope": {"device": REQUIRED},
    "scopes.ipu_shard": {"index": REQUIRED},
    "scopes.outside_compilation_scope": {"name": "outside"},
    "scopes.partials_type": {"override_type": REQUIRED},
    "scopes.stochastic_rounding": {"override": REQUIRED},
    "ipu_infeed_queue.IPUInfeedQueue": {
        "dataset": REQUIRED,
        "device_ordinal": None,
        "prefetch_depth": None,
        "optimise_latency": False,
    },
    "ipu_infeed_queue.IPUIterator": {"dataset": None, "infeed_spec": None, "element_spec": None},
    "ipu_outfeed_queue.IPUOutfeedQueue": {
        "outfeed_mode": None,
        "device_ordinal": None,
        "buffer_depth": 1,
        "optimise_latency": False,
    },
    "ipu_outfeed_queue.IPUOutfeedQueueIterator": {"outfeed_queue": REQUIRED},
    "loops.repeat": {"n": REQUIRED, "body": REQUIRED, "inputs": None, "infeed_queue": None, "use_while_v1": True},
    "loops.for_loop": {"start": REQUIRED, "end": REQUIRED, "step": REQUIRED, "body": REQUIRED, "inputs": None},
    "loops.while_loop": {"condition": REQUIRED, "body": REQUIRED, "inputs": None, "maximum_iterations": None},
    "pipelining_ops.pipeline": PIPELINE,
    "pipelining_ops.PipelineStageOptions": {"convolution_options": None, "matmul_options": None, "slice_options": None},
    "pipelining_ops.OptimizerFunctionOutput": {"opt": REQUIRED, "loss": REQUIRED, "compute_gradients_args": None},
    "pipelining_ops.recomputation_checkpoint": {"tensors": REQUIRED, "name": None},
    "control_flow_ops.barrier": {"tensors": REQUIRED, "insert_barrier_for_gradients": False, "name": None},
    "dataset_benchmark.dataset_benchmark": {
        "dataset": REQUIRED,
        "number_of_epochs": REQUIRED,
        "elements_per_epochs": REQUIRED,
        "print_stats": True,
        "apply_debug_options": True,
        "do_memcpy": True,
    },
    "dataset_benchmark.infeed_benchmark": {
        "infeed_queue": REQUIRED,
        "number_of_epochs": REQUIRED,
        "elements_per_epochs": REQUIRED,
        "print_stats": True,
        "do_memcpy": True,
    },
    "data.ops.dataset_ops.BufferDataset": {"input_dataset": REQUIRED, "buffer_size": REQUIRED},
    "cross_replica_ops.cross_replica_sum": {"x": REQUIRED, "replica_group_size": None, "name": None},
    "cross_replica_ops.cross_replica_mean": {"x": REQUIRED, "replica_group_size": None, "name": None},
    "cross_replica_ops.assume_equal_across_replicas": {"tensors": REQUIRED, "inplace": False},
    "all_to_all_op.all_gather": {"x": REQUIRED, "replication_factor": REQUIRED, "name": None},
    "all_to_all_op.all_to_all": {
        "x": REQUIRED,
        "split_dimension": REQUIRED,
        "concat_dimension": REQUIRED,
        "number_of_replicas": REQUIRED,
        "name": None,
    },
    "reduce_scatter_op.reduce_scatter": {
        "x": REQUIRED,
        "replication_factor": REQUIRED,
        "op": "COLLECTIVE_OP_ADD",
        "name": None,
    },
    "replication_ops.replication_index": {"name": None},
    "embedding_ops.embedding_lookup": {"params": REQUIRED, "ids": REQUIRED, "name": None, "serialization_factor": 1},
    "embedding_ops.HostEmbeddingOptimizerSpec": {"learning_rate": REQUIRED, "optimizer_name": None},
    "embedding_ops.HostEmbeddingSGDGAOptimizerSpec": {"learning_rate": REQUIRED, "accumulation_factor": REQUIRED},
    "functional_ops.outlined_function": {
        "func": None,
        "unique_sharding": False,
        "keep_input_layouts": None,
        "name": None,
    },
    "image_ops.normalise_image": {
        "image": REQUIRED,
        "channel_offsets": REQUIRED,
        "channel_scales": REQUIRED,
        "scale": 1,
        "name": None,
    },
    "math_ops.segment_sum": {"data": REQUIRED, "segment_ids": REQUIRED, "num_segments": REQUIRED, "name": None},
    "math_ops.serialized_matmul": {
        "a": REQUIRED,
        "b": REQUIRED,
        "serialization_factor": REQUIRED,
        "serialization_dimension": REQUIRED,
        "transpose_a": False,
        "transpose_b": False,
        "name": None,
    },
    "nn_ops.gelu": {"x": REQUIRED, "approximate": True, "name": None},
    "nn_ops.hard_sigmoid": {"x": REQUIRED, "name": None},
    "nn_ops.swish": {"x": REQUIRED, "name": None},
    "nn_ops.multi_conv": {"func": None, "options": None},
    "nn_ops.ctc_loss_v2": {
        "labels": REQUIRED,
        "logits": REQUIRED,
        "label_length": REQUIRED,
        "logit_length": REQUIRED,
        "blank_index": REQUIRED,
        "out_dtype": None,
        "name": None,
    },
    "nn_ops.ctc_beam_search_decoder": {
        "logits": REQUIRED,
        "logits_lengths": REQUIRED,
        "beam_width": 100,
        "top_paths": 1,
        "blank_index": -1,
        "name": None,
    },
    "normalization_ops.group_norm": {**NORM, "groups": 2, "strided_channel_grouping": True},
    "normalization_ops.instance_norm": NORM,
    "normalization_ops.layer_norm": NORM,
    "rand_ops.dropout": {"x": REQUIRED, "rate": 0.5, "noise_shape": None, "seed": None, "name": None},
    "rnn_ops.PopnnLSTM": RECURRENT,
    "rnn_ops.PopnnDynamicLSTM": {**RECURRENT, "preserve_final_state": False},
    "rnn_ops.PopnnDynamicGRU": {**RECURRENT, "reset_after": False},
    "rnn_ops.PopnnGRU": {**RECURRENT, "reset_after": False},
    "rnn_ops.PopnnAUGRU": {**RECURRENT, "reset_after": False},
    "statistics_ops.histogram": {"inputs": REQUIRED, "levels": REQUIRED, "absolute_of_input": False},
    "cross_replica_optimizer.CrossReplicaOptimizer": {"opt": REQUIRED, "name": "CrossReplicaOptimizer"},
    "gradient_accumulation_optimizer.GradientAccumulationOptimizer": {
        "opt": REQUIRED,
        "num_mini_batches": REQUIRED,
        "verify_usage": True,
        "name": "GradientAccumulationOptimizer",
    },
    "gradient_accumulation_optimizer.GradientAccumulationOptimizerV2": {"opt": REQUIRED, **ACCUMULATION},
    "gradient_accumulation_optimizer.CrossReplicaGradientAccumulationOptimizerV2": {"opt": REQUIRED, **ACCUMULATION},
    "map_gradient_optimizer.MapGradientOptimizer": {
        "wrapped_optimizer": REQUIRED,
        "gradient_mapping_function": REQUIRED,
    },
    "automatic_loss_scaling_optimizer.AutomaticLossScalingOptimizer": SCALING,
}
KERAS: Dict[str, Dict[str, Any]] = {
    "FunctionalLayerPipelineStageAssignment": {"layer": REQUIRED, "node_index": REQUIRED, "pipeline_stage": None},
    "FunctionalNestedModelPipelineStageAssignment": {
        "nested_model": REQUIRED,
        "node_index": REQUIRED,
        "pipeline_stage_assignments": REQUIRED,
    },
    "ModelLayerPipelineStageAssignment": {"layer": REQUIRED, "node_index": REQUIRED, "pipeline_stage": None},
    "SequentialLayerPipelineStageAssignment": {"layer": REQUIRED, "pipeline_stage": None},
    "PipelineStage": {"stage": REQUIRED},
    "layers.CTCInferenceLayer": {"blank_index": 0, "beam_width": 100, "top_paths": 1},
    "layers.CTCPredictionsLayer": {"blank_index": 0, "beam_width": 100, "top_paths": 1},
    "layers.Dropout": {"rate": 0.5, "noise_shape": None, "seed": None},
    "layers.Embedding": {
        "input_dim": REQUIRED,
        "output_dim": REQUIRED,
        "embeddings_initializer": "uniform",
        "serialization_factor": 1,
    },
    "layers.SerialDense": {"units": REQUIRED, "serialization_factor": REQUIRED, "serialization_dimension": REQUIRED},
    "losses.CTCLoss": {"blank_index": 0, "from_logits": False},
    "optimizers.ALSOptimizer": SCALING,
    "optimizers.ALSOptimizerGradientAccumulationWrapper": {
        "als_optimizer": REQUIRED,
        **ACCUMULATION,
        "name": "ALSOptimizerGradientAccumulationWrapper",
    },
    "optimizers.CrossReplicaOptimizer": {"opt": REQUIRED, "name": "CrossReplicaOptimizer"},
    "optimizers.GradientAccumulationOptimizer": {"opt": REQUIRED, **ACCUMULATION},
    "extensions.ModelExtension.set_pipelining_options": {
        "gradient_accumulation_steps_per_replica": None,
        "device_mapping": None,
        "accumulate_outfeed": None,
    },
    "extensions.ModelExtension.set_gradient_accumulation_options": {"gradient_accumulation_steps_per_replica": None},
    "extensions.ModelExtension.set_asynchronous_callbacks": {"asynchronous": False},
    "extensions.ModelExtension.set_replication_options": {"replicated_metric_reduction_method": "NONE"},
    "extensions.ModelExtension.print_pipeline_stage_assignment_summary": {"line_length": None, "print_fn": None},
    "extensions.ModelExtension.set_pipeline_stage_assignment": {"pipeline_stage_assignment": REQUIRED},
}


def found(package: str, name: str) -> Any:
    """What a dotted name leads to, module by module and then attribute by attribute."""
    where: Any = importlib.import_module(package)
    for part in name.split("."):
        where = getattr(where, part)
    return where


def differences(own: Any, documented: Dict[str, Any]) -> Dict[str, Any]:
    """The arguments that do not exist, or that have another default; dtypes are compared by their names."""
    parameters = inspect.signature(own).parameters
    wrong = {}
    for name, default in documented.items():
        if name not in parameters:
            wrong[name] = "missing"
            continue
        given = parameters[name].default
        given = REQUIRED if given is inspect.Parameter.empty else getattr(given, "name", given)
        if given != default or type(given) is not type(default):
            wrong[name] = given
    return wrong


@pytest.mark.parametrize("name", IPU)
def test_a_function_has_its_arguments(ipu: Any, name: str) -> None:
    """Every documented argument of the package's functions and classes exists, with its default."""
    assert differences(found("tensorflow.python.ipu", name), IPU[name]) == {}


@pytest.mark.parametrize("name", KERAS)
def test_a_function_of_keras_has_its_arguments(tf: Any, ipu: Any, name: str) -> None:
    """Every documented argument of what ``keras.ipu`` has exists, with its default."""
    assert differences(found("keras.ipu", name), KERAS[name]) == {}
