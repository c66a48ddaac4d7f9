"""Which cases a run is about: options and environment variables in, one frozen selection out."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ipu_conformance.errors import ConformanceError
from ipu_conformance.targets import FAULT, FRAMEWORKS, Choice, Target, TargetError, choose, devices_of, discover

LEVELS = ("smoke", "premerge", "qualify", "soak")
"""From the quickest to the most thorough; each level includes those before it."""


class Option(NamedTuple):
    """A command-line option of the plug-in; the same value can come from an environment variable."""

    flag: str
    variable: str
    default: str
    help: str


OPTIONS: Mapping[str, Option] = {
    "target": Option(
        "--ipu-target",
        "IPU_CONFORMANCE_TARGET",
        "auto",
        "what executes the cases: auto, emulator, ipu-model, hardware or the name of a vendor's plug-in",
    ),
    "frameworks": Option(
        "--ipu-frameworks",
        "IPU_CONFORMANCE_FRAMEWORKS",
        "auto",
        f"a comma-separated list of {', '.join(FRAMEWORKS)}; auto takes those that can run",
    ),
    "level": Option(
        "--ipu-level",
        "IPU_CONFORMANCE_LEVEL",
        "premerge",
        f"how thorough the run is: {', '.join(LEVELS)}",
    ),
    "count": Option(
        "--ipu-count",
        "IPU_CONFORMANCE_COUNT",
        "auto",
        "how many IPUs a case may use; auto asks the target",
    ),
}


@dataclass(frozen=True)
class Selection:
    """What a run is about. Choices hold every framework, also those that are left out (with the reason)."""

    wanted_target: str
    level: str
    choices: Tuple[Choice, ...]
    left_out: Tuple[str, ...]
    count: Optional[int]

    def choice(self, framework: str) -> Optional[Choice]:
        """The choice for a framework that takes part in the run, None for one that is left out."""
        if framework in self.left_out:
            return None
        return next(choice for choice in self.choices if choice.framework == framework)

    @property
    def frameworks(self) -> Tuple[str, ...]:
        """The frameworks that take part in the run."""
        return tuple(choice.framework for choice in self.choices if choice.framework not in self.left_out)

    @property
    def kinds(self) -> Tuple[str, ...]:
        """The kinds of target in the run; with no framework left, the kind that a neutral case runs on."""
        kinds = {choice.kind for choice in self.choices if choice.framework not in self.left_out and choice.kind}
        if not kinds and self.wanted_target in ("auto", "emulator"):
            return ("emulator",)
        return tuple(sorted(kinds))

    def ipus(self, framework: Optional[str]) -> int:
        """How many IPUs a case of ``framework`` (None: of no framework) may use."""
        offered = [
            choice.ipus
            for choice in self.choices
            if choice.framework not in self.left_out and framework in (None, choice.framework)
        ]
        available = max(offered) if offered else 0
        if self.count is None:
            return available
        return self.count

    def has_level(self, level: str) -> bool:
        """Whether the cases of a level belong to the run."""
        return LEVELS.index(level) <= LEVELS.index(self.level)

    def to_dict(self) -> Dict[str, Any]:
        """Plain data, for a worker process."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Selection:
        """The selection that ``to_dict`` wrote."""
        return cls(
            wanted_target=data["wanted_target"],
            level=data["level"],
            choices=tuple(Choice(**choice) for choice in data["choices"]),
            left_out=tuple(data["left_out"]),
            count=data["count"],
        )


def select(options: Mapping[str, Optional[str]], environment: Optional[Mapping[str, str]] = None) -> Selection:
    """Decide what runs where; an option beats its environment variable, which beats the default.

    Raises TargetError for a value that is not allowed and for a framework that was asked for and cannot run; a target
    refuses what the environment asks of it in vain, such as a fault that does not exist.
    """
    variables = os.environ if environment is None else environment
    values = {name: _value(name, options, variables) for name in OPTIONS}
    level = values["level"]
    if level not in LEVELS:
        raise TargetError(f"{OPTIONS['level'].flag} is {level!r}; choose one of {', '.join(LEVELS)}.")
    targets = discover()
    choices = tuple(choose(framework, values["target"], targets) for framework in FRAMEWORKS.values())
    asked = _asked_frameworks(values["frameworks"])
    for choice in choices:
        if asked is not None and choice.framework in asked and choice.target is None:
            raise TargetError(
                f"{choice.framework} was asked for and cannot run on target {values['target']!r}: {choice.reason}."
            )
    left_out = tuple(
        choice.framework
        for choice in choices
        if choice.target is None or (asked is not None and choice.framework not in asked)
    )
    count = _count(values["count"])
    offered = [choice.ipus for choice in choices if choice.framework not in left_out]
    if count is not None and offered and count > max(offered):
        raise TargetError(
            f"{OPTIONS['count'].flag} is {count}, and target {values['target']!r} offers {max(offered)} IPUs; "
            "ask for no more."
        )
    for name in sorted({choice.target for choice in choices if choice.target and choice.framework not in left_out}):
        on_it = [each.framework for each in choices if each.target == name and each.framework not in left_out]
        _require(targets[name], on_it, variables)
        _require_devices(targets[name], max(each.ipus for each in choices if each.framework in on_it))
    return Selection(values["target"], level, choices, left_out, count)


def _require(target: Target, frameworks: Sequence[str], environment: Mapping[str, str]) -> None:
    """Let a target refuse what the environment asks of it; its own sentence is the best."""
    if environment.get(FAULT) and target.kind != "emulator":
        raise TargetError(
            f"{FAULT} is {environment[FAULT]!r}, and target {target.name!r} is no emulator, which alone can be wrong "
            "on purpose; unset it."
        )
    try:
        target.require(frameworks, environment)
    except ConformanceError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TargetError(f"Target {target.name!r} cannot check what is asked of it: {reason}.") from error


def _require_devices(target: Target, ipus: int) -> None:
    """A target that names devices names as many as it offers: a case that needs more would hold none."""
    devices = devices_of(target)
    if devices and len(devices) < ipus:
        raise TargetError(
            f"Target {target.name!r} offers {ipus} IPUs and names {len(devices)} devices; let it name each, or none."
        )


def _value(name: str, options: Mapping[str, Optional[str]], environment: Mapping[str, str]) -> str:
    option = OPTIONS[name]
    given = options.get(name)
    if given is not None:
        return given
    return environment.get(option.variable) or option.default


def _asked_frameworks(value: str) -> Optional[List[str]]:
    """The frameworks named in ``value``, None for auto."""
    if value == "auto":
        return None
    names = [name.strip() for name in value.split(",") if name.strip()]
    unknown = [name for name in names if name not in FRAMEWORKS]
    if unknown or not names:
        what = f"names {unknown[0]!r}" if unknown else "is empty"
        raise TargetError(f"{OPTIONS['frameworks'].flag} {what}; choose from {', '.join(FRAMEWORKS)}, or auto.")
    return names


def _count(value: str) -> Optional[int]:
    if value == "auto":
        return None
    if not value.isdecimal() or int(value) < 1:
        raise TargetError(f"{OPTIONS['count'].flag} is {value!r}; give a whole number from 1, or auto.")
    return int(value)
