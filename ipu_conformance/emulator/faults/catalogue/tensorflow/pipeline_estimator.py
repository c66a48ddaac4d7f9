"""Ways for a pipelined estimator to be wrong: what it asks of a model, its loops, its loss and what it hands on."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, never, where
from ipu_conformance.emulator.faults.decisions import tensorflow_estimator

POINT = tensorflow_estimator.point


def _known_only(value: Any, **context: Any) -> Any:
    return [name for name in value if name in ("mode", "params", "config")]


def _undivided(value: Any, added: Any, **context: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_mean(added)


def _last_run(value: Any, added: Any, count: int, **context: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_mean(added[-1:]) / count


def _first_replica(value: Any, added: Any, count: int, **context: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_mean(added[:, 0] if added.shape.rank > 1 else added) / count


def _invented(value: Any, **context: Any) -> Any:
    import tensorflow as tf

    return value if isinstance(value, dict) and "loss" in value else {"loss": tf.constant(0.0)}


def _backwards(value: Any, **context: Any) -> Any:
    import tensorflow as tf

    return [tf.reverse(leaf, [0]) for leaf in value]


def _first_again(value: Any, **context: Any) -> Any:
    import tensorflow as tf

    return [tf.repeat(leaf[:1], leaf.shape[0], axis=0) for leaf in value]


for _name, _rule, _area, _what, _wrong in (
    # What a model is asked for
    ("pipelined-any-mode", "pipeline-mode-known", "plan", "a specification is for any mode", never),
    ("pipelined-any-stages", "pipeline-stages-typed", "plan", "stages may be anything", never),
    ("pipelined-count-guessed", "pipeline-count-required", "plan", "a missing count is 1", always(1)),
    ("pipelined-count-converted", "pipeline-count-typed", "plan", "a count may be of any type", never),
    ("pipelined-count-not-positive", "pipeline-count-positive", "plan", "a count may be 0 or less", never),
    ("pipelined-without-optimizer", "pipeline-optimizer_function-required", "update",
     "training needs no optimizer function", never),
    ("pipelined-without-metrics", "pipeline-eval_metrics_fn-required", "streams",
     "evaluation needs no function for metrics", never),
    ("pipelined-any-optimizer", "pipeline-optimizer_function-typed", "update",
     "an optimizer function may be anything", never),
    ("pipelined-any-metrics", "pipeline-eval_metrics_fn-typed", "streams",
     "a function for metrics may be anything", never),
    ("pipelined-options-overridden", "pipeline-own-options", "streams",
     "options that the estimator sets are accepted", never),
    ("pipelined-any-hooks", "pipeline-hooks-typed", "plan", "hooks may be anything", never),
    ("pipelined-hooks-forgotten", "pipeline-hooks", "plan", "hooks of a specification are not called", always(())),
    ("pipelined-any-arguments", "pipeline-arguments", "plan", "a model function may ask for anything", _known_only),
    ("pipelined-any-specification", "pipeline-spec-required", "plan",
     "a model function may return anything", never),
    # Loops
    ("pipelined-partial-loop", "pipeline-loop-whole", "plan", "a loop ends within a run of the pipeline",
     never),
    ("pipelined-run-missing", "pipeline-runs", "plan", "a loop runs the pipeline once less",
     lambda value, **context: value - 1),
    ("pipelined-mapping-ignored", "pipeline-mapping", "plan", "every stage is on an IPU of its own", always(None)),
    ("pipelined-options-ignored", "pipeline-options", "plan", "options of the pipeline are left out", always({})),
    ("pipelined-reduction-ignored", "pipeline-reduction", "update", "gradients are summed whatever is asked",
     always("sum")),
    # The loss
    ("pipelined-loss-undivided", "pipeline-loss", "streams", "the loss is the sum over a run", _undivided),
    ("pipelined-loss-last-run", "pipeline-loss", "streams", "the loss is that of the last run", _last_run),
    ("pipelined-loss-first-replica", "pipeline-loss", "streams", "the loss is that of the first replica",
     _first_replica),
    ("pipelined-loss-not-accumulated", "pipeline-loss-accumulated", "streams",
     "losses are not added up before they are divided", never),
    ("pipelined-loss-type-ignored", "pipeline-loss-dtype", "numerics", "losses are added up in their own type",
     always(None)),
    # What the host gets
    ("pipelined-metrics-invented", "pipeline-metrics", "streams", "metrics without a loss have a loss of 0", _invented),
    ("pipelined-outputs-backwards", "pipeline-outputs", "streams", "micro-batches come in reverse order", _backwards),
    ("pipelined-outputs-repeated", "pipeline-outputs", "streams", "every micro-batch has the first one's outputs",
     _first_again),
    ("pipelined-names-lost", "pipeline-names", "streams", "predictions lose their names", always(None)),
    ("pipelined-first-prediction", "pipeline-predictions-named", "streams", "only the first prediction counts",
     never),
):  # fmt: skip
    catalogue.register(Fault(_name, _area, POINT, _what, where(_rule, _wrong)), __name__)
