"""What executes a case: the three frameworks, the built-in targets, vendors' plug-ins, and which one is chosen.

Nothing here imports a framework: what is installed is read from file names and package metadata.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple

from ipu_conformance import __version__
from ipu_conformance.emulator.core.device import EMULATED_IPUS
from ipu_conformance.errors import ConformanceError

ENTRY_POINT_GROUP = "ipu_conformance.targets"
FAULT = "IPU_CONFORMANCE_FAULT"
"""The variable that makes the emulator wrong on purpose."""


class TargetError(ConformanceError):
    """A target or a framework that was asked for cannot be used."""


@dataclass(frozen=True)
class Framework:
    """A row of the framework table: how it is recognised without being imported."""

    name: str
    module: str
    distributions: Tuple[str, ...]
    extra: str
    sdk: str
    find_sdk: Callable[[], Optional[str]]

    @property
    def installed(self) -> bool:
        """Whether the module that the framework's CPU kernels come from can be imported."""
        return self.module in sys.modules or importlib.util.find_spec(self.module) is not None

    @property
    def version(self) -> Optional[str]:
        """The version that the package metadata states, None if the framework is not installed."""
        if not self.installed:
            return None
        for distribution in self.distributions:
            found = distribution_version(distribution)
            if found:
                return found
        return "unknown"


def distribution_version(name: str) -> Optional[str]:
    """The installed version of a distribution, None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package_folder(module: str) -> Optional[Path]:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _poptorch_sdk() -> Optional[str]:
    folder = _package_folder("poptorch")
    if folder is None or Path(__file__).parent in folder.parents:
        return None
    return distribution_version("poptorch") or "unknown"


def _tensorflow_sdk() -> Optional[str]:
    folder = _package_folder("tensorflow")
    if folder is None or not (folder / "python" / "ipu" / "__init__.py").is_file():
        return None
    return distribution_version("tensorflow") or "unknown"


def _paddle_sdk() -> Optional[str]:
    return distribution_version("paddlepaddle-ipu")


FRAMEWORKS: Mapping[str, Framework] = {
    row.name: row
    for row in (
        Framework("poptorch", "torch", ("torch",), "torch", "poptorch", _poptorch_sdk),
        Framework(
            "tensorflow",
            "tensorflow",
            ("tensorflow", "tensorflow-cpu", "tensorflow-intel"),
            "tensorflow",
            "Graphcore's TensorFlow",
            _tensorflow_sdk,
        ),
        Framework(
            "paddle",
            "paddle",
            ("paddlepaddle", "paddlepaddle-ipu", "paddlepaddle-gpu"),
            "paddle",
            "paddlepaddle-ipu",
            _paddle_sdk,
        ),
    )
}


@dataclass(frozen=True)
class Availability:
    """Whether a target can run a framework, and the reason in half a sentence."""

    usable: bool
    reason: str


class Inspector(Protocol):
    """A target's door to what the vendor's API does not show. ``program`` is the vendor's own object.

    What an inspector cannot show it returns as None.
    """

    def observe(self, program: Any) -> None:
        """Keep a trace of what the program executes from now on."""

    def values_by_replica(
        self, program: Any, values: Mapping[str, Any], replicas: int
    ) -> Optional[Tuple[Mapping[str, Any], ...]]:
        """The values that each replica holds, under the keys of ``values``, which maps them to the vendor's."""

    def trace(self, program: Any, replicas: int) -> Optional[Tuple[Any, ...]]:
        """The slots of the last run of a program that is observed, by tick."""

    def plan(self, config: Any) -> Optional[Iterable[Any]]:
        """The slots that a RunConfig implies."""

    def ir(self, program: Any) -> Optional[Any]:
        """The compiled program as an ``ipu_conformance.ir.Graph``, or a function that reads it once it is asked for.

        That of a Keras model is its last run: its inputs are the elements of the data set in their order, its outputs
        the model's logs in the order of their names, or its predictions, and ``name@1`` is what replica 1 holds of a
        variable. That of an estimator is its last loop: its outputs are the loss and what is left in an outfeed.
        """

    def memory(self, program: Any) -> Optional[Sequence[Mapping[str, int]]]:
        """The bytes that each IPU of a replica needs, by part: a row an IPU, with its number as ``ipu``."""


