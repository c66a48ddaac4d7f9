"""Ways for strategies, places, sessions and the environment to be wrong."""

from __future__ import annotations

from typing import Any, Callable

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import Fault
from ipu_conformance.emulator.faults.decisions import paddle_strategy
from ipu_conformance.emulator.paddle.compile.options import SET_ONLY, STRING, Option

POINT = paddle_strategy.point


def _where(name: str, wrong: Callable[..., Any]) -> Callable[..., Any]:
    """The wrong value for one rule, the right one for all others."""
    return lambda value, rule, **context: wrong(value, **context) if rule == name else value


def _never(name: str) -> Callable[..., Any]:
    return _where(name, lambda value, **context: False)


def _set_before(value: Any, before: Any, **context: Any) -> Any:
    value.clear()
    value.update(before)
    return value


_SHARED: Any = {}

for _name, _what, _wrong in (
    ("paddle-option-forgotten", "an option reads as its default whatever was set",
     _where("read", lambda value, default, **context: default)),
    ("paddle-default-of-another", "an option that was not set reads as if 3 had been added",
     _where("default", lambda value, **context: value + 3 if type(value) in (int, float) else value)),
    ("paddle-flags-default-to-the-opposite", "a flag that was not set reads as its opposite",
     _where("default", lambda value, **context: not value if isinstance(value, bool) else value)),
    ("paddle-types-unchecked", "an option takes values of every type", _never("wrong type")),
    ("paddle-value-types-unchecked", "any object is the value of an option", _never("no value")),
    ("paddle-range-unchecked", "an enumeration takes any number", _never("out of range")),
    ("paddle-signs-wrap", "a negative number wraps round", _never("not 64 bits")),
    ("paddle-options-all-or-none", "a refused option also undoes those before it",
     _where("refused", lambda value, before, **context: _set_before(value, before))),
    ("paddle-options-shared", "all strategies share their options",
     _where("own values", lambda value, **context: _SHARED)),
    ("paddle-vectors-replaced", "setting a vector or a map forgets what it held",
     _where("held", lambda value, **context: type(value)())),
    ("paddle-entries-unchecked", "an entry of a vector may be anything", _never("wrong entry")),
    ("paddle-manual-shard-apart", "manual sharding is not the virtual graph mode", _never("manual shard is a mode")),
    ("paddle-set-only-readable", "what can only be set reads as text",
     _where("readable", lambda value, **context: {**value, **{name: Option(name, STRING, "") for name in SET_ONLY}})),
    ("paddle-custom-op-keys-unchecked", "a custom op may have any key", _never("unknown custom op key")),
    ("paddle-locations-unchecked", "a tensor location may have any name and key", _never("unknown location")),
    ("paddle-pattern-stuck", "a pattern cannot be disabled", _where("pattern", lambda value, **context: True)),
    ("paddle-cpu-build", "the build says that it is none for the IPU", _never("ipu build")),
    ("paddle-no-ipus", "no IPU is found", _where("devices", lambda value, **context: 0)),
    ("paddle-device-named-cpu", "the device is called cpu after it was set to the IPU", _never("device is an ipu")),
    ("paddle-place-prints-cpu", "the IPU's place prints as that of the host",
     _where("place", lambda value, **context: "Place(cpu)")),
    ("paddle-places-equal", "the places of host and IPU are equal",
     _where("places equal", lambda value, **context: True)),
    ("paddle-feeds-by-name-only", "a program cannot be compiled with feeds that are Variables",
     _where("variable", lambda value, **context: None)),
    ("paddle-counts-unchecked", "a program of no micro-batch is compiled", _never("count below one")),
    ("paddle-proportion-unchecked", "any proportion of memory is accepted", _never("no proportion")),
    ("paddle-attaches-beyond", "more IPUs than there are can be attached", _never("cannot attach")),
    ("paddle-model-ignored", "POPLAR_IPUMODEL has no effect", _never("uses model")),
    ("paddle-compile-only-runs", "IPU_COMPILE_ONLY has no effect", _never("compile only")),
    ("paddle-dump-path-of-the-option", "IPU_ONNX_DUMP_PATH does not beat the option",
     _where("dump path", lambda value, option, **context: option or value)),
    ("paddle-cache-path-ignored", "IPU_CACHE_PATH has no effect",
     _where("cache path", lambda value, **context: None)),
    ("paddle-cache-of-one", "the cache takes every executable for the same one",
     _where("digest", lambda value, **context: "0")),
    ("paddle-cache-never-hit", "the cache never finds an executable again",
     _where("digest", lambda value, memory, **context: f"{value}{memory.setdefault(len(memory), len(memory))}")),
):  # fmt: skip
    faults.register(Fault(_name, "plan", POINT, _what, _wrong))
