"""The operations that PopTorch adds to torch's."""

from ipu_conformance.emulator.poptorch.computed_ops import (
    dynamic_slice,
    dynamic_update,
    fps,
    nearest,
    serializedMatMul,
)
from ipu_conformance.emulator.poptorch.control_flow import cond, for_loop
from ipu_conformance.emulator.poptorch.ctc import ctc_beam_search_decoder
from ipu_conformance.emulator.poptorch.hardware import getIpuTensorId
from ipu_conformance.emulator.poptorch.host_calls import CPU
from ipu_conformance.emulator.poptorch.marked_ops import (
    Attribute,
    NameScope,
    custom_op,
    identity_loss,
    nop,
    recomputationCheckpoint,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from ipu_conformance.emulator.poptorch.multiconv import MultiConv
from ipu_conformance.emulator.poptorch.printing import ipu_print_tensor

__all__ = [
    "CPU",
    "Attribute",
    "MultiConv",
    "NameScope",
    "cond",
    "ctc_beam_search_decoder",
    "custom_op",
    "dynamic_slice",
    "dynamic_update",
    "for_loop",
    "fps",
    "getIpuTensorId",
    "identity_loss",
    "ipu_print_tensor",
    "nearest",
    "nop",
    "recomputationCheckpoint",
    "serializedMatMul",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
]
