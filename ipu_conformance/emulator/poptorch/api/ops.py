"""``poptorch.ops``: the blocks, and the operations that PopTorch adds to torch's."""

from ipu_conformance.emulator.poptorch.compile.blocks import (
    BeginBlock,
    Block,
    BlockFunction,
    LegacyBeginBlockFn,
    removeBlocks,
)
from ipu_conformance.emulator.poptorch.ops.computed import dynamic_slice, dynamic_update, fps, nearest, serializedMatMul
from ipu_conformance.emulator.poptorch.ops.control_flow import cond, for_loop
from ipu_conformance.emulator.poptorch.ops.ctc import ctc_beam_search_decoder
from ipu_conformance.emulator.poptorch.ops.host_calls import CPU
from ipu_conformance.emulator.poptorch.ops.marked import (
    NameScope,
    custom_op,
    identity_loss,
    nop,
    recomputationCheckpoint,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from ipu_conformance.emulator.poptorch.ops.multiconv import MultiConv
from ipu_conformance.emulator.poptorch.ops.printing import ipu_print_tensor

__all__ = [
    "CPU",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "LegacyBeginBlockFn",
    "MultiConv",
    "NameScope",
    "cond",
    "ctc_beam_search_decoder",
    "custom_op",
    "dynamic_slice",
    "dynamic_update",
    "for_loop",
    "fps",
    "identity_loss",
    "ipu_print_tensor",
    "nearest",
    "nop",
    "recomputationCheckpoint",
    "removeBlocks",
    "serializedMatMul",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
]
