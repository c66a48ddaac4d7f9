"""The values of a strategy's options, set and read with the checks of an IPU build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile.options import (
    BOOL,
    COLLECTIVES,
    CUSTOM_OPS,
    DOUBLE,
    MAP,
    OPTIONS,
    SETTABLE,
    STRING,
    UINT64,
    UNSET_SEED,
    VECTOR,
    Option,
)
from ipu_conformance.emulator.paddle.errors import UncastableError


@dataclass(frozen=True)
class CustomOpMapping:
    """A Paddle op that the user maps to an op of PopART's."""

    paddle_op: str
    popart_op: str
    domain: str
    version: int

    def __str__(self) -> str:
        """The text as which an IPU build reads it back."""
        return f"paddle_op: {self.paddle_op}, domain: {self.domain}, type: {self.popart_op}, version: {self.version}"


class StrategyOptions:
    """The options of one strategy; reading gives what was set last, or the default."""

    def __init__(self) -> None:
        self._values: Dict[str, Any] = {}
        self.custom_ops: List[CustomOpMapping] = []
        self.places: Dict[str, Dict[str, int]] = {}
        self.collectives: Dict[str, bool] = {}
        self.outer_fragment: Optional[Tuple[int, Tuple[int, ...]]] = None
        self.progress_logger: Optional[Callable[[int, int], None]] = None

    def value(self, name: str) -> Any:
        """The plain typed value of one option; vectors are new lists and maps new dicts."""
        return self.read(OPTIONS[name])

    def read(self, option: Option) -> Any:
        name = option.name
        if name == "enable_manual_shard":
            value: Any = self.value("virtual_graph_mode") == option_value("virtual_graph_mode", "Manual")
        elif name == "enable_half_partial":
            value = self.value("partials_type_matmuls") == "half"
        elif name == CUSTOM_OPS:
            value = [str(mapping) for mapping in self.custom_ops]
        elif name in self._values:
            value = self._values[name]
        else:
            value = option.default
        if option.type == VECTOR:
            return list(value)
        if option.type == MAP:
            return dict(value)
        return value

    @property
    def seed(self) -> Optional[int]:
        """``random_seed`` if it was set."""
        seed = self.value("random_seed")
        return None if seed == UNSET_SEED else seed

    def set(self, name: str, value: Any) -> None:
        if name == "compilation_progress_logger":
            self._set_progress_logger(value)
        elif isinstance(value, bool):
            self._set_bool(name, value)
        elif isinstance(value, float):
            self._values[_find(name, DOUBLE).name] = float(value)
        elif isinstance(value, int):
            self._set_int(name, value)
        elif isinstance(value, str):
            self._values[_find(name, STRING).name] = str(value)
        elif isinstance(value, (list, set)):
            self._extend(name, [_entry(name, entry) for entry in value])
        elif isinstance(value, dict):
            self._set_dict(name, value)
        else:
            refusals.OPTION_VALUE(name=name, value=value)

    def _set_bool(self, name: str, value: bool) -> None:
        option = _find(name, BOOL)
        if name == "enable_manual_shard":
            self._values["virtual_graph_mode"] = option_value("virtual_graph_mode", "Manual" if value else "Off")
        elif name == "enable_half_partial":
            partials = "half" if value else "float"
            self._values["partials_type_matmuls"] = partials
            self._insert("convolution_options", {"partialsType": partials})
        else:
            self._values[option.name] = value

    def _set_int(self, name: str, value: int) -> None:
        option = _find(name, UINT64)
        number = _uint64(name, value)
        refusals.ENUMERATION(option=option, number=number)
        self._values[name] = number

    def _extend(self, name: str, entries: List[str]) -> None:
        _find(name, VECTOR)
        held = list(self._held(name))
        # Checks and instruments are sets in order, while codelets are files in the order in which they were given.
        self._values[name] = tuple(held + entries if name == "custom_codelets" else sorted({*held, *entries}))

    def _set_dict(self, name: str, value: Dict[Any, Any]) -> None:
        if name.startswith("location_"):
            self._set_location(name, value)
        elif name == COLLECTIVES:
            refusals.COLLECTIVE(keys=list(value))
            self.collectives.update((key, bool(switch)) for key, switch in value.items())
        elif name == "accumulate_outer_fragment":
            for schedule, indices in value.items():
                self.outer_fragment = (_uint64(name, schedule), tuple(int(index) for index in indices))
        elif name == "custom_op":
            self.custom_ops.append(_custom_op(value))
        else:
            _find(name, MAP)
            self._insert(name, {str(key): _entry(name, entry) for key, entry in value.items()})

    def _insert(self, name: str, entries: Mapping[str, str]) -> None:
        """An entry that is there stays as it is."""
        self._values[name] = {**entries, **self._held(name)}

    def _held(self, name: str) -> Any:
        """What a vector or a map holds, to which whatever is set is added."""
        return self._values.get(name, OPTIONS[name].default)

    def _set_location(self, name: str, value: Dict[Any, Any]) -> None:
        refusals.TENSOR_LOCATION(name=name, keys=list(value))
        for key, number in value.items():
            self.places.setdefault(name, {})[key] = _uint64(f"{name}.{key}", number)

    def _set_progress_logger(self, value: Any) -> None:
        if not callable(value):
            raise UncastableError(
                f"Unable to cast {value!r} to the compilation_progress_logger: give a function of (progress, total)"
            )
        self.progress_logger = value


def option_value(name: str, member: str) -> int:
    """The number that stands for a member of an option's enumeration."""
    return OPTIONS[name].members.index(member)


def _find(name: str, kind: str) -> Option:
    refusals.UNKNOWN_OPTION(name=name, kind=kind, known=SETTABLE)
    option = OPTIONS[name]
    refusals.OPTION_TYPE(name=name, kind=kind, declared=option.type)
    return option


def _uint64(name: str, value: Any) -> int:
    refusals.UINT64(name=name, value=value)
    return int(value) % 2**64


def _entry(name: str, entry: Any) -> str:
    """An entry of a vector or a map is text; whole numbers are written as text."""
    refusals.ENTRY(name=name, entry=entry)
    return str(_uint64(name, int(entry)) if isinstance(entry, int) else entry)


def _custom_op(value: Mapping[Any, Any]) -> CustomOpMapping:
    for key in value:
        refusals.CUSTOM_OP_KEY(key=key)
    return CustomOpMapping(
        str(value.get("paddle_op", "")),
        str(value.get("popart_op", "")),
        str(value.get("domain", "")),
        int(value.get("version", -1)),
    )


def option_text(option: Option, value: Any) -> str:
    if option.type == DOUBLE:
        return f"{value:.6f}"
    return str(int(value)) if option.type in (BOOL, UINT64) else str(value)
