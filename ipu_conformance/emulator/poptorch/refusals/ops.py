"""The operations that PopTorch adds to torch's."""

from __future__ import annotations

from ipu_conformance.emulator.faults import refuse
from ipu_conformance.emulator.poptorch.refusals import ERROR

MULTICONV_VALUES = refuse(
    "poptorch.multiconv-values",
    when=lambda name, value, convolutions: isinstance(value, tuple) and len(value) != convolutions,
    error=ERROR,
    sentence=lambda name, value, convolutions: (
        f"MultiConv.{name} was given {len(value)} values for {convolutions} convolutions: use one each, or a single one"
    ),
)
EMPTY_MULTICONV = refuse(
    "poptorch.empty-multiconv",
    when=lambda convolutions: not convolutions,
    error=ERROR,
    sentence="A poptorch.MultiConv block holds no convolution: put at least one inside, or remove the block",
)
NESTED_MULTICONV = refuse(
    "poptorch.nested-multiconv",
    when=lambda outer: outer is not None and outer[0] == "MultiConv",
    error=ERROR,
    sentence="A poptorch.MultiConv was opened inside another: close the first one",
)
LOOP_COUNT = refuse(
    "poptorch.loop-count",
    when=lambda count: not isinstance(count, int) or isinstance(count, bool),
    error=ERROR,
    sentence="The count {count!r} was given to poptorch.for_loop: use an integer constant",
)
NO_LOOP = refuse(
    "poptorch.no-loop",
    when=lambda count: count < 1,
    error=ERROR,
    sentence="The count {count} was given to poptorch.for_loop: use 1 or more",
)
RESULT_COUNT = refuse(
    "poptorch.result-count",
    when=lambda name, what, needed, returned: needed != returned,
    error=ERROR,
    sentence="A body of poptorch.{name} returned {returned} tensors: as many as {what}, {needed}, are needed",
)
REDUCTION = refuse(
    "poptorch.reduction",
    when=lambda reduction, known: reduction not in known,
    error=AssertionError,
    sentence=lambda reduction, known: (
        f"Unsupported reduction {reduction!r} of identity_loss: use one of {', '.join(known)}"
    ),
)
FLOAT_FORMAT = refuse(
    "poptorch.float-format",
    when=lambda float_format, known: float_format not in known,
    error=ERROR,
    sentence=lambda float_format, known: f"The float format {float_format!r} was given: use one of {', '.join(known)}",
)
MEMORY_PROPORTION = refuse(
    "poptorch.memory-proportion",
    when=lambda share: isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1,
    error=ERROR,
    sentence="The available memory proportion {share!r} was given: use a number from 0 to 1",
)
SLICE_SIZE = refuse(
    "poptorch.slice-size",
    when=lambda size, length, name: not isinstance(size, int) or not 1 <= size <= length,
    error=ERROR,
    sentence="The size {size!r} was given to poptorch.{name} for a dimension of {length}: use 1 to {length}",
)
SLICE_START = refuse(
    "poptorch.slice-start",
    when=lambda start, name: start.is_floating_point() or str(start.dtype) == "torch.bool",
    error=ERROR,
    sentence="The start of poptorch.{name} has type {start.dtype}: use an integer",
)
COMPUTED_SIZE = refuse(
    "poptorch.slice-of-computed-size",
    when=lambda start, stop: start is None or start is not stop,
    error=ERROR,
    sentence="The size of a slice depends on the value of a tensor, which is known on the device only: "
    "write x[start : start + size] with a constant size, or use poptorch.dynamic_slice",
)
PIECES = refuse(
    "poptorch.pieces",
    when=lambda factor, extent: not isinstance(factor, int) or factor < 1 or extent % factor,
    error=ERROR,
    sentence="The factor {factor!r} was given to poptorch.serializedMatMul for a dimension of {extent}: use a divisor",
)
FPS_RATIO = refuse(
    "poptorch.fps-ratio",
    when=lambda ratio: not 0 < ratio <= 1,
    error=ERROR,
    sentence="The ratio {ratio!r} was given to poptorch.fps: use a number above 0 and up to 1",
)
ONE_SET_OF_BATCHES = refuse(
    "poptorch.one-set-of-batches",
    when=lambda first, second: (first is None) != (second is None),
    error=ERROR,
    sentence="poptorch.nearest was given the batches of one set of points only: give both or neither",
)
CTC_LENGTHS = refuse(
    "poptorch.ctc-lengths",
    when=lambda lengths, batch: lengths != [batch],
    error=ERROR,
    sentence="Lengths of shape {lengths} were given for a batch of {batch}: use one each",
)
CTC_BLANK = refuse(
    "poptorch.ctc-blank",
    when=lambda blank, classes: not isinstance(blank, int) or not 0 <= blank < classes,
    error=ERROR,
    sentence="The blank {blank!r} was given for {classes} classes: use one of them",
)
CTC_TOP_PATHS = refuse(
    "poptorch.ctc-top-paths",
    when=lambda paths, width: not isinstance(paths, int) or not 1 <= paths <= width,
    error=ERROR,
    sentence="{paths!r} top paths were given for a beam width of {width}: use 1 to {width}",
)
OVERLAP_INPUT = refuse(
    "poptorch.overlap-input",
    when=lambda what, is_input: not is_input,
    error=ERROR,
    sentence="poptorch.set_overlap_for_input applied on {what}, which is not an input of the model",
)
OVERLAP_OUTPUT = refuse(
    "poptorch.overlap-output",
    when=lambda what, is_output: not is_output,
    error=ERROR,
    sentence="poptorch.set_overlap_for_output applied on {what}, which is not an output of the model",
)
TENSOR = refuse(
    "poptorch.tensor",
    when=lambda name, value, kind: not isinstance(value, kind),
    error=ERROR,
    sentence=lambda name, value, kind: f"{type(value).__name__} was given to poptorch.{name}: use a tensor",
)
TENSOR_LIST = refuse(
    "poptorch.tensor-list",
    when=lambda name, what, values, kind: (
        not isinstance(values, list) or not all(isinstance(value, kind) for value in values)
    ),
    error=ValueError,
    sentence=lambda name, what, values, kind: (
        f"The {what} of poptorch.{name} are {type(values).__name__}: use a list of tensors"
    ),
)
HOST_TENSOR = refuse(
    "poptorch.host-tensor",
    when=lambda tensor: True,
    error=ERROR,
    sentence=lambda tensor: (
        f"Expected an IPU tensor but got tensor(device={tensor.device}, shape={list(tensor.shape)}, "
        f'dtype={tensor.dtype}): register it as a buffer, or move it inside forward with tensor.to("ipu")'
    ),
)
UPSAMPLING = refuse(
    "poptorch.upsampling",
    when=lambda mode: mode in ("linear", "trilinear", "nearest-exact"),
    error=ERROR,
    sentence="The upsampling mode {mode!r} is not supported: use nearest, bilinear or bicubic",
)
SCOPE_NAME = refuse(
    "poptorch.scope-name",
    when=lambda name: not isinstance(name, str),
    error=AssertionError,
    sentence="{name!r} was given to poptorch.NameScope: use a string",
)
