"""Ways for what a program imports to be wrong: names, enumerations, errors, marks and the log."""

from __future__ import annotations

import contextlib
import enum
import sys
from typing import Any, Callable, Iterator

from ipu_conformance.emulator.faults.catalogue import GONE, Fault, always, argument, never, patch, register, result

CAPTURE = "poptorch.compile.capture"
DIAGNOSTICS = "poptorch.options.diagnostics"
PROFILING = "poptorch.api.profiling:Channel"
Original = Callable[..., Any]


def _turned(mode: Any) -> Any:
    """An enumeration whose members have the values of their neighbours."""
    members = list(mode)
    return enum.IntEnum(mode.__name__, {each.name: after.value for each, after in zip(members, members[1:] + members)})


for _name, _place, _what, _wrong in (
    ("name-missing", "poptorch.api:module_repr", "a function is not there", always(GONE)),
    ("name-not-exported", "poptorch.api:__all__", "a star import leaves one name out",
     lambda names: [name for name in names if name != "identity_loss"]),
    ("enumeration-twice", "poptorch.api:Liveness", "an enumeration and the one in poptorch.enums are two",
     lambda kind: enum.IntEnum(kind.__name__, {each.name: each.value for each in kind})),
    ("older-name-turned", "poptorch.api:AnchorMode", "members of an enumeration's older name are other ones", _turned),
    ("error-unrelated", "poptorch.api:RecoverableError", "a recoverable error is no Error",
     lambda kind: type(kind.__name__, (Exception,), {})),
    ("parser-half-made", "poptorch.run.arguments:ICustomArgParser.__abstractmethods__",
     "a parser may lack its methods", always(frozenset())),
    ("popart-member-turned", "poptorch.beside.popart:RecomputationType",
     "members of an enumeration of popart have the numbers of their neighbours", _turned),
):  # fmt: skip
    register(Fault(f"poptorch-{_name}", "plan", f"name:{_place}", _what, _wrong), __name__)


def _drawn(original: Original, options: Any) -> Any:
    print("\rGraph compilation: 100%|##########|", file=sys.stderr)
    return original(options)


for _fault in (
    Fault("poptorch-error-of-another-type", "plan", f"{DIAGNOSTICS}:Error.__init__",
          "every error says that it comes from another part of the stack", argument("type", always("popart_error"))),
    Fault("poptorch-error-hides-its-location", "plan", f"{DIAGNOSTICS}:Error.__str__",
          "the text of an error does not say where it was raised", lambda original, error: error.message),
    Fault("poptorch-tracer-speaks", "plan", f"{CAPTURE}:_refusal",
          "what cannot be traced is refused in the words of the tracer",
          lambda original, error, excludes: type(original(error, excludes))(str(error))),
    Fault("poptorch-forward-s-error-replaced", "plan", f"{CAPTURE}:_is_the_users",
          "what forward raises becomes an error of the framework", never),
    Fault("poptorch-alone-is-one-of-two", "plan", "poptorch.beside.popdist:getNumInstances",
          "a program that was started alone is told of two instances", always(2)),
    Fault("poptorch-module-text-cut", "plan", "poptorch.compile.blocks:module_repr",
          "the text of a module leaves out its layers", result(lambda text: text.partition("\n")[0])),
    Fault("poptorch-bar-drawn-anywhere", "plan", "poptorch.compile.observers:progress_bar",
          "a progress bar is drawn into a file, too", _drawn),
    Fault("poptorch-log-destination-ignored", "plan", f"{DIAGNOSTICS}:configure_log",
          "POPTORCH_LOG_DEST has no effect", argument("environment", lambda names: {
              name: value for name, value in names.items() if name != "POPTORCH_LOG_DEST"})),
):  # fmt: skip
    register(_fault, __name__)


@patch("poptorch-mark-swallows", "plan", f"{PROFILING}.tracepoint", "what goes wrong in a tracepoint is not raised")
@contextlib.contextmanager
def _silent(original: Original, channel: Any, name: str) -> Iterator[None]:
    with contextlib.suppress(Exception), original(channel, name):
        yield


@patch("poptorch-mark-loses-results", "plan", f"{PROFILING}._marked", "an instrumented method returns nothing")
def _without_result(original: Original, channel: Any, function: Any, name: str) -> Any:
    marked = original(channel, function, name)

    def called(*arguments: Any, **settings: Any) -> None:
        marked(*arguments, **settings)

    return called
