"""Only the vendor's names can be reached through ``poptorch``."""

from __future__ import annotations

import importlib
import types
from typing import Any, Dict, List, Tuple

import pytest

from ipu_conformance.emulator import hook

OURS = "ipu_conformance"

STRATEGIES = "ParallelPhasedExecution Phase PipelinedExecution SerialPhasedExecution ShardedExecution Stage"
ENUMS = (
    "AnchorMode AutoStage CommGroupType ConnectionType DataLoaderMode HalfFloatCastingBehavior Liveness "
    "MatMulSerializationMode MeanReductionStrategy MultiConvPlanType OutputMode OverlapMode ReductionType "
    "SharingStrategy SyncPattern VariableRetrievalMode"
)
OPS = (
    "BeginBlock Block BlockFunction CPU LegacyBeginBlockFn MultiConv NameScope cond ctc_beam_search_decoder custom_op "
    "dynamic_slice dynamic_update for_loop fps identity_loss ipu_print_tensor nearest nop recomputationCheckpoint "
    "removeBlocks serializedMatMul set_available_memory set_overlap_for_input set_overlap_for_output"
)
OPTIONS = f"Attribute ConfigFileError Options TensorLocationSettings {STRATEGIES}"
VENDOR: Dict[str, str] = {
    "poptorch": (
        "AsynchronousDataAccessor DataLoader Error ICustomArgParser PoplarExecutor RecoverableError UnrecoverableError "
        "createPoptorchError getIpuTensorId inferenceModel ipuHardwareIsAvailable ipuHardwareVersion isRunningOnIpu "
        "load module_repr poptorchAtExit registerCustomArgParser registerGeometricCustomArgParsers "
        "registerPostCompileHook registerPreCompileHook setLogLevel "
        f"trainingModel enums ops optim options poptorch_core profiling testing {ENUMS} {OPS} {OPTIONS}"
    ),
    "poptorch.enums": ENUMS,
    "poptorch.ops": OPS,
    "poptorch.optim": "Adam AdamW LAMB Optimizer RMSprop SGD VariableAttributes",
    "poptorch.options": OPTIONS,
    "poptorch.poptorch_core": ("Error RecoverableError UnrecoverableError ipuHardwareIsAvailable ipuHardwareVersion"),
    "poptorch.profiling": "Channel",
    "poptorch.testing": "allclose",
}
"""The vendor's public modules, and the names of each that the emulator has."""

OUR_MODULES = ("faults", "log", "compile", "run", "data", "ir", "api", "options.values", "ops.marked")


@pytest.fixture
def _hooked(no_hook: None) -> None:
    """The vendor's names lead to the emulator."""
    hook.install("poptorch")


def _is_foreign(name: str, value: Any) -> bool:
    """Whether a value comes from Python, torch or another library: what a module of the vendor imports too."""
    if isinstance(value, types.ModuleType):
        return not value.__name__.startswith(OURS)
    home = getattr(value, "__module__", None)
    return name == "annotations" or (home is not None and not home.startswith(OURS))


def _reached(name: str) -> List[str]:
    """The names of ours that a module of the vendor leads to; a single leading underscore marks its private ones."""
    module = importlib.import_module(name)
    return sorted(
        each for each, value in vars(module).items() if not each.startswith("_") and not _is_foreign(each, value)
    )


@pytest.mark.usefixtures("_hooked")
@pytest.mark.parametrize("module", VENDOR)
def test_a_module_holds_the_vendor_s_names(module: str) -> None:
    """What is defined by the emulator and can be read from a module of the vendor is one of its names."""
    assert _reached(module) == sorted(VENDOR[module].split())


@pytest.mark.usefixtures("_hooked")
def test_no_module_of_ours_is_an_attribute() -> None:
    """Modules that can be reached, from attribute to attribute, are the vendor's."""
    waiting, reached = [("poptorch", importlib.import_module("poptorch"))], {}
    while waiting:
        path, module = waiting.pop()
        reached[path] = module.__name__
        below: List[Tuple[str, types.ModuleType]] = [
            (f"{path}.{name}", value)
            for name, value in vars(module).items()
            if isinstance(value, types.ModuleType) and value.__name__.startswith(OURS)
        ]
        waiting += [pair for pair in below if pair[0] not in reached]

    assert sorted(reached) == sorted(VENDOR)


@pytest.mark.usefixtures("_hooked")
@pytest.mark.parametrize("name", OUR_MODULES)
def test_a_module_of_ours_cannot_be_imported(name: str) -> None:
    """Rooms of the emulator have no name below the vendor's."""
    with pytest.raises(ImportError):
        importlib.import_module(f"poptorch.{name}")
    with pytest.raises(ImportError):
        exec(f"from poptorch import {name.rpartition('.')[2]}", {})
