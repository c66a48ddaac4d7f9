"""What the operations of a program refuse: feeds, compilation, collectives, strategies and groups of channels."""

from __future__ import annotations

from ipu_conformance.emulator.faults import refuse

# Feeds

UNKNOWN_SHAPE = refuse(
    "tensorflow.infeed-unknown-shape",
    when=lambda shape: not shape.is_fully_defined(),
    error=ValueError,
    sentence="Output shape {shape} is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`.",
)
SECOND_INITIALIZER = refuse(
    "tensorflow.infeed-second-initializer",
    when=lambda initialised: initialised,
    error=ValueError,
    sentence="The IPUInfeedQueue `initializer` function can only be accessed once.",
)
SECOND_ENQUEUE = refuse(
    "tensorflow.outfeed-second-enqueue",
    when=lambda claimed: claimed,
    error=ValueError,
    sentence="An outfeed can only be enqueued once.",
)

# Programs

NO_IPU = refuse(
    "tensorflow.compiled-for-the-host",
    when=lambda for_ipu: not for_ipu,
    error=RuntimeError,
    sentence="The computation was not compiled for an IPU device: call ipu_compiler.compile inside scopes.ipu_scope.",
)
RETURNED_SPEC = refuse(
    "tensorflow.compiled-specification",
    when=lambda spec: spec,
    error=ValueError,
    sentence="The computation returns an EstimatorSpec or IPUEstimatorSpec: an IPUEstimator compiles its model "
    "function itself, so leave ipu_compiler.compile out.",
)
EAGER_FUNCTION = refuse(
    "tensorflow.strategy-eager-function",
    when=lambda compiled: not compiled,
    error="ipu_conformance.emulator.tensorflow.run.strategy.StrategyError",
    sentence="IPUStrategy.run(fn, ...) does not support pure eager execution: pass a tf.function, or call it inside of "
    "one.",
)

# Operations

LSTM_STATE = refuse(
    "tensorflow.lstm-state",
    when=lambda state, kind: state is not None and not isinstance(state, kind),
    error=ValueError,
    sentence="Invalid initial_state type: `{state.__class__}`, expecting `LSTMStateTuple`.",
)
OTHER_REPLICAS = refuse(
    "tensorflow.collective-other-replicas",
    when=lambda number, replicas: number != replicas,
    error=ValueError,
    sentence="The operation was given {number} replicas, and the program runs on {replicas}: give that number.",
)
UNEVEN_GROUPS = refuse(
    "tensorflow.uneven-groups",
    when=lambda groups, channels: isinstance(groups, bool) or groups < 1 or groups > channels or channels % groups,
    error=ValueError,
    sentence="{groups} groups were asked for {channels} channels; use a number of groups that divides the channels.",
)
PREFETCH_DEPTH = refuse(
    "tensorflow.prefetch-depth",
    when=lambda depth: depth is not None and not 1 <= depth <= 255,
    error=ValueError,
    sentence="`prefetch_depth` is {depth}; it must be at least 1 and less than 256.",
)

# Tables on the host

HOST_TABLE = refuse(
    "tensorflow.host-embedding-table",
    when=lambda table, variable: not variable,
    error=ValueError,
    sentence="HostEmbedding embedding_tensor is not a tensorflow tensor, but {table!r}: pass a variable of the host.",
)
HOST_SPEC = refuse(
    "tensorflow.host-embedding-spec",
    when=lambda spec, kind: spec is not None and not isinstance(spec, kind),
    error=ValueError,
    sentence="HostEmbedding optimizer_spec is not a HostEmbeddingOptimizerSpec or None, but {spec!r}.",
)
HOST_PARTITION = refuse(
    "tensorflow.host-embedding-partition",
    when=lambda strategy, strategies: strategy not in strategies,
    error=ValueError,
    sentence="Unknown partition strategy {strategy!r}: use one of {strategies}.",
)
HOST_SESSION = refuse(
    "tensorflow.host-embedding-session",
    when=lambda session, eager: session is None and not eager,
    error=ValueError,
    sentence="HostEmbedding.register requires a session when eager execution is disabled.",
)
HOST_CALL = refuse(
    "tensorflow.host-embedding-call",
    when=lambda called: called,
    error=NotImplementedError,
    sentence="HostEmbedding.__call__ is not supported: use the context manager of HostEmbedding.register.",
)
