"""Options._Popart and Options.Jit: what is handed to the layer below as it is, and what is left of tracing."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Mapping

from ipu_conformance.emulator.poptorch.log import deprecated
from ipu_conformance.emulator.poptorch.options.values import NOT_NEGATIVE, OptionValues, Value


class _PopartOptions(OptionValues):
    """Session options by their PopART names; ``options`` reads them back."""

    TABLE: ClassVar[Mapping[str, Value]] = {
        "options": Value({}, (dict,)),
        "patterns": Value({}, (dict,)),
        "patterns_level": Value(2, (int,), NOT_NEGATIVE),
    }

    def set(self, *args: Any, **values: Any) -> _PopartOptions:
        """``set(name, value)`` sets one session option."""
        if not args:
            return super().set(**values)
        if len(args) != 2 or values or not isinstance(args[0], str):
            raise AssertionError(f"{args!r} was given: use set(name, value)")
        self._check_not_frozen(args[0])
        self._values["options"][args[0]] = args[1]
        return self

    def setEngineOptions(self, engine_options: Dict[str, str]) -> _PopartOptions:
        """Set Poplar's engine options, which are strings by name."""
        if not isinstance(engine_options, dict):
            raise AssertionError(f"{engine_options!r} was given: use a dictionary of engine options")
        return self.set("engineOptions", dict(engine_options))

    def setPatterns(self, patterns: Dict[str, bool], level: int = 2) -> _PopartOptions:
        """Turn patterns of the graph compiler on or off, starting from a level."""
        return self.set(patterns=patterns, patterns_level=level)


class _JitOptions(OptionValues):
    """Tracing, which there is no more."""

    TABLE: ClassVar[Mapping[str, Value]] = {"trace_model": Value(False, (bool,))}

    @deprecated("3.0", "models are always dispatched; remove the call")
    def traceModel(self, trace_model: bool) -> _JitOptions:
        """Accept False; True asks for a way of capturing models that there is no more."""
        self._check_not_frozen("trace_model")
        if trace_model is True:
            raise ValueError("traceModel(True) was given: models are no longer traced; remove the call")
        return self.set(trace_model=trace_model)