class Target:
    """Something that executes cases. A vendor's plug-in derives from this and overrides what differs.

    ``kind`` says which cases apply: those marked ``hardware`` run where it is "hardware", those marked ``emulator``
    where it is "emulator".
    """

    name = ""
    kind = "hardware"

    def probe(self, framework: Framework) -> Availability:
        """Say, without importing the framework, whether this target can run its cases."""
        raise NotImplementedError("its class needs a method probe(framework) that returns an Availability")

    def activate(self, framework: Framework) -> None:
        """Make the vendor's API of ``framework`` importable and point it at this target, once per process."""

    def require(self, frameworks: Sequence[str], environment: Mapping[str, str]) -> None:
        """Refuse, before anything runs, what environment variables ask of this target and it does not have."""

    def inspector(self, framework: Framework) -> Optional[Inspector]:
        """The door to what the vendor's API of ``framework`` does not show, None where there is none."""
        return None

    def ipus(self) -> int:
        """How many IPUs there are."""
        return EMULATED_IPUS

    pins = False
    """Whether ``pin`` decides which devices are used."""

    def devices(self) -> Sequence[str]:
        """The names of the devices, which cases lease; none where cases cannot get into each other's way."""
        return ()

    def pin(self, devices: Sequence[str]) -> None:
        """Use these devices, in this process, from now on."""

    def identity(self) -> Mapping[str, str]:
        """How the device names itself (model, serial numbers, firmware): words for a report."""
        return {}


