"""Ways for strategies, places, sessions and the environment to be wrong."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, never, rule, where
from ipu_conformance.emulator.faults.decisions import paddle_strategy
from ipu_conformance.emulator.paddle.compile.options import SET_ONLY, STRING, Option

POINT = paddle_strategy.point


def _set_before(value: Any, before: Any, **context: Any) -> Any:
    value.clear()
    value.update(before)
    return value


_SHARED: Any = {}

for _name, _what, _wrong in (
    ("paddle-option-forgotten", "an option reads as its default whatever was set",
     where("read", lambda value, default, **context: default)),
    ("paddle-default-of-another", "an option that was not set reads as if 3 had been added",
     rule("default", lambda value: value + 3 if type(value) in (int, float) else value)),
    ("paddle-flags-default-to-the-opposite", "a flag that was not set reads as its opposite",
     rule("default", lambda value: not value if isinstance(value, bool) else value)),
    ("paddle-types-unchecked", "an option takes values of every type", rule("wrong type", never)),
    ("paddle-value-types-unchecked", "any object is the value of an option", rule("no value", never)),
    ("paddle-range-unchecked", "an enumeration takes any number", rule("out of range", never)),
    ("paddle-signs-wrap", "a negative number wraps round", rule("not 64 bits", never)),
    ("paddle-options-all-or-none", "a refused option also undoes those before it",
     where("refused", lambda value, before, **context: _set_before(value, before))),
    ("paddle-options-shared", "all strategies share their options",
     rule("own values", lambda value: _SHARED)),
    ("paddle-vectors-replaced", "setting a vector or a map forgets what it held",
     rule("held", lambda value: type(value)())),
    ("paddle-entries-unchecked", "an entry of a vector may be anything", rule("wrong entry", never)),
    ("paddle-manual-shard-apart", "manual sharding is not the virtual graph mode",
     rule("manual shard is a mode", never)),
    ("paddle-set-only-readable", "what can only be set reads as text",
     rule("readable", lambda value: {**value, **{name: Option(name, STRING, "") for name in SET_ONLY}})),
    ("paddle-custom-op-keys-unchecked", "a custom op may have any key", rule("unknown custom op key", never)),
    ("paddle-locations-unchecked", "a tensor location may have any name and key", rule("unknown location", never)),
    ("paddle-pattern-stuck", "a pattern cannot be disabled", rule("pattern", always(True))),
    ("paddle-cpu-build", "the build says that it is none for the IPU", rule("ipu build", never)),
    ("paddle-no-ipus", "no IPU is found", rule("devices", always(0))),
    ("paddle-device-named-cpu", "the device is called cpu after it was set to the IPU",
     rule("device is an ipu", never)),
    ("paddle-place-prints-cpu", "the IPU's place prints as that of the host",
     rule("place", always("Place(cpu)"))),
    ("paddle-places-equal", "the places of host and IPU are equal",
     rule("places equal", always(True))),
    ("paddle-feeds-by-name-only", "a program cannot be compiled with feeds that are Variables",
     rule("variable", always(None))),
    ("paddle-counts-unchecked", "a program of no micro-batch is compiled", rule("count below one", never)),
    ("paddle-proportion-unchecked", "any proportion of memory is accepted", rule("no proportion", never)),
    ("paddle-attaches-beyond", "more IPUs than there are can be attached", rule("cannot attach", never)),
    ("paddle-model-ignored", "POPLAR_IPUMODEL has no effect", rule("uses model", never)),
    ("paddle-compile-only-runs", "IPU_COMPILE_ONLY has no effect", rule("compile only", never)),
    ("paddle-dump-path-of-the-option", "IPU_ONNX_DUMP_PATH does not beat the option",
     where("dump path", lambda value, option, **context: option or value)),
    ("paddle-cache-path-ignored", "IPU_CACHE_PATH has no effect",
     rule("cache path", always(None))),
    ("paddle-cache-of-one", "the cache takes every executable for the same one",
     rule("digest", always("0"))),
    ("paddle-cache-never-hit", "the cache never finds an executable again",
     where("digest", lambda value, memory, **context: f"{value}{memory.setdefault(len(memory), len(memory))}")),
):  # fmt: skip
    catalogue.register(Fault(_name, "plan", POINT, _what, _wrong), __name__)
