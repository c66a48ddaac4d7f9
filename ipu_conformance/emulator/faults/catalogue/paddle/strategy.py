"""Ways for strategies, places, sessions and the environment to be wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, Mapping

from ipu_conformance.emulator.faults.catalogue import Fault, Wrong, always, never, patch, register, result
from ipu_conformance.emulator.paddle.compile.options import MAP, SET_ONLY, STRING, VECTOR

OPTIONS = "paddle.compile.strategy_options:StrategyOptions"
STRATEGY = "paddle.api.strategy:IpuStrategy"
PLACE = "paddle.api.places:OnIpus"
ENVIRONMENT = "paddle.compile.environment"
Original = Callable[..., Any]


def _default(change: Callable[[Any], Any]) -> Wrong:
    """What an option reads as until it is set is ``change`` of its default."""
    return lambda original, strategy, option: original(strategy, replace(option, default=change(option.default)))


def _forgotten(original: Original, strategy: Any, option: Any) -> Any:
    return original(strategy, option) if option.type in (VECTOR, MAP) else option.default


def _readable(original: Original, strategy: Any, name: str) -> Any:
    text = {"name": name, "type": STRING, "value": "", "value_s": ""}
    return text if name in SET_ONLY else original(strategy, name)


def _apart(original: Original, strategy: Any, name: str, value: bool) -> None:
    if name == "enable_manual_shard":
        strategy._values[name] = value
    else:
        original(strategy, name, value)


def _backwards(original: Original, strategy: Any, option: Any) -> Any:
    return original(strategy, option)[::-1] if option.type == VECTOR else original(strategy, option)


def _of_a_hundred(original: Original, strategy: Any, done: int) -> None:
    if strategy.progress_logger is not None:
        strategy.progress_logger(min(done, 100), 100)


def _option_first(original: Original, strategy: Any, *rest: Any) -> Any:
    return strategy.value("onnx_dump_path") or original(strategy, *rest)


for _name, _place, _what, _wrong in (
    ("paddle-option-forgotten", f"{OPTIONS}.read", "an option reads as its default whatever was set", _forgotten),
    ("paddle-default-of-another", f"{OPTIONS}.read", "an option that was not set reads as if 3 had been added",
     _default(lambda value: value + 3 if type(value) in (int, float) else value)),
    ("paddle-flags-default-to-the-opposite", f"{OPTIONS}.read", "a flag that was not set reads as its opposite",
     _default(lambda value: not value if isinstance(value, bool) else value)),
    ("paddle-vectors-replaced", f"{OPTIONS}._held", "setting a vector or a map forgets what it held",
     result(lambda held: type(held)())),
    ("paddle-map-entry-replaced", f"{OPTIONS}._insert", "an entry of a map that is set again is replaced",
     lambda original, strategy, name, entries: strategy._values.update({name: {**strategy._held(name), **entries}})),
    ("paddle-custom-ops-in-reverse", f"{OPTIONS}.read", "vectors are read from their end", _backwards),
    ("paddle-progress-of-a-hundred", "paddle.compile.sessions:_progress",
     "progress is told of a hundred, whatever was set", _of_a_hundred),
    ("paddle-manual-shard-apart", f"{OPTIONS}._set_bool", "manual sharding is not the virtual graph mode", _apart),
    ("paddle-set-only-readable", f"{STRATEGY}.get_option", "what can only be set reads as text", _readable),
    ("paddle-pattern-stuck", f"{STRATEGY}.disable_pattern", "a pattern cannot be disabled",
     lambda original, strategy, name: strategy.enable_pattern(name)),
    ("paddle-cpu-build", "paddle.api.places:is_compiled_with_ipu", "the build says that it is none for the IPU", never),
    ("paddle-device-named-cpu", "paddle.api.places:_is_set",
     "the device is called cpu after it was set to the IPU", never),
    ("paddle-place-prints-cpu", f"{PLACE}.__repr__", "the IPU's place prints as that of the host",
     always("Place(cpu)")),
    ("paddle-places-equal", f"{PLACE}._equals", "the places of host and IPU are equal", always(True)),
    ("paddle-feeds-by-name-only", "paddle.compile.sessions:names_of",
     "a program cannot be compiled with feeds that are Variables",
     lambda original, variables: [variable for variable in variables if isinstance(variable, str)]),
    ("paddle-model-ignored", f"{ENVIRONMENT}:uses_model", "POPLAR_IPUMODEL has no effect", never),
    ("paddle-compile-only-runs", f"{ENVIRONMENT}:compile_only", "IPU_COMPILE_ONLY has no effect", never),
    ("paddle-dump-path-of-the-option", f"{ENVIRONMENT}:onnx_dump_path",
     "IPU_ONNX_DUMP_PATH does not beat the option", _option_first),
    ("paddle-cache-path-ignored", f"{ENVIRONMENT}:cache_path", "IPU_CACHE_PATH has no effect",
     lambda original, strategy, *rest: original(strategy, {})),
    ("paddle-cache-of-one", "paddle.compile.sessions:digest", "the cache takes every executable for the same one",
     always("0")),
):  # fmt: skip
    register(Fault(_name, "plan", _place, _what, _wrong), __name__)


@patch("paddle-options-all-or-none", "plan", f"{STRATEGY}.set_options",
       "a refused option also undoes those before it")  # fmt: skip
def _all_or_none(original: Original, strategy: Any, options: Mapping[str, Any]) -> None:
    before = dict(strategy._values)
    try:
        original(strategy, options)
    except Exception:
        strategy._values = before
        raise


@patch("paddle-options-shared", "plan", f"{OPTIONS}.__init__", "all strategies share their options", remembers=True)
def _shared(memory: Dict[str, Any], original: Original, strategy: Any) -> None:
    original(strategy)
    strategy._values = memory


@patch("paddle-no-ipus", "plan", f"{ENVIRONMENT}:device_count", "no IPU is found by who asks again", remembers=True)
def _no_ipus(memory: Dict[str, bool], original: Original) -> int:
    return 0 if memory.setdefault("asked", False) else memory.update(asked=True) or original()


@patch("paddle-cache-never-hit", "plan", "paddle.compile.sessions:digest",
       "the cache never finds an executable again", remembers=True)  # fmt: skip
def _never_hit(memory: Dict[int, None], original: Original, record: Any) -> str:
    memory[len(memory)] = None
    return f"{original(record)}{len(memory)}"
