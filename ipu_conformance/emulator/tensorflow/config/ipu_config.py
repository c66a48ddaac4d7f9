"""IPUConfig: the configuration of the IPU system, as a tree of typed attributes; applied, read, forgotten."""

from __future__ import annotations

from enum import Enum
from typing import Any, Dict, List, Mapping

from ipu_conformance.emulator.tensorflow.config import environment, system
from ipu_conformance.emulator.tensorflow.config.attributes import (
    ATTRIBUTES,
    StochasticRoundingBehaviour,
)
from ipu_conformance.emulator.tensorflow.config.tree import Root, resolved
from ipu_conformance.emulator.tensorflow.refusals import system as refusals
from ipu_conformance.errors import ConformanceError

ALL_EXCEPTIONS = ("inv", "div0", "oflo", "nanoo")


class SelectionError(ConformanceError):
    """IPUs are selected in two ways at once, or in one that the target does not know."""


class ConfigurationTypeError(ConformanceError, TypeError):
    """A value that is not a configuration was passed to be put in force."""


class IpuOptions:
    """A snapshot of a configuration: attributes are read by name and cannot be set."""

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self.__dict__.update(_values=dict(values), _prefix=prefix)

    def __getattr__(self, name: str) -> Any:
        full = f"{self._prefix}.{name}" if self._prefix else name
        if full in self._values:
            return self._values[full]
        if full in ATTRIBUTES.categories:
            return IpuOptions(self._values, full)
        raise AttributeError(f"the options of an IPU system have no {full!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} cannot be set: change an IPUConfig, and configure the system with it")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IpuOptions) and (self._values, self._prefix) == (other._values, other._prefix)

    __hash__ = None  # type: ignore[assignment]

    def snapshot(self) -> IpuOptions:
        """The options as they are now."""
        return IpuOptions(self._values, self._prefix)

    def to_dict(self) -> Dict[str, Any]:
        """The values as a nested dictionary; members of enumerations by their names."""
        values = {name: getattr(self, name) for name in dir(self)}
        return {
            name: value.to_dict() if isinstance(value, IpuOptions) else value.name if isinstance(value, Enum) else value
            for name, value in values.items()
        }

    def __dir__(self) -> List[str]:
        return ATTRIBUTES.below(self._prefix)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self._values.items() if name.startswith(self._prefix))
        return f"IpuOptions({inside})"


class IPUConfig(Root):
    """A configuration whose attributes are set one by one, and put in force by ``configure_ipu_system``."""

    TABLE = ATTRIBUTES

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Put this configuration in force."""
        configure_ipu_system(self, device)

    def _create_protobuf(self) -> IpuOptions:
        """A snapshot of the configuration; one that cannot be put in force is refused."""
        refusals.TWO_SELECTIONS(by_number=_given(self.auto_select_ipus), by_id=_given(self.select_ipus))
        if _given(self.select_ipus):
            refusals.MODEL_IDS(use_ipu_model=environment.flags().use_ipu_model)
        return IpuOptions(resolved(self, self._exceptions()))

    def _exceptions(self) -> Dict[str, Any]:
        if not self.floating_point_behaviour.set_all:
            return {}
        category = "floating_point_behaviour"
        return {
            **{f"{category}.{name}": True for name in ALL_EXCEPTIONS},
            f"{category}.esr": StochasticRoundingBehaviour.ON,
        }


def _given(selected: Any) -> bool:
    return isinstance(selected, int) or len(selected) > 0


def configure_ipu_system(config: Any, device: str = "cpu", reset_configuration: bool = True) -> None:
    """Put a configuration in force; one that differs from the current one replaces it, with a warning."""
    from tensorflow.python.framework import ops

    refusals.NOT_CONFIGURATION(config=config, kinds=(IPUConfig, IpuOptions))
    options = config._create_protobuf() if isinstance(config, IPUConfig) else config.snapshot()
    if system.configured():
        if system.options() == options:
            return
        refusals.CONFIGURED_ONCE(replaceable=reset_configuration)
        _warn_of_another()
        reset_ipu_configuration()
    with ops.device(device):
        system.configure(options)


def _warn_of_another() -> None:
    from tensorflow.python.platform import tf_logging

    tf_logging.warning(
        "The IPU system is configured again with other options: what was compiled for the ones before is forgotten."
    )


def reset_ipu_configuration() -> None:
    """Forget the configuration in force, the devices, and what was compiled for them."""
    system.reset()


def get_ipu_config(session: Any = None) -> List[IpuOptions]:
    """The options in force, once for each device; an error before a configuration."""
    from tensorflow.python.eager import context

    if session is not None and context.executing_eagerly():
        raise ValueError("A session was given in eager execution; leave it out.")
    options = system.options()
    return [options for _ in system.devices()]
