"""Ways for the vendor's surface to be wrong: names that are missing or stand for something else."""

from __future__ import annotations

import enum
import functools
import importlib
from types import ModuleType
from typing import Any, Callable

from ipu_conformance.emulator.faults.catalogue import GONE, Fault, Wrong, always, patch, register, result

API = "tensorflow.api"


def _again(found: Any) -> Any:
    """A module or a class as if it had been imported twice."""
    if isinstance(found, ModuleType):
        copied = ModuleType(found.__name__)
        vars(copied).update(vars(found))
        return copied
    return type(found.__name__, (found,), {}) if isinstance(found, type) else found


def _found_elsewhere(elsewhere: Callable[[str], Any]) -> Wrong:
    """A package that has more names than it should."""

    def wrong(original: Any, name: str) -> Any:
        try:
            return original(name)
        except AttributeError:
            if name.startswith("_"):
                raise
            return elsewhere(name)

    return wrong


def _of_the_package(name: str) -> Any:
    return importlib.import_module(f"ipu_conformance.emulator.{API}.{name}")


for _name, _place, _what, _wrong in (
    # Modules
    ("modules-of-gradients-missing", "hook:AliasFinder.real_name", "gradients cannot be imported",
     lambda original, finder, fullname: None if fullname.endswith("_grad") else original(finder, fullname)),
    ("package-function-missing", f"{API}:__getattr__", "the package has no outlined_function of its own",
     lambda original, name: None if name == "outlined_function" else original(name)),
    ("modules-imported-twice", f"{API}:__getattr__", "a module is another one under its second name", result(_again)),
    ("modules-invented", f"{API}:__getattr__", "the package has every name that it is asked for",
     _found_elsewhere(ModuleType)),
    ("modules-of-the-package-in-ops", f"{API}.ops:__getattr__", "modules of the package are modules of operations",
     _found_elsewhere(_of_the_package)),
    ("optimizers-made-twice", f"{API}.optimizers:__getattr__", "an optimizer is another one in its module",
     result(_again)),
    ("package-imported-twice", "name:stock.tensorflow.python:ipu", "the package and TensorFlow's attribute are two",
     _again),
    ("keras-package-imported-twice", "name:stock.keras:ipu", "keras.ipu is another module as an attribute", _again),
    # Names
    ("remap-missing", f"name:{API}.ops.internal_ops:remap_deduce", "there is no function remap_deduce", always(GONE)),
    ("layer-short-name-other", f"name:{API}.keras.layers:LSTM", "a layer's short name is another class", _again),
    ("transformer-imitated", f"name:{API}.keras.layers:EffectiveTransformer",
     "a layer is made that the device cannot run", always(dict)),
    ("runtime-context-anything", f"name:{API}.ops.embedded_runtime:RuntimeContext",
     "everything is a context of a runtime", always(object)),
    ("outfeed-mode-renamed", f"name:{API}.ipu_outfeed_queue:IPUOutfeedMode", "a mode of outfeeds has another value",
     lambda modes: enum.Enum(modes.__name__, {"ALL": "all", "LAST": "last"})),
    ("utils-configure-apart", f"name:{API}.utils:get_ipu_config", "the function of utils is not that of config",
     lambda function: functools.partial(function)),
    # Defaults
    ("config-session-required", f"name:{API}.config:get_ipu_config", "an argument has lost its default",
     lambda function: lambda session: function(session)),
    ("keras-stage-by-default", f"name:{API}.keras:PipelineStage", "the number of a stage has a default",
     lambda kind: type(kind.__name__, (kind,), {"__init__": lambda self, stage=0: kind.__init__(self, stage)})),
):  # fmt: skip
    register(Fault(_name, "plan", _place, _what, _wrong), __name__)


@patch("compiled-effects-a-number", "plan", "tensorflow.compile.compiler:_in_graph",
       "a computation that returns nothing becomes a tensor")  # fmt: skip
def _a_number(original: Any, *arguments: Any) -> Any:
    import tensorflow as tf

    compiled = original(*arguments)
    if not isinstance(compiled, tf.Operation):
        return compiled
    with tf.control_dependencies([compiled]):
        return tf.constant(0.0)
