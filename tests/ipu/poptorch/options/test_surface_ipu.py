"""The public names of PopTorch, one case each."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List

import pytest

from .options_table import reach


def words(text: str) -> List[str]:
    """The names in a text, which reads better than a column of quotes."""
    return text.split()


OPTIONS = words(
    "deviceIterations replicationFactor inputReplicaGrouping broadcastBuffers outputMode defaultOutputMode "
    "anchorTensor setExecutionStrategy setAvailableMemoryProportion autoRoundNumIPUs useIpuModel useIpuId "
    "useOfflineIpuTarget connectionType syncPattern randomSeed enableExecutableCaching enableStableNorm "
    "enableSyntheticData enableProfiling logCycleCount logDir maxRepeatLogs modelName showCompilationProgressBar "
    "relaxOptimizerAttributesChecks sourceLocationExcludes appendToLocationExcludes disableModuleNamescope "
    "updatableNamedBuffers loadFromFile from_json clone toDict anchorMode"
)
SUB_SETS = {
    "Training": (
        "gradientAccumulation accumulationAndReplicationReductionType "
        "setMeanAccumulationAndReplicationReductionStrategy setAutomaticLossScaling setConvolutionDithering"
    ),
    "Precision": (
        "enableFloatingPointExceptions enableStochasticRounding setPartialsType halfFloatCasting "
        "runningStatisticsAlwaysFloat"
    ),
    "TensorLocations": (
        "numIOTiles setActivationLocation setWeightLocation setOptimizerLocation setAccumulatorLocation"
    ),
    "Distributed": "disable setEnvVarNames configureProcessId",
    "_Popart": "set setEngineOptions setPatterns",
    "Jit": "traceModel",
}
EXECUTOR = words(
    "__call__ compile compileAndExport save loadExecutable destroy attachToDevice detachFromDevice isAttachedToDevice "
    "isCompiled copyWeightsToHost copyWeightsToHostIfNeeded copyWeightsToDevice copyNamedBuffersToDevice setOptimizer "
    "load_state_dict getTensorNames getAnchoredTensor cycleCount getPerfCounters "
    "getHostIpuLatency getComputeLatency getIpuHostLatency getLatency _debugGetPopartIR"
)
EXECUTOR_PROPERTIES = ("model", "options", "rng_state")
CLASSES = words(
    "Options TensorLocationSettings PoplarExecutor PipelinedExecution ShardedExecution SerialPhasedExecution "
    "ParallelPhasedExecution Stage Phase Block AutoStage Liveness DataLoader AsynchronousDataAccessor DataLoaderMode "
    "SharingStrategy CPU MultiConv NameScope Attribute ICustomArgParser Error RecoverableError UnrecoverableError "
    "options.ConfigFileError profiling.Channel optim.SGD optim.Adam optim.AdamW optim.RMSprop optim.LAMB "
    "optim.Optimizer optim.VariableAttributes"
)
FUNCTIONS = words(
    "trainingModel inferenceModel load BlockFunction removeBlocks identity_loss ipu_print_tensor for_loop cond nop "
    "dynamic_slice dynamic_update recomputationCheckpoint serializedMatMul set_available_memory set_overlap_for_input "
    "set_overlap_for_output custom_op ctc_beam_search_decoder fps nearest isRunningOnIpu ipuHardwareIsAvailable "
    "ipuHardwareVersion setLogLevel registerPreCompileHook registerPostCompileHook registerCustomArgParser module_repr "
    "createPoptorchError getIpuTensorId testing.allclose BeginBlock Block.start Block.useAutoId"
)
MODULES = ("enums", "ops", "options", "optim", "profiling", "testing")


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_there(poptorch: Any, name: str) -> None:
    """Each module of the package is an attribute of it."""
    assert inspect.ismodule(getattr(poptorch, name))


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_there(poptorch: Any, name: str) -> None:
    """Each public class is a class."""
    assert inspect.isclass(reach(poptorch, name))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_there(poptorch: Any, name: str) -> None:
    """Each public function can be called."""
    assert callable(reach(poptorch, name))


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_there(poptorch: Any, name: str) -> None:
    """Each option is a method of Options."""
    assert inspect.ismethod(getattr(poptorch.Options(), name))


@pytest.mark.parametrize("sub_set", sorted(SUB_SETS))
def test_a_sub_set_of_options_is_there(poptorch: Any, sub_set: str) -> None:
    """Each sub-set of options has its methods."""
    options = getattr(poptorch.Options(), sub_set)

    assert [name for name in SUB_SETS[sub_set].split() if not callable(getattr(options, name, None))] == []


@pytest.mark.parametrize("name", EXECUTOR)
def test_a_method_of_a_wrapped_model_is_there(poptorch: Any, name: str) -> None:
    """Each method of PoplarExecutor can be called."""
    assert callable(getattr(poptorch.PoplarExecutor, name))


@pytest.mark.parametrize("name", EXECUTOR_PROPERTIES)
def test_a_property_of_a_wrapped_model_is_there(poptorch: Any, name: str) -> None:
    """Each property of PoplarExecutor belongs to the class."""
    assert isinstance(inspect.getattr_static(poptorch.PoplarExecutor, name), property)


def test_every_name_can_be_imported_at_once(poptorch: Any) -> None:
    """A star import gives the wrappers, the options and the ops, and no name that is not there."""
    names: Dict[str, Any] = {}
    exec("from poptorch import *", names)

    assert {"Options", "trainingModel", "inferenceModel", "identity_loss", "DataLoader", "Block"} <= set(names)
