"""The vendor's modules: every way of importing them gives the same objects."""

from __future__ import annotations

import importlib
import operator
import sys
from typing import Any

import pytest

from ipu_conformance import check


def test_the_package_is_an_attribute_of_tensorflow(ipu: Any) -> None:
    """``from tensorflow.python import ipu`` gives the package."""
    python = importlib.import_module("tensorflow.python")

    check.equal(actual=python.ipu, expected=ipu, what="tensorflow.python.ipu")


def test_what_does_not_exist_cannot_be_imported(ipu: Any) -> None:
    """An unknown name of the package is an AttributeError, and an unknown module a ModuleNotFoundError."""
    with check.raises(AttributeError, match="no_such_module", what="an unknown name of the package"):
        _ = ipu.no_such_module
    with check.raises(ModuleNotFoundError, match="no_such_module", what="the import of an unknown module"):
        importlib.import_module("tensorflow.python.ipu.no_such_module")


COVERED = (
    "config serving embedded_runtime application_compile_op dataset_benchmark dataset_extractor data.ops.dataset_ops "
    "distributed.popdist_strategy ipu_multi_worker_strategy ipu_compiler ipu_infeed_queue ipu_outfeed_queue scopes "
    "sharding pipelining_ops gradient_accumulation control_flow_ops cross_replica_ops all_to_all_op reduce_scatter_op "
    "within_replica_ops replication_ops custom_ops functional_ops image_ops internal_ops math_ops nn_ops "
    "normalization_ops rand_ops slicing_ops statistics_ops cross_replica_optimizer sharded_optimizer"
)
"""The modules whose names are all in the vendor's surface (test_signatures_ipu.py)."""

NAMES = {
    **dict.fromkeys(COVERED.split(), ""),
    "ipu_strategy": "IPUStrategy",
    "utils": "configure_ipu_system get_ipu_config reset_ipu_configuration DeviceConnectionType SelectionOrder "
    "SyntheticDataCategory",
    "distributed": "allgather allreduce broadcast",
    "loops": "for_loop",
    "autoshard": "automatic_sharding ipu_autoshard",
    "embedding_ops": "HostEmbeddingScope",
    "rnn_ops": "PopnnAUGRU PopnnDynamicGRU PopnnDynamicLSTM PopnnGRU PopnnLSTM",
    "summary_ops": "get_ipu_reports ipu_compile_summary",
    "gradient_accumulation_optimizer": "GradientAccumulationReductionMethod",
    "map_gradient_optimizer": "MapGradientOptimizerInvertedChaining",
    "automatic_loss_scaling_optimizer": "AutomaticLossScalingOptimizer",
    "optimizers": "AutomaticLossScalingOptimizer CrossReplicaGradientAccumulationOptimizer "
    "CrossReplicaGradientAccumulationOptimizerV2 CrossReplicaOptimizer GradientAccumulationOptimizer "
    "GradientAccumulationOptimizerV2 GradientAccumulationReductionMethod IpuOptimizer MapGradientOptimizer "
    "MapGradientOptimizerInvertedChaining ShardedOptimizer",
}
"""The names of each module beside those of the surface."""

KERAS_NAMES = {
    "ipu": "FunctionalLayerPipelineStageAssignment FunctionalNestedModelPipelineStageAssignment "
    "ModelLayerPipelineStageAssignment NestedModelPipelineStageAssignment PipelineStage "
    "ReplicatedMetricReductionMethod SequentialLayerPipelineStageAssignment "
    "SequentialNestedModelPipelineStageAssignment extensions layers losses optimizers",
    "ipu.extensions": "FunctionalExtension FunctionalLayerPipelineStageAssignment "
    "FunctionalNestedModelPipelineStageAssignment ModelExtension ModelLayerPipelineStageAssignment "
    "NestedModelPipelineStageAssignment PipelineStage ReplicatedMetricReductionMethod SequentialExtension "
    "SequentialLayerPipelineStageAssignment SequentialNestedModelPipelineStageAssignment",
    "ipu.layers": "AssumeEqualAcrossReplicas CTCInferenceLayer CTCPredictionsLayer CaptureActivationGradients "
    "CaptureUpstreamGradients Dropout EffectiveTransformer Embedding GRU GroupNorm GroupNormalization InstanceNorm "
    "InstanceNormalization LSTM LayerNorm LayerNormalization PopnnGRU PopnnLSTM RecomputationCheckpoint SerialDense",
    "ipu.losses": "CTCLoss",
    "ipu.optimizers": "ALSOptimizer ALSOptimizerGradientAccumulationWrapper CrossReplicaOptimizer "
    "GradientAccumulationOptimizer IpuOptimizer MapGradientOptimizer",
}
"""The names of each module of ``keras.ipu``."""


@pytest.mark.parametrize("module", [*NAMES, *KERAS_NAMES])
def test_a_module_has_its_names(tf: Any, ipu: Any, module: str) -> None:
    """Every documented name of a module exists and is found by dir, and the module is an attribute of the package."""
    package, names = ("keras", KERAS_NAMES) if module in KERAS_NAMES else ("tensorflow.python.ipu", NAMES)
    imported = importlib.import_module(f"{package}.{module}")

    missing = [name for name in names[module].split() if not hasattr(imported, name) or name not in dir(imported)]
    check.equal(actual=missing, expected=[], what=f"the names that {module} does not have or list")
    if package != "keras":
        check.equal(actual=operator.attrgetter(module)(ipu), expected=imported, what=f"ipu.{module}")
        check.contains(actual=dir(ipu), expected=module.partition(".")[0], what="dir(ipu)")


