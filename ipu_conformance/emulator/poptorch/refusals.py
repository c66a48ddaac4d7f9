"""What PopTorch refuses: a row for each of the vendor's rules, with the sentence that the user reads."""

from __future__ import annotations

from ipu_conformance.emulator.faults import refuse

ERROR = "ipu_conformance.emulator.poptorch.options.diagnostics.Error"
"""The vendor's own error; by name, because the options, where it is defined, refuse things too."""

# Options.

FROZEN = refuse(
    "poptorch.frozen-options",
    when=lambda frozen, name: frozen,
    error=AttributeError,
    sentence="Can't modify frozen Options: {name} is set after the options were used; clone them",
)
UNKNOWN_OPTION = refuse(
    "poptorch.unknown-option",
    when=lambda name, known: name not in known,
    error=AssertionError,
    sentence=lambda name, known: f"Invalid option {name}: must be one of {', '.join(sorted(known))}",
)
OPTION_TYPE = refuse(
    "poptorch.option-type",
    # A bool is an int to Python, but True device iterations are a mistake.
    when=lambda name, value, types: (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)),
    error=AssertionError,
    sentence=lambda name, value, types: (
        f"Invalid type {type(value).__name__} for option {name}: must be {' or '.join(kind.__name__ for kind in types)}"
    ),
)
OPTION_VALUE = refuse(
    "poptorch.option-value",
    when=lambda name, value, rule: not rule.holds(value),
    error=AssertionError,
    sentence="Invalid value {value!r} for option {name}: must be {rule.words}",
)

# Models and their device.

WRAPPED_TWICE = refuse(
    "poptorch.wrapped-twice",
    when=lambda wrapped: wrapped,
    error=RuntimeError,
    sentence="The model has already been wrapped in 'poptorch.trainingModel'. Call destroy() on the training model to "
    "unwrap it before wrapping it again.",
)
OFFLINE = refuse(
    "poptorch.offline",
    when=lambda connection: connection.name == "Never",
    error=AssertionError,
    sentence="Trying to run a model on an offline device (ConnectionType.Never): use ConnectionType.Always or OnDemand",
)
ATTACHED_TWICE = refuse(
    "poptorch.attached-twice",
    when=lambda attached: attached,
    error=ERROR,
    sentence="Device is already attached",
)
NOT_ATTACHED = refuse(
    "poptorch.not-attached",
    when=lambda attached: not attached,
    error=ERROR,
    sentence="Device is not attached",
)
OTHER_EXECUTABLE = refuse(
    "poptorch.other-executable",
    when=lambda filename, compiled, saved: compiled != saved,
    error=ERROR,
    sentence="{filename} holds the executable of another model or of other options: export it again",
)
SHARED_BUFFER = refuse(
    "poptorch.shared-buffer",
    when=lambda buffers, replicas, shared: buffers and replicas > 1 and shared,
    error=ERROR,
    sentence="The buffer {buffers[0]} is updated by the model, which runs in {replicas} replicas that would hold "
    "different values: set poptorch.Options().broadcastBuffers(False) to let each replica have its own",
)

# Inputs, losses and outputs.

ZERO_SIZED = refuse(
    "poptorch.zero-sized",
    when=lambda what, shape: 0 in shape,
    error=ERROR,
    sentence="Zero-sized tensors are not supported: {what} has the shape {shape}",
)
NO_LOSS = refuse(
    "poptorch.no-loss",
    when=lambda losses: not losses,
    error=ERROR,
    sentence="Couldn't find a loss in graph! Compute one of torch's losses in the model, or mark the final loss with "
    "poptorch.identity_loss",
)
TWO_LOSSES = refuse(
    "poptorch.two-losses",
    when=lambda losses: len(losses) > 1,
    error=ERROR,
    sentence=lambda losses: (
        f"Multiple independent losses found in graph: {', '.join(loss.name for loss in losses)}. Please specify which "
        "loss to use with poptorch.identity_loss(loss, reduction='none')"
    ),
)
BACKWARD = refuse(
    "poptorch.backward",
    when=lambda: True,
    error=ERROR,
    sentence="backward() was called on an output of a model on the device: a training model runs its backward pass "
    "whenever it is called; for an inference model, which has none, use poptorch.trainingModel",
)

# Placement.

OUTSIDE_BLOCKS = refuse(
    "poptorch.outside-blocks",
    when=lambda outside, called: outside,
    error=ERROR,
    sentence=lambda outside, called: (
        f"No active Block: {called()} is outside of every block; once a model has closed a poptorch.Block, all of its "
        "operations must be in one"
    ),
)
PHASE_PARITY = refuse(
    "poptorch.phase-parity",
    when=lambda block, phase, ipu: ipu % 2 != phase % 2,
    error=ERROR,
    sentence="The block {block!r} of phase {phase} is on IPU {ipu}: with ParallelPhasedExecution even phases run on "
    "even IPUs and odd phases on odd IPUs",
)
PHASE_ORDER = refuse(
    "poptorch.phase-order",
    when=lambda name, phase, before: phase < before,
    error=ERROR,
    sentence="{name} of phase {phase} is called after phase {before}: a model calls its phases in order",
)
INFERENCE_ONLY = refuse(
    "poptorch.inference-only",
    when=lambda name, region: region,
    error=ERROR,
    sentence="poptorch.{region[0]} is only supported in inference models: {name} is part of one",
)
MULTICONV_VALUES = refuse(
    "poptorch.multiconv-values",
    when=lambda name, value, convolutions: isinstance(value, tuple) and len(value) != convolutions,
    error=ERROR,
    sentence=lambda name, value, convolutions: (
        f"MultiConv.{name} was given {len(value)} values for {convolutions} convolutions: use one each, or a single one"
    ),
)

# Optimizers.

AMSGRAD = refuse(
    "poptorch.amsgrad",
    when=lambda amsgrad: amsgrad,
    error=ValueError,
    sentence="amsgrad is True: the device has no AMSGrad, use False",
)
UNKNOWN_ATTRIBUTE = refuse(
    "poptorch.unknown-attribute",
    when=lambda name, known: name not in known,
    error=AssertionError,
    sentence=lambda name, known: f"Attribute {name} cannot be marked: choose one of {', '.join(known)}",
)
ACCUMULATION_TYPE = refuse(
    "poptorch.accumulation-type",
    when=lambda name, value, types: value not in types,
    error=AssertionError,
    sentence="{name} is {value}: accumulation types must be either torch.float32 or torch.float16",
)
LATE_RUNNING_MEAN = refuse(
    "poptorch.late-running-mean",
    when=lambda before, now: now and not before,
    error=ValueError,
    sentence="The new optimizer needs the mean reduction strategy Running, but the model is already compiled with "
    "Post: set this optimizer before compiling, or set the strategy in the options",
)
OTHER_OPTIMIZER = refuse(
    "poptorch.other-optimizer",
    when=lambda before, now: before.kind != now.kind or len(before.groups) != len(now.groups),
    error=ERROR,
    sentence=lambda before, now: (
        f"The model is compiled with {before.kind} and {len(before.groups)} groups, the new optimizer is {now.kind} "
        f"with {len(now.groups)}: use the same kind of optimizer and the same groups"
    ),
)
CONSTANT_CHANGED = refuse(
    "poptorch.constant-changed",
    when=lambda name, where, before, now: before != now,
    error=ERROR,
    sentence="The attribute {name}{where} is compiled in as the constant {before} and cannot become {now}: mark it as "
    "variable, or pass it explicitly, before compiling",
)
