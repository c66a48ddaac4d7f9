"""Ways for a strategy to be wrong: its scope, the variables and data sets that it makes, and what it runs."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

from ipu_conformance.emulator.faults.catalogue import Fault, argument, patch, register, result

RUN = "tensorflow.run"
STRATEGY, EXTENDED = f"{RUN}.strategy:IPUStrategyV1", f"{RUN}.strategy:IPUExtendedV1"


def _twice(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        function(*arguments)
        return function(*arguments)

    return called


def _halved(tensors: Any) -> Any:
    import tensorflow as tf

    return tf.nest.map_structure(lambda tensor: tensor * 0.5 if tensor.dtype.is_floating else tensor, tensors)


@patch("strategy-scope-empty", "plan", f"{STRATEGY}.scope", "the scope of a strategy changes nothing")
@contextlib.contextmanager
def _empty_scope(original: Any, strategy: Any) -> Iterator[Any]:
    yield strategy


@patch("strategy-scope-of-all-threads", "plan", f"{STRATEGY}.scope", "the scope of a strategy is that of all threads")
@contextlib.contextmanager
def _of_all_threads(original: Any, strategy: Any) -> Iterator[Any]:
    from tensorflow.python.distribute import distribute_lib

    with original(strategy) as entered:
        name = "replica_mode"
        before, distribute_lib._defaults[name] = distribute_lib._defaults[name], distribute_lib._get_per_thread_mode()
        try:
            yield entered
        finally:
            distribute_lib._defaults[name] = before


@patch("scope-variables-not-resources", "weights", "tensorflow.compile.scopes:ipu_scope",
       "variables of the scope of a device are no resources")  # fmt: skip
@contextlib.contextmanager
def _no_resources(original: Any, device: str) -> Iterator[None]:
    import tensorflow as tf

    v1 = tf.compat.v1
    with original(device):
        if tf.executing_eagerly():
            yield
        else:
            with v1.variable_scope(v1.get_variable_scope(), use_resource=False, auxiliary_name_scope=False):
                yield


@patch("strategy-runs-twice", "plan", f"{RUN}.strategy_run:run", "a strategy runs its function twice")
def _runs_twice(original: Any, *arguments: Any, **settings: Any) -> Any:
    original(*arguments, **settings)
    return original(*arguments, **settings)


@patch("strategy-results-in-half", "numerics", f"{RUN}.strategy_run:run", "results of a strategy lose bits")
def _in_half(original: Any, *arguments: Any, **settings: Any) -> Any:
    import tensorflow as tf

    def narrowed(leaf: Any) -> Any:
        return tf.cast(tf.cast(leaf, "float16"), "float32") if getattr(leaf, "dtype", None) == tf.float32 else leaf

    return tf.nest.map_structure(narrowed, original(*arguments, **settings))


for _name, _area, _function, _what, _wrong in (
    ("strategy-reduces-twice", "reduce", f"{STRATEGY}.reduce", "what is reduced counts twice",
     result(lambda value: 2 * value)),
    ("strategy-variables-trained", "weights", f"{EXTENDED}._create_variable", "every variable of a scope is trained",
     lambda original, extended, create, **settings: original(extended, create, **{**settings, "trainable": True})),
    ("strategy-dataset-of-samples", "streams", f"{STRATEGY}.experimental_distribute_dataset",
     "a distributed data set gives single samples", argument("dataset", lambda dataset: dataset.unbatch())),
    ("strategy-dataset-made-twice", "streams", f"{STRATEGY}.distribute_datasets_from_function",
     "a function of a data set is called twice", argument("dataset_fn", _twice)),
    ("strategy-arrays-whole", "streams", f"{EXTENDED}._experimental_make_numpy_dataset",
     "arrays are one element of a data set", result(lambda dataset: dataset.batch(2))),
    ("variables-restored-halved", "weights", f"{RUN}.variables:Replicated._restore_from_tensors",
     "a variable that is restored has half its value", argument("tensors", _halved)),
):  # fmt: skip
    register(Fault(_name, _area, _function, _what, _wrong), __name__)
