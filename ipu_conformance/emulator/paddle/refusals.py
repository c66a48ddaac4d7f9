"""What an IPU build of Paddle refuses: options, strategies, optimizers, ops, runs and requests.

The sentences are those of the vendor's build where it has one, and the emulator's own where it says less.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence, Tuple

from ipu_conformance.emulator.faults import refuse
from ipu_conformance.emulator.paddle.compile.options import (
    COLLECTIVE_KEYS,
    COLLECTIVES,
    CUSTOM_OP_KEYS,
    LOCATION_KEYS,
    LOCATIONS,
    Option,
)
from ipu_conformance.emulator.paddle.errors import (
    InvalidArgument,
    NotFound,
    PopartError,
    PreconditionNotMet,
    Unavailable,
    UncastableError,
    Unimplemented,
)

_CUSTOM_OP_ERROR = "ipu_conformance.emulator.paddle.compile.custom_ops.CustomOpError"

# Options of a strategy

UNKNOWN_OPTION = refuse(
    "paddle.unknown-option",
    when=lambda name, kind, known: name not in known,
    error=InvalidArgument,
    sentence="Cannot find option: {name}, type: {kind} when setting IpuStrategy options",
)
OPTION_TYPE = refuse(
    "paddle.option-type",
    when=lambda name, kind, declared: kind != declared,
    error=InvalidArgument,
    sentence="Cannot find option: {name}, type: {kind} when setting IpuStrategy options",
)
OPTION_VALUE = refuse(
    "paddle.option-value",
    when=lambda name, value: not isinstance(value, (bool, int, float, str, list, set, dict)),
    error=InvalidArgument,
    sentence=lambda name, value: (
        f"Invalid IpuStrategy option value type: {type(value)}, please check input value for option: {name}"
    ),
)
UNREADABLE_OPTION = refuse(
    "paddle.unreadable-option",
    when=lambda name, known, set_only: name not in known,
    error=InvalidArgument,
    sentence=lambda name, known, set_only: (
        f"Cannot find option: {name} when getting IpuStrategy options"
        f"{', which can only be set' if name in set_only else ''}"
    ),
)


def _out_of_range(option: Option, number: int) -> str:
    allowed = ", ".join(f"{index} ({member})" for index, member in enumerate(option.members))
    return f"Value for {option.enumeration} out of range: option {option.name} is {number}, and may be {allowed}"


ENUMERATION = refuse(
    "paddle.enumeration",
    when=lambda option, number: option.members and number >= len(option.members),
    error=InvalidArgument,
    sentence=_out_of_range,
)
UINT64 = refuse(
    "paddle.uint64",
    when=lambda name, value: not isinstance(value, int) or not 0 <= value < 2**64,
    error=UncastableError,
    sentence="Unable to cast {value!r} for option {name}: give a whole number from 0 to 2**64 - 1",
)
ENTRY = refuse(
    "paddle.entry",
    when=lambda name, entry: not isinstance(entry, (str, int)),
    error=Unimplemented,
    sentence=lambda name, entry: f"Failed to convert type: {type(entry)} when set IpuStrategy option: {name}",
)
CUSTOM_OP_KEY = refuse(
    "paddle.custom-op-key",
    when=lambda key: key not in CUSTOM_OP_KEYS,
    error=InvalidArgument,
    sentence=lambda key: f"Invalid argument, key must be one of {', '.join(CUSTOM_OP_KEYS)}, but received {key}",
)


def _unknown_keys(keys: Sequence[Any]) -> Sequence[Any]:
    return [key for key in keys if key not in LOCATION_KEYS]


def _no_location(name: str, keys: Sequence[Any]) -> str:
    if name not in LOCATIONS:
        return f"Unknown tensor location: {name}, it may be {', '.join(LOCATIONS)}"
    return f"Unknown option {_unknown_keys(keys)[0]} of {name}, it may be {', '.join(LOCATION_KEYS)}"


TENSOR_LOCATION = refuse(
    "paddle.tensor-location",
    when=lambda name, keys: name not in LOCATIONS or _unknown_keys(keys),
    error=InvalidArgument,
    sentence=_no_location,
)


def _unknown_collectives(keys: Sequence[Any]) -> Sequence[Any]:
    return [key for key in keys if key not in COLLECTIVE_KEYS]


COLLECTIVE = refuse(
    "paddle.collective",
    when=_unknown_collectives,
    error=InvalidArgument,
    sentence=lambda keys: (
        f"Unknown option {_unknown_collectives(keys)[0]} of {COLLECTIVES}, it may be {', '.join(COLLECTIVE_KEYS)}"
    ),
)

# Strategies

COUNT = refuse(
    "paddle.count",
    when=lambda name, count: count < 1,
    error=InvalidArgument,
    sentence="The option {name} is {count}: set it to 1 or more",
)
PROPORTION = refuse(
    "paddle.proportion",
    when=lambda proportion: not 0.0 <= proportion <= 1.0,
    error=InvalidArgument,
    sentence="available_memory_proportion {proportion} is invalid, which should be set between 0.0 and 1.0",
)
ATTACHED = refuse(
    "paddle.attached",
    when=lambda wanted, there, model: wanted > there and not model,
    error=Unavailable,
    sentence="Can't attach IPU, ipu_num = {wanted}: there are {there} IPUs",
)
FACTOR = refuse(
    "paddle.factor",
    when=lambda name, factor, switch, enabled: factor > 1 and not enabled,
    error=PopartError,
    sentence="{name} is {factor} while {switch} is off: set {switch} to True, or {name} to 1",
)
PIPELINED_IPUS = refuse(
    "paddle.pipelined-ipus",
    when=lambda ipus, replicas: ipus // max(replicas, 1) < 2,
    error=PopartError,
    sentence="Pipelining requires more than 1 IPU per replica, but num_ipus is {ipus} for {replicas} replicas: use "
    "more IPUs or turn enable_pipelining off",
)
STAGE_ORDER = refuse(
    "paddle.stage-order",
    when=lambda op, stage, name, made_in: made_in > stage,
    error=PopartError,
    sentence="Op {op} of pipeline stage {stage} consumes {name}, which pipeline stage {made_in} makes: give every op "
    "the stage of its inputs or a later one",
)
OPEN_DIMENSION = refuse(
    "paddle.open-dimension",
    when=lambda name, shape: any(length < 0 for length in shape),
    error=InvalidArgument,
    sentence="The feed {name} has the shape {shape} after micro_batch_size took the place of a leading -1: shapes are "
    "fixed when a program is compiled, so declare every other dimension with its length",
)
LOSS_SHAPE = refuse(
    "paddle.loss-shape",
    when=lambda name, shape: any(length != 1 for length in shape),
    error=PopartError,
    sentence="Gradients begin at {name}, which has the shape {shape}: PopART takes a loss of one element; reduce it "
    "with identity_loss(x, 'mean') or 'sum'",
)
PREDICTOR_TRAINS = refuse(
    "paddle.predictor-trains",
    when=lambda training: training,
    error=InvalidArgument,
    sentence="A predictor was given a strategy for training: set is_training to False",
)
PREDICTOR_BATCHES = refuse(
    "paddle.predictor-batches",
    when=lambda pipelined, batches, ipus: pipelined and batches < ipus,
    error=InvalidArgument,
    sentence="Batched per step should be equal or greater than the number of IPUs: {batches} batches per step were "
    "given for {ipus} IPUs; raise batches_per_step",
)
DOT_CHECK = refuse(
    "paddle.dot-check",
    when=lambda check, known, every: check not in known,
    error=InvalidArgument,
    sentence=lambda check, known, every: (
        f"Unknown dot check {check!r}: the checks are {', '.join(known)} and {every}"
    ),
)

# Optimizers and ops

NO_OPTIMIZER = refuse(
    "paddle.no-optimizer",
    when=lambda updates: not updates,
    error=NotFound,
    sentence="No optimizer found in the program; training needs one: call optimizer.minimize(loss) first",
)
OPTIMIZER = refuse(
    "paddle.optimizer",
    when=lambda type, known: not known,
    error=InvalidArgument,
    sentence="Unknown optimizer related op_type: {type}; the optimizers are sgd, momentum, adam, adamw, adamax, lamb, "
    "adadelta, adagrad and rmsprop",
)
NESTEROV = refuse(
    "paddle.nesterov",
    when=lambda type, nesterov: type == "momentum" and nesterov,
    error=Unimplemented,
    sentence="Momentum with nesterov is not implemented for IPU; use use_nesterov=False",
)
MULTI_PRECISION = refuse(
    "paddle.multi-precision",
    when=lambda type, precise: type in ("momentum", "adam", "adamw") and precise,
    error=Unimplemented,
    sentence="{type} with multi_precision is not implemented for IPU; use multi_precision=False",
)
LAZY_MODE = refuse(
    "paddle.lazy-mode",
    when=lambda type, lazy: type in ("adam", "adamw") and lazy,
    error=Unimplemented,
    sentence="{type} with lazy_mode is not implemented for IPU; use lazy_mode=False",
)
RESCALED = refuse(
    "paddle.rescaled",
    when=lambda type, factor: type == "momentum" and factor != 1.0,
    error=Unimplemented,
    sentence="Momentum with rescale_grad {factor} is not implemented for IPU; use rescale_grad=1.0",
)
CLIP_BY_VALUE = refuse(
    "paddle.clip-by-value",
    when=lambda clipping, type: clipping and type == "clip",
    error=Unimplemented,
    sentence="ClipGradByValue is not implemented for IPU; use ClipGradByGlobalNorm",
)
CLIP_BY_NORM = refuse(
    "paddle.clip-by-norm",
    when=lambda clipping, type: clipping and type == "clip_by_norm",
    error=Unimplemented,
    sentence="ClipGradByNorm is not implemented for IPU; use ClipGradByGlobalNorm",
)
L1_DECAY = refuse(
    "paddle.l1-decay",
    when=lambda type, scope, method: (type == "sign" and scope.startswith("/regularization")) or method == "l1_decay",
    error=Unimplemented,
    sentence="Weight decay L1Decay (l1_decay) is not implemented for IPU; use L2Decay",
)
EVALUATED_MOMENTUM = refuse(
    "paddle.evaluated-momentum",
    when=lambda type, momentum: type == "momentum" and momentum != 0,
    error=PopartError,
    sentence="enable_eval replaces the optimizer by one whose momentum is 0, and the momentum {momentum} is constant: "
    "evaluate with a program of its own",
)
OP_HANDLER = refuse(
    "paddle.op-handler",
    when=lambda unknown: unknown,
    error=Unimplemented,
    sentence=lambda unknown: f"Found unimplemented op_handler(s) for IPU: {', '.join(dict.fromkeys(unknown))}",
)
AVERAGED_SHARDS = refuse(
    "paddle.averaged-shards",
    when=lambda averaged, sharded: averaged and not sharded,
    error=RuntimeError,
    sentence="need_avg_shard cuts a program into shards, and enable_manual_shard is off; set both to True",
)
UNPIPELINED_BATCHES = refuse(
    "paddle.unpipelined-batches",
    when=lambda batches, pipelined: batches > 1 and not pipelined,
    error=RuntimeError,
    sentence="batches_per_step is {batches} without a pipeline; set enable_pipelining to True, or leave it at 1",
)
DIMENSIONS = refuse(
    "paddle.dimensions",
    when=lambda type, shape: any(length <= 0 for length in shape),
    error=InvalidArgument,
    sentence="{type} makes a constant of the shape {shape}: IPU doesn't support non-positive dimensions; give every "
    "dimension a length of at least 1",
)
ATTRIBUTE = refuse(
    "paddle.attribute",
    when=lambda type, what, found: found,
    error=Unimplemented,
    sentence="{type} has {what}, which the handler of an IPU build refuses; leave it out",
)
ARGUMENT = refuse(
    "paddle.argument",
    when=lambda type, what, found: found,
    error=InvalidArgument,
    sentence="{type} has {what}, which the handler of an IPU build refuses; leave it out",
)
UNREAD_ATTRIBUTE = refuse(
    "paddle.unread-attribute",
    when=lambda type, what, found: found,
    error=Unimplemented,
    sentence="{type} has {what}, which the handler of an IPU build does not read: the device would compute something "
    "else; write it with other ops",
)
CUSTOM_OP = refuse(
    "paddle.custom-op",
    when=lambda name, known, registered: not known,
    error=_CUSTOM_OP_ERROR,
    sentence=lambda name, known, registered: (
        f"nobody registered the custom op {name!r} (registered: {', '.join(sorted(registered)) or 'none'}); "
        f"call ipu_conformance.emulator.paddle.api.custom_ops.register before the program is compiled"
    ),
)
SDK_SOURCE = refuse(
    "paddle.sdk-source",
    when=lambda source, for_the_ipu: for_the_ipu,
    error=_CUSTOM_OP_ERROR,
    sentence="{source} is a custom op in C++ for the IPU, and the emulator has no PopART to build it with; "
    "write the op in Python with ipu_conformance.emulator.paddle.api.custom_ops.register",
)

# Predictors

POSITIVE = refuse(
    "paddle.positive",
    when=lambda name, value: isinstance(value, bool) or not isinstance(value, int) or value < 1,
    error=InvalidArgument,
    sentence="{name} is {value!r}; give a whole number from 1",
)
CUSTOM_OP_ROW = refuse(
    "paddle.custom-op-row",
    when=lambda row, words: len(row) != len(words) or not str(row[-1]).isdigit(),
    error=InvalidArgument,
    sentence=lambda row, words: (
        f"Invalid setting for a custom op: {list(row)}; give {', '.join(words)}, the version in digits"
    ),
)
HANDLE = refuse(
    "paddle.handle",
    when=lambda name, what, handles: name not in handles,
    error=NotFound,
    sentence=lambda name, what, handles: (f"the model has no {what} {name!r}; it has {', '.join(handles) or 'none'}"),
)
EMPTY_INPUT = refuse(
    "paddle.empty-input",
    when=lambda name, array: array is None,
    error=PreconditionNotMet,
    sentence="input {name} holds nothing yet; copy an array into its handle first",
)

# Runs

INITIALIZED = refuse(
    "paddle.initialized",
    when=lambda name, variable: variable is None or not variable.get_tensor()._is_initialized(),
    error=PreconditionNotMet,
    sentence="The variable {name} is not initialized in the scope of the compiled program: run the startup program "
    "in that scope before compiling",
)
FEED = refuse(
    "paddle.feed",
    when=lambda name, feed, wanted: name not in feed,
    error=InvalidArgument,
    sentence=lambda name, feed, wanted: f"The feed {name} is missing: feed {', '.join(wanted)} to the program",
)

_COPIED = {("int64", "int32"), ("float64", "float32"), ("float32", "float16"), ("float16", "float32")}
"""Types that are copied into others; of float16 the vendor's predictors decide, and the sources say nothing."""
EMPTY_FEED = refuse(
    "paddle.empty-feed",
    when=lambda name, shape: 0 in shape,
    error=InvalidArgument,
    sentence="The feed {name} has the shape {shape} and holds nothing: IPU doesn't support non-positive dimensions; "
    "feed at least one element",
)
FEED_TYPE = refuse(
    "paddle.feed-type",
    when=lambda name, given, expected: given != expected and (given, expected) not in _COPIED,
    error=PopartError,
    sentence="Type discrepancy for the feed {name}: it holds {given} and the device expects {expected}; convert the "
    "array before it is fed",
)
REPLACED_PROGRAM = refuse(
    "paddle.replaced-program",
    when=lambda executable, held: executable is not held,
    error=PreconditionNotMet,
    sentence=lambda executable, held: (
        "The device holds no program, because it was reset or the last compilation failed: compile this program again "
        "before running it"
        if held is None
        else "Another program was compiled since this one, and the device holds the last one only: compile this "
        "program again before running it"
    ),
)
DETACHED = refuse(
    "paddle.detached",
    when=lambda attached: not attached,
    error=PreconditionNotMet,
    sentence="The device is detached: compile the program again before running it",
)
FETCH = refuse(
    "paddle.fetch",
    when=lambda name, fetches: name not in fetches,
    error=InvalidArgument,
    sentence=lambda name, fetches: (
        f"{name} was not compiled into the program: fetch {', '.join(fetches)}, or compile again"
    ),
)
RUNTIME_TRAINS = refuse(
    "paddle.runtime-trains",
    when=lambda training: training,
    error=InvalidArgument,
    sentence="enable_model_runtime_executor is for inference, and the strategy is training; set is_training to False",
)


def _disagreeing(counts: Mapping[str, Tuple[int, int]]) -> str:
    told = ", ".join(f"{name} {given} of {capacity}" for name, (given, capacity) in counts.items())
    return f"Batch size doesn't equal between the feeds: {told}; give the same samples to each"


def _unfit(
    name: str, shape: Tuple[int, ...], capacity: int, sample: Tuple[int, ...], timeout: float, fits: bool
) -> str:
    hint = "give fewer" if timeout != 0 else "give as many, or set timeout_ms to let a smaller batch be completed"
    return (
        f"Batch size doesn't equal the model's: feed {name} has the shape {shape}, and one run takes {capacity} "
        f"samples of the shape {sample}; {hint}"
    )


REQUEST_SIZE = refuse(
    "paddle.request-size",
    when=lambda timeout, fits, **facts: timeout == 0 or not fits,
    error=InvalidArgument,
    sentence=_unfit,
)
REQUEST = refuse(
    "paddle.request",
    when=lambda counts: len(set(counts.values())) > 1,
    error=InvalidArgument,
    sentence=_disagreeing,
)
