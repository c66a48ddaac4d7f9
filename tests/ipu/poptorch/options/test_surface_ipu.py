"""The public names of PopTorch, one case each."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Sequence, Tuple

import pytest

from ipu_conformance import check

from . import options_table

words = str.split

OPTIONS = (
    *map(str, options_table.OPTIONS),
    *words(
        "defaultOutputMode anchorTensor disableModuleNamescope loadFromFile from_json clone toDict anchorMode "
        "Precision.halfFloatCasting Precision.runningStatisticsAlwaysFloat Distributed.disable "
        "Distributed.setEnvVarNames Distributed.configureProcessId _Popart.set Jit.traceModel"
    ),
)
EXECUTOR = words(
    "__call__ compile compileAndExport save loadExecutable destroy attachToDevice detachFromDevice isAttachedToDevice "
    "isCompiled copyWeightsToHost copyWeightsToHostIfNeeded copyWeightsToDevice copyNamedBuffersToDevice setOptimizer "
    "load_state_dict getTensorNames getAnchoredTensor cycleCount getPerfCounters "
    "getHostIpuLatency getComputeLatency getIpuHostLatency getLatency _debugGetPopartIR"
)
CLASSES = words(
    "Options TensorLocationSettings PoplarExecutor PipelinedExecution ShardedExecution SerialPhasedExecution "
    "ParallelPhasedExecution Stage Phase Block AutoStage Liveness DataLoader AsynchronousDataAccessor DataLoaderMode "
    "SharingStrategy CPU MultiConv NameScope Attribute ICustomArgParser Error RecoverableError UnrecoverableError "
    "options.ConfigFileError profiling.Channel optim.SGD optim.Adam optim.AdamW optim.RMSprop optim.LAMB "
    "optim.Optimizer optim.VariableAttributes LegacyBeginBlockFn poptorch_core.Error poptorch_core.RecoverableError "
    "poptorch_core.UnrecoverableError"
)
FUNCTIONS = words(
    "trainingModel inferenceModel load BlockFunction removeBlocks identity_loss ipu_print_tensor for_loop cond nop "
    "dynamic_slice dynamic_update recomputationCheckpoint serializedMatMul set_available_memory set_overlap_for_input "
    "set_overlap_for_output custom_op ctc_beam_search_decoder fps nearest isRunningOnIpu ipuHardwareIsAvailable "
    "ipuHardwareVersion setLogLevel registerPreCompileHook registerPostCompileHook registerCustomArgParser module_repr "
    "createPoptorchError getIpuTensorId testing.allclose BeginBlock Block.start Block.useAutoId poptorchAtExit "
    "registerGeometricCustomArgParsers CPU.registerPersistentData optim.Optimizer.get_state_dict "
    "optim.Optimizer.set_state_dict optim.Optimizer.has_state"
)
KINDS: Dict[str, Tuple[Callable[[Any], bool], str, Sequence[str]]] = {
    "module": (inspect.ismodule, "", ("enums", "ops", "options", "optim", "profiling", "testing", "poptorch_core")),
    "class": (inspect.isclass, "", CLASSES),
    "function": (callable, "", FUNCTIONS),
    "option": (inspect.ismethod, "Options()", OPTIONS),
    "method": (callable, "PoplarExecutor", EXECUTOR),
    "property": (lambda value: isinstance(value, property), "PoplarExecutor", ("model", "options", "rng_state")),
}
"""By kind: what tells it, what the names belong to, and the names."""


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, row in KINDS.items() for name in row[2]])
def test_a_name_is_there(poptorch: Any, kind: str, name: str) -> None:
    """Each public name stands for what it is documented to be."""
    is_kind, owner, _ = KINDS[kind]
    value = {"": poptorch, "Options()": poptorch.Options(), "PoplarExecutor": poptorch.PoplarExecutor}[owner]
    for part in name.split("."):
        value = getattr(value, part, None)

    check.holds(is_kind(value), f"{owner or 'poptorch'}.{name} is {value!r}, which is no {kind}.")


def test_every_name_can_be_imported_at_once(poptorch: Any) -> None:
    """A star import gives the wrappers, the options and the ops, and no name that is not there."""
    missing = [name for name in getattr(poptorch, "__all__", ()) if not hasattr(poptorch, name)]
    check.equal(actual=missing, expected=[], what="the list of names that are promised and missing")
    names: Dict[str, Any] = {}
    exec("from poptorch import *", names)

    for name in ("Options", "trainingModel", "inferenceModel", "identity_loss", "DataLoader", "Block"):
        check.contains(actual=names, expected=name, what="what a star import gives")