@pytest.mark.parametrize(
    "line",
    [
        "from tensorflow.python import ipu; ipu.utils.reset_ipu_configuration()",
        "from tensorflow.python.ipu import utils, ipu_compiler, loops, scopes",
        "from tensorflow.python.ipu.config import IPUConfig, DeviceConnectionType",
        "from tensorflow.python.ipu.ipu_strategy import IPUStrategyV1 as Strategy",
        "from tensorflow.python.ipu.ops import nn_ops, pipelining_ops",
        "from tensorflow.python.ipu.ops.pipelining_ops import PipelineSchedule",
        "from tensorflow.python.ipu.optimizers import CrossReplicaOptimizer",
        "from tensorflow.python.ipu.optimizers import cross_replica_optimizer",
        "from tensorflow.python.ipu.keras import layers",
        "from tensorflow.python.ipu.keras.layers import LSTM",
        "from tensorflow.python.ipu.horovod import popdist_strategy",
        "import tensorflow.python.ipu.loops as loops; loops.repeat",
        "import tensorflow.python.ipu.utils",
        "import tensorflow.python.ipu as ipu; ipu.ipu_infeed_queue.IPUInfeedQueue",
        "import keras; keras.ipu.PipelineStage",
        "from keras import ipu; ipu.layers.Dropout",
        "from keras.ipu import layers, losses, optimizers, extensions, PipelineStage",
        "from keras.ipu.layers import GroupNormalization",
        "from keras.ipu.optimizers import ALSOptimizer",
        "import tensorflow as tf; tf.keras.ipu.PipelineStage",
        "from tensorflow import keras; keras.ipu.SequentialLayerPipelineStageAssignment",
        "from tensorflow.keras.ipu import PipelineStage",
    ],
)
def test_programs_import_in_their_own_ways(ipu: Any, line: str) -> None:
    """Programs import the package in any of these ways."""
    with check.accepted(line):
        exec(line, {})


@pytest.mark.parametrize("name", ["configure_ipu_system", "get_ipu_config", "reset_ipu_configuration"])
def test_configurations_are_put_in_force_by_either_module(ipu: Any, name: str) -> None:
    """The functions of a configuration are the same in ``ipu.config`` and in ``ipu.utils``."""
    check.equal(actual=getattr(ipu.config, name), expected=getattr(ipu.utils, name), what=f"ipu.config.{name}")


@pytest.mark.parametrize("keras", ["keras", "tensorflow.keras"])
def test_keras_has_a_module_of_its_own(tf: Any, ipu: Any, keras: str) -> None:
    """``keras.ipu`` is the same under every name of Keras, as an attribute and as an import."""
    module = importlib.import_module(keras)

    modules = [module.ipu, importlib.import_module(f"{keras}.ipu")]
    check.equal(actual=modules, expected=[tf.keras.ipu] * 2, what=f"{keras}.ipu as an attribute and as an import")


COMPILED = (
    "utils.export_dataset_to_file utils.export_inputs_to_file embedded_runtime.embedded_runtime_start "
    "embedded_runtime.embedded_runtime_call embedded_runtime.RuntimeContext "
    "application_compile_op.experimental_application_compile_op dataset_extractor.dataset_extractor "
    "custom_ops.cpu_user_operation custom_ops.precompiled_user_op summary_ops.get_ipu_reports "
    "summary_ops.ipu_compile_summary"
)


@pytest.mark.emulator
@pytest.mark.parametrize("name", COMPILED.split())
def test_what_needs_the_compiler_is_refused(ipu: Any, name: str) -> None:
    """What only the vendor's compiler or runtime can do is refused by name, with any arguments."""
    with check.raises(NotImplementedError, match=f"{name.rpartition('.')[2]} is not available", what=name):
        operator.attrgetter(name)(ipu)("anything", some="thing")


@pytest.mark.parametrize(
    ("name", "module"), [("outlined_function", "ops.functional_ops"), ("layers", "keras"), ("losses", "keras")],
    ids=["outlined_function", "layers", "losses"],
)  # fmt: skip
def test_the_package_has_what_it_imports(ipu: Any, name: str, module: str) -> None:
    """A function and two modules are attributes of the package, which imports them (``tensorflow/python/ipu``)."""
    inner = getattr(importlib.import_module(f"tensorflow.python.ipu.{module}"), name)

    check.equal(actual=getattr(ipu, name, None), expected=inner, what=f"ipu.{name}")


GRADIENTS = (
    "all_to_all_op", "control_flow_ops", "cross_replica_ops", "embedding_ops", "functional_ops", "internal_ops",
    "nn_ops", "normalization_ops", "pipelining_ops", "rand_ops", "rnn_ops", "slicing_ops", "within_replica_ops",
)  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_can_be_imported(ipu: Any, name: str) -> None:
    """Programs import a module of gradients beside the operations, so that they are registered."""
    module = f"tensorflow.python.ipu.ops.{name}_grad"
    sys.modules.pop(module, None)

    with check.accepted(f"the import of {module}"):
        importlib.import_module(module)


def test_what_is_refused_can_be_named(ipu: Any) -> None:
    """A class that is not available can still be used in isinstance."""
    known = isinstance(3, ipu.embedded_runtime.RuntimeContext)

    check.equal(actual=known, expected=False, what="whether 3 is a RuntimeContext")


def test_tables_on_the_host_have_specs(ipu: Any) -> None:
    """A table on the host has an optimizer specification with a learning rate."""
    specs = ipu.embedding_ops
    accumulated = specs.HostEmbeddingSGDGAOptimizerSpec(learning_rate=0.25, accumulation_factor=4)

    check.instance(actual=accumulated, expected=specs.HostEmbeddingOptimizerSpec, what="a specification of SGD")
    rates = [spec.get_learning_rate() for spec in (specs.HostEmbeddingOptimizerSpec(0.5), accumulated)]
    check.equal(actual=rates, expected=[0.5, 0.25], what="the learning rates")
