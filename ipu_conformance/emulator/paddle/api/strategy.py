"""``core.IpuStrategy``: the vendor's names over the options of a strategy."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile.options import DOUBLE, MAP, OPTIONS, SET_ONLY, VECTOR
from ipu_conformance.emulator.paddle.compile.strategy_options import StrategyOptions, option_text
from ipu_conformance.emulator.paddle.errors import UncastableError

DEFAULT_PATTERNS = frozenset(
    {
        "ContiguateIpuCopyIndicesPattern",
        "InPlace",
        "MatMulLhsGradOp",
        "MatMulRhsGradOp",
        "NlllWithSoftMaxGradDirect",
        "OpToIdentity",
        "PostNRepl",
        "PreUniRepl",
        "SoftMaxGradDirect",
        "SplitGradOpToConcat",
        "UpdateInplacePrioritiesForIpu",
        "ViewSimplifyPattern",
    }
)
"""Graph rewrites that are on unless they are disabled."""


class IpuStrategy(StrategyOptions):
    """What a user asks of the device: options and graph rewrites."""

    def __init__(self) -> None:
        super().__init__()
        self._patterns: Dict[str, bool] = {}

    def set_options(self, options: Mapping[str, Any]) -> None:
        """Set each option in order; one that is refused leaves those before it set."""
        if not isinstance(options, dict):
            raise TypeError(f"the options of a strategy are a dict of names and values, not {type(options).__name__}")
        for name, value in options.items():
            if not isinstance(name, str):
                raise UncastableError(f"Unable to cast {name!r} to the name of an option: give a str")
            self.set(name, value)

    def get_option(self, name: str) -> Dict[str, Any]:
        """The name, type and value of one option; a scalar's value also as the text that a number is read from."""
        refusals.UNREADABLE_OPTION(name=name, known=OPTIONS, set_only=SET_ONLY)
        option = OPTIONS[name]
        value = self.read(option)
        result = {"name": name, "type": option.type, "value": value}
        if option.type not in (VECTOR, MAP):
            text = result["value_s"] = option_text(option, value)
            result["value"] = float(text) if option.type == DOUBLE else value
        return result

    def get_all_option_names(self) -> List[str]:
        """The names of all options that can be read."""
        return sorted(OPTIONS)

    def enable_pattern(self, name: str) -> None:
        """Turn a graph rewrite on."""
        self._patterns[_pattern(name)] = True

    def disable_pattern(self, name: str) -> None:
        """Turn a graph rewrite off."""
        self._patterns[_pattern(name)] = False

    def is_pattern_enabled(self, name: str) -> bool:
        """Whether a graph rewrite is on: as it was set last, else by default."""
        return self._patterns.get(_pattern(name), name in DEFAULT_PATTERNS)


def _pattern(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a pattern is a str, not {type(name).__name__}")
    return name
