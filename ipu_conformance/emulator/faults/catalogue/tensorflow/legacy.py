"""Ways for programs of earlier SDKs, and for what follows stock Keras in a scope, to be taken wrongly."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.faults.catalogue import GONE, Fault, always, patch, register, result

OPTIONS = "tensorflow.legacy.options"
MODELS, FEEDS = "tensorflow.legacy.keras_models", "tensorflow.legacy.keras_feeds"
COUNT, MODE = "gradient_accumulation_count", "outfeed_mode"


@patch("legacy-options-replaced", "plan", f"{OPTIONS}:_set", "options of a library replace those that were there")
def _replaced(original: Any, options: Any, option: Any, value: Any) -> None:
    if isinstance(value, dict):
        options._values[option.attribute] = {}
    original(options, option, value)


@patch("legacy-options-inverted", "plan", f"{OPTIONS}:_set", "old options that are on are off today, and the reverse")
def _inverted(original: Any, options: Any, option: Any, value: Any) -> None:
    original(options, option, not value if isinstance(value, bool) else value)


def _new_adam(old: Any) -> Any:
    import tensorflow as tf

    return tf.keras.optimizers.Adam


for _name, _function, _what, _wrong in (
    ("legacy-options-shared", "tensorflow.config.ipu_config:IpuOptions.snapshot",
     "options in force are those that the program still changes", lambda original, options: options),
    ("keras-functional-misnamed", "tensorflow.keras.extension:FunctionalExtension._init_set_name",
     "a model of inputs and outputs is called after a class that nobody knows",
     lambda original, model, name, zero_based=True: original(model, name or "functional", zero_based)),
    ("addons-layer-missing", "name:tensorflow.addons.keras.layers:SerialDense",
     "the add-ons have no dense layer in pieces", always(GONE)),
    ("addons-slot-of-the-variable", "tensorflow.optim.mixed_precision:IpuOptimizerBase.add_slot",
     "state has the dtype of its variable, whichever was asked for",
     lambda original, optimizer, var, name, *rest, **settings: original(
         optimizer, var, name, *rest, **{**settings, "dtype": var.dtype})),
    ("addons-moments-biased", "tensorflow.optim.mixed_precision:IpuOptimizerBase._debiased",
     "moments keep their start at zero", lambda original, optimizer, m, v: (m, v)),
    ("addons-change-unscaled", "tensorflow.optim.mixed_precision:LAMBIpuOptimizer._trust",
     "LAMB does not scale changes to the weights' norms", always(1.0)),
    ("addons-nothing-excluded", "tensorflow.optim.mixed_precision:_matches",
     "no name is excluded from decay or adaptation", always(False)),
    ("legacy-trace-of-something", "name:tensorflow.legacy.events:FUNCTIONS", "an empty trace of events reads as a word",
     lambda functions: {name: lambda events: "event" for name in functions}),
    ("moved-name-misled", "tensorflow.legacy.stock:looked_up", "a name that has moved leads to something else",
     lambda original, module, name: original(module, name).__class__),
    ("legacy-optimizer-new", "name:stock.keras.optimizer_v2.adam:Adam",
     "the optimizer of an old module is Keras' new one", _new_adam),
    ("legacy-model-run-of-one-step", f"{MODELS}:LegacyModel._run_steps", "a run has one step, whatever was asked for",
     lambda original, model, steps: original(model, model.gradient_accumulation_count)),
    ("legacy-model-epoch-halved", f"{FEEDS}:mini_batches", "an epoch has half of its mini-batches",
     result(lambda number: number // 2 if number > 16 else number)),
    ("legacy-model-arrays-backwards", f"{FEEDS}:batches", "arrays are fed backwards",
     lambda original, x, y, size: original(x[::-1], y[::-1], size)),
    ("legacy-model-inputs-swapped", f"{FEEDS}:sorted_out", "inputs of a flat tuple come in reverse order",
     lambda original, dataset, *ends: original(dataset.map(lambda *parts: parts[::-1]), *ends)),
    ("legacy-model-loss-of-one", f"{MODELS}:LegacyModel._ipu_reduced", "the loss is that of the last replica",
     lambda original, model, by_replica: by_replica[-1]),
    ("legacy-model-optimizer-new", "stock.keras.src.optimizers:get", "a word is an optimizer of today",
     lambda original, identifier, **settings: original(identifier)),
    ("legacy-model-name-other", f"name:{MODELS}:MODELS", "the first name of a pipeline is a model without stages",
     lambda models: {**models, "PipelinedModel": models["Sequential"]}),
    ("legacy-count-halved", "tensorflow.legacy.pipelines:renamed",
     "a pipeline has half as many micro-batches as its old option says",
     result(lambda named: {**named, COUNT: named[COUNT] // 2})),
    ("legacy-last-is-all", "tensorflow.legacy.queues:today", "an old outfeed of the last value keeps all",
     result(lambda given: (given[0], {name: value for name, value in given[1].items() if name != MODE}))),
):  # fmt: skip
    register(Fault(_name, "plan", _function, _what, _wrong), __name__)