class Hardware(Target):
    """A real SDK with real IPUs."""

    name = "hardware"
    kind = "hardware"

    def probe(self, framework: Framework) -> Availability:
        version = framework.find_sdk()
        if version is None:
            return Availability(False, f"{framework.sdk} is not installed")
        count = self.ipus()
        if not count:
            return Availability(False, f"{framework.sdk} {version} finds no IPU")
        return Availability(True, f"{framework.sdk} {version} with {count} IPUs")

    def ipus(self) -> int:
        return attached_ipus()

    def devices(self) -> Sequence[str]:
        # The SDK takes any that are free: as many leases as devices keep workers from asking for more.
        return [f"ipu{number}" for number in range(self.ipus())]

    def identity(self) -> Mapping[str, str]:
        tool = shutil.which("gc-info")
        if tool is None:
            return {}
        try:
            answer = subprocess.run([tool, "--list-devices"], capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return {}
        return {"gc-info": answer.stdout.strip()} if answer.returncode == 0 else {}


MODEL_SWITCHES: Mapping[str, Tuple[str, str]] = {
    "poptorch": ("POPTORCH_IPU_MODEL", "1"),
    "tensorflow": ("TF_POPLAR_FLAGS", "--use_ipu_model"),
    "paddle": ("POPLAR_IPUMODEL", "1"),
}
"""The environment variable that makes each vendor's SDK use its IPU model."""


class IpuModel(Target):
    """A real SDK with the vendor's own software model of an IPU."""

    name = "ipu-model"
    kind = "ipu-model"

    def probe(self, framework: Framework) -> Availability:
        version = framework.find_sdk()
        if version is None:
            return Availability(False, f"{framework.sdk} is not installed")
        return Availability(True, f"the IPU model of {framework.sdk} {version}")

    def activate(self, framework: Framework) -> None:
        variable, switch = MODEL_SWITCHES[framework.name]
        present = os.environ.get(variable, "")
        if switch not in present.split():
            os.environ[variable] = f"{present} {switch}".strip()


class Emulator(Target):
    """The built-in virtual IPU, reached under the vendors' own names."""

    name = "emulator"
    kind = "emulator"

    def probe(self, framework: Framework) -> Availability:
        if not framework.installed:
            return Availability(
                False, f"{framework.module} is not installed: pip install 'ipu-conformance[{framework.extra}]'"
            )
        from ipu_conformance.emulator import hook

        if framework.name not in hook.FRONT_ENDS:
            return Availability(False, f"this release of the emulator has no {framework.name} front end")
        why_not = hook.FRONT_ENDS[framework.name].why_not(str(framework.version))
        if why_not is not None:
            return Availability(False, f"{framework.module} {framework.version} cannot be emulated: {why_not}")
        return Availability(True, f"built in, on {framework.module} {framework.version}")

    def identity(self) -> Mapping[str, str]:
        return {"device": f"virtual IPU of ipu-conformance {__version__}"}

    def activate(self, framework: Framework) -> None:
        from ipu_conformance.emulator import hook

        hook.install(framework.name)

    def require(self, frameworks: Sequence[str], environment: Mapping[str, str]) -> None:
        names = [name.strip() for name in environment.get(FAULT, "").split(",") if name.strip()]
        if names:
            # By name: nothing here imports a front end.
            importlib.import_module("ipu_conformance.emulator.faults.asked").require(names, frameworks)

    def inspector(self, framework: Framework) -> Optional[Inspector]:
        inspectors = importlib.import_module("ipu_conformance.emulator.inspection").INSPECTORS
        inspector: Inspector = inspectors[framework.name]()
        return inspector


def attached_ipus() -> int:
    """The number of IPUs that the vendor's ``gc-info`` reports; 0 where there is no such tool or it fails."""
    tool = shutil.which("gc-info")
    if tool is None:
        return 0
    try:
        answer = subprocess.run([tool, "--device-count"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    numbers = re.findall(r"\d+", answer.stdout)
    return int(numbers[-1]) if answer.returncode == 0 and numbers else 0


BUILT_IN: Tuple[Callable[[], Target], ...] = (Hardware, IpuModel, Emulator)
AUTOMATIC = tuple(target.name for target in (Hardware, IpuModel, Emulator))
"""The order in which ``auto`` looks for a target; a vendor's plug-in is used only when it is named."""


class Targets(Mapping[str, Target]):
    """Every target by its name: the built-in ones, and the plug-ins of the entry-point group.

    A plug-in is loaded when it is asked for by its name, and one that cannot be used is an error then and not before.
    """

    def __init__(self) -> None:
        self._loaded = {target.name: target for target in (make() for make in BUILT_IN)}
        self._built_in = tuple(self._loaded)
        self._plug_ins = {point.name: point for point in _entry_points()}

    def __getitem__(self, name: str) -> Target:
        if name not in self._loaded:
            self._loaded[name] = _load(self._plug_ins[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._plug_ins

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._built_in, *self._plug_ins)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def broken(self) -> List[str]:
        """What is wrong with plug-ins that cannot be used, in sentences; all are loaded for it."""
        found = []
        for name, point in self._plug_ins.items():
            try:
                if name in (*self._built_in, "auto"):
                    raise TargetError(f"{_where(point)} takes a name that is in use; rename its entry point.")
                self[name]
            except TargetError as error:
                found.append(str(error))
        return found


def discover() -> Targets:
    """Every target by its name; no plug-in is loaded."""
    return Targets()


def _entry_points() -> Iterable[metadata.EntryPoint]:
    found = metadata.entry_points()
    if hasattr(found, "select"):
        return found.select(group=ENTRY_POINT_GROUP)
    return found.get(ENTRY_POINT_GROUP, ())  # Python before 3.10


def _where(entry_point: metadata.EntryPoint) -> str:
    return f"target plug-in {entry_point.name!r} ({entry_point.value})"


def _load(entry_point: metadata.EntryPoint) -> Target:
    """The plug-in behind an entry point; one that cannot be used is refused with a sentence that names it."""
    try:
        target = entry_point.load()()
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TargetError(
            f"{_where(entry_point)} cannot be loaded: {reason}; repair or uninstall the package."
        ) from error
    if not isinstance(target, Target):
        raise TargetError(
            f"{_where(entry_point)} is not a subclass of ipu_conformance.targets.Target; derive it from that class."
        )
    target.name = entry_point.name
    return target


_ACTIVE: Dict[str, Target] = {}


def activate(target: Target, framework: Framework) -> None:
    """Point a framework at a target and remember it; a second time does nothing."""
    before = active(framework.name)
    if before is None or before.name != target.name:
        target.activate(framework)
        _ACTIVE[framework.name] = target


def active(framework: str) -> Optional[Target]:
    """The target that a framework was pointed at in this process, None before that."""
    return _ACTIVE.get(framework)


def inspector(framework: str) -> Optional[Inspector]:
    """The inspector of a framework's active target, None where it has none."""
    target = active(framework)
    return None if target is None else target.inspector(FRAMEWORKS[framework])


TIME_TO_TELL = 60.0
"""Seconds in which a target has to say what it is asked."""


def told(
    target: Target,
    what: str,
    ask: Callable[[], Any],
    fits: Callable[[Any], bool],
    wanted: str,
    seconds: float = TIME_TO_TELL,
) -> Any:
    """What a target says when it is asked; one that raises, hangs or says something else is refused with a sentence."""
    answers: List[Any] = []
    errors: List[BaseException] = []

    def listen() -> None:
        try:
            answers.append(ask())
        except BaseException as error:  # also the end of the process, which a driver without a licence asks for
            errors.append(error)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        reason = " ".join(str(errors[0]).split()) or type(errors[0]).__name__
        raise TargetError(f"Target {target.name!r} cannot say {what}: {reason}.") from errors[0]
    if not answers:
        raise TargetError(f"Target {target.name!r} did not say {what} within {seconds:g} s; repair its plug-in.")
    if not fits(answers[0]):
        raise TargetError(f"Target {target.name!r} was asked {what} and said {answers[0]!r}; let it return {wanted}.")
    return answers[0]


def devices_of(target: Target) -> Sequence[str]:
    """The names of a target's devices."""
    names: Sequence[str] = told(target, "which devices it has", target.devices, _are_names, "a list of names")
    return names


def identity_of(target: Target) -> Mapping[str, str]:
    """The words with which a target's device names itself."""
    words: Mapping[str, str] = told(
        target, "how its device names itself", target.identity, _are_words, "a dictionary of strings"
    )
    return words


def _is_availability(said: Any) -> bool:
    return isinstance(said, Availability) and isinstance(said.usable, bool) and isinstance(said.reason, str)


def _is_count(said: Any) -> bool:
    return type(said) is int and said > 0


def _are_names(said: Any) -> bool:
    return isinstance(said, (list, tuple)) and all(isinstance(name, str) for name in said)


def _are_words(said: Any) -> bool:
    return isinstance(said, Mapping) and all(isinstance(word, str) for pair in said.items() for word in pair)


@dataclass(frozen=True)
class Choice:
    """Which target runs a framework's cases, and why; ``target`` is None where none can."""

    framework: str
    target: Optional[str]
    kind: Optional[str]
    ipus: int
    reason: str


def choose(framework: Framework, wanted: str, targets: Mapping[str, Target]) -> Choice:
    """Pick the target of one framework: the one that is named, or the first usable one for ``auto``."""
    if wanted != "auto" and wanted not in targets:
        known = ", ".join(["auto", *targets])
        raise TargetError(f"There is no target {wanted!r}; choose one of {known}, or install its plug-in.")
    candidates: Sequence[str] = AUTOMATIC if wanted == "auto" else (wanted,)
    refusals: List[str] = []
    for name in candidates:
        target = targets[name]
        probe = functools.partial(target.probe, framework)
        availability = told(target, f"whether it runs {framework.name}", probe, _is_availability, "an Availability")
        if availability.usable:
            count = told(target, "how many IPUs it has", target.ipus, _is_count, "a whole number above 0")
            return Choice(framework.name, name, target.kind, count, availability.reason)
        if availability.reason not in refusals:
            refusals.append(availability.reason)
    return Choice(framework.name, None, None, 0, "; ".join(refusals))
