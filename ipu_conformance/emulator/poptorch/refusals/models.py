"""Models on their device: wrapping, compiling, attaching, what goes in and what comes out."""

from __future__ import annotations

import math

from ipu_conformance.emulator.faults import refuse
from ipu_conformance.emulator.poptorch.refusals import ERROR

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
ATTACHED_OFFLINE = refuse(
    "poptorch.attached-offline",
    when=lambda connection: connection.name == "Never",
    error=AssertionError,
    sentence="Trying to attach to an offline device (ConnectionType.Never): use ConnectionType.Always or OnDemand",
)
OPTIMIZER_OF_INFERENCE = refuse(
    "poptorch.optimizer-of-inference",
    when=lambda training, optimizer: optimizer is not None and not training,
    error=AssertionError,
    sentence="Optimizer should be None for inference: use poptorch.trainingModel to update weights",
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
EXPORTED_ALONE = refuse(
    "poptorch.exported-alone",
    when=lambda filename, model: model is None,
    error=AssertionError,
    sentence="{filename} was exported with export_model=False: wrap the model and use loadExecutable",
)
ACCUMULATED_INFERENCE = refuse(
    "poptorch.accumulated-inference",
    when=lambda accumulation: accumulation != 1,
    error=ERROR,
    sentence="You must set Training.gradientAccumulation to 1 for an inference model: it is {accumulation}; use "
    "deviceIterations to run several micro-batches",
)
BUFFER_TYPE = refuse(
    "poptorch.buffer-type",
    when=lambda buffer, known: type(buffer) not in known,
    error=ERROR,
    sentence=lambda buffer, known: f"All buffers must be an instance of torch.Tensor, not of {type(buffer).__name__}",
)
NO_NAMED_BUFFERS = refuse(
    "poptorch.no-named-buffers",
    when=lambda names: not names,
    error=ERROR,
    sentence="No named buffers are specified: list them with poptorch.Options().updatableNamedBuffers",
)
UNKNOWN_BUFFER = refuse(
    "poptorch.unknown-buffer",
    when=lambda name, known: name not in known,
    error=ERROR,
    sentence=lambda name, known: f"{name} is not a buffer of the model: its buffers are {', '.join(sorted(known))}",
)
CHANGED_BUFFER = refuse(
    "poptorch.changed-buffer",
    when=lambda name, before, now: before != now,
    error=ERROR,
    sentence="The buffer {name} has the shape {now} and was compiled with {before}: a copy keeps the shape",
)
CYCLES_NOT_LOGGED = refuse(
    "poptorch.cycles-not-logged",
    when=lambda logged: not logged,
    error=ERROR,
    sentence="Cycle count logging is disabled. Please set option logCycleCount to True to enable.",
)

ZERO_SIZED = refuse(
    "poptorch.zero-sized",
    when=lambda what, shape: 0 in shape,
    error=ERROR,
    sentence="Zero-sized tensors are not supported: {what} has the shape {shape}",
)
INPUT_TYPE = refuse(
    "poptorch.input-type",
    when=lambda dtype: dtype.is_complex,
    error=ERROR,
    sentence="Unsupported tensor input type from pytorch: {dtype}; use a real one",
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
NOTHING_TRACKED = refuse(
    "poptorch.nothing-tracked",
    when=lambda tracked: not tracked,
    error=ERROR,
    sentence="Automatic loss scaling looks at the gradients of matrix products and convolutions, and No tracked "
    "tensors were found: turn it off for this model",
)
BACKWARD = refuse(
    "poptorch.backward",
    when=lambda: True,
    error=ERROR,
    sentence="backward() was called on an output of a model on the device: a training model runs its backward pass "
    "whenever it is called; for an inference model, which has none, use poptorch.trainingModel",
)
TOO_MANY_ARGUMENTS = refuse(
    "poptorch.too-many-arguments",
    when=lambda names, number: number > len(names),
    error=AssertionError,
    sentence=lambda names, number: (f"Too many arguments provided: expected {names} ({len(names)}) but got {number}"),
)
PASSED_TWICE = refuse(
    "poptorch.passed-twice",
    when=lambda names: names,
    error=AssertionError,
    sentence=lambda names: f"Parameter {names[0]} was passed more than once: pass it by position or by name",
)
LOSS_SHAPE = refuse(
    "poptorch.loss-shape",
    when=lambda shape: math.prod(shape) != 1,
    error=ERROR,
    sentence="The final loss has the shape {shape}: reduce it to a single value",
)
UNKNOWN_TENSOR = refuse(
    "poptorch.unknown-tensor",
    when=lambda name, known: name not in known,
    error=ERROR,
    sentence="No tensor is named {name}: getTensorNames() of a compiled model lists them",
)
UNSEEDED_SHUFFLE = refuse(
    "poptorch.unseeded-shuffle",
    when=lambda shuffle, seed: shuffle and seed is None,
    error=AssertionError,
    sentence="shuffle=True in several processes needs Options.randomSeed: all must draw the same order",
)
DISTRIBUTED_STREAM = refuse(
    "poptorch.distributed-stream",
    when=lambda iterable: iterable,
    error=AssertionError,
    sentence="auto_distributed_partitioning does not support an IterableDataset: give each process its own part and "
    "set auto_distributed_partitioning=False",
)
DISTRIBUTED_BATCHES = refuse(
    "poptorch.distributed-batches",
    when=lambda batch_size: batch_size is None,
    error=AssertionError,
    sentence="batch_size=None is not allowed when using auto_distributed_partitioning: set a size, or "
    "auto_distributed_partitioning=False",
)
REBATCHED_SIZE = refuse(
    "poptorch.rebatched-size",
    when=lambda size: size is not None and size <= 1,
    error=AssertionError,
    sentence="rebatched_size={size} was given: use 2 or more, or None",
)
REBATCHED_TWICE = refuse(
    "poptorch.rebatched-twice",
    when=lambda async_options: "rebatched_size" in async_options,
    error=AssertionError,
    sentence="rebatched_size was given in async_options: use DataLoaderMode.AsyncRebatched, which sets it",
)
