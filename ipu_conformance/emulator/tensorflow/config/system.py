"""The configuration in force: its IPU devices, how many IPUs each has, and what a reset forgets.

It holds no TensorFlow object, so that device lists can ask it while TensorFlow is imported.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Tuple

from ipu_conformance.emulator.core import device as device_descriptions
from ipu_conformance.emulator.core.device import EMULATED_IPUS
from ipu_conformance.emulator.core.topology import power_of_two
from ipu_conformance.emulator.tensorflow.config import environment
from ipu_conformance.emulator.tensorflow.refusals import system as refusals
from ipu_conformance.errors import ConformanceError


class NotConfigured(ConformanceError, RuntimeError):  # noqa: N818 (it says what is)
    """IPU devices were asked for before a configuration."""


class NoSuchDevice(ConformanceError, ValueError):  # noqa: N818 (it says what is)
    """A device, or a number of IPUs, that the system does not have."""


class _State:
    """What ``configure`` sets and ``reset`` forgets."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.options: Optional[Any] = None
        self.devices: Tuple[int, ...] = ()
        self.on_reset: List[Callable[[], None]] = []
        self.seeds: Dict[str, Tuple[int, bool]] = {}


_STATE = _State()


def configure(options: Any) -> None:
    """Put a configuration (``config.IpuOptions``) in force."""
    counts = _ipus_of_devices(options)
    with _STATE.lock:
        _STATE.options = options
        _STATE.devices = counts


def reset() -> None:
    """Forget the configuration, and call all subscribers."""
    with _STATE.lock:
        _STATE.options = None
        _STATE.devices = ()
        _STATE.seeds.clear()
        called = list(_STATE.on_reset)
    for function in called:
        function()


def on_reset(function: Callable[[], None]) -> Callable[[], None]:
    """Call ``function`` whenever the configuration is forgotten: what was compiled for it is of no use then."""
    _STATE.on_reset.append(function)
    return function


def configured() -> bool:
    """Whether a configuration is in force."""
    return _STATE.options is not None


def options() -> Any:
    """The configuration in force; none is an error."""
    refusals.NOT_CONFIGURED(configured=configured())
    return _STATE.options


def recomputes(training: bool, stages: int) -> bool:
    """Whether stages of a pipeline compute their activations again for the backward pass."""
    return training and stages > 1 and configured() and bool(options().allow_recompute)


def devices() -> Tuple[int, ...]:
    """The number of IPUs of every device, in order; empty before a configuration."""
    return _STATE.devices


def ipus(device: int = 0) -> int:
    """The number of IPUs of one device."""
    refusals.NOT_CONFIGURED(configured=configured())
    counts = devices()
    refusals.NO_SUCH_DEVICE(device=device, devices=len(counts))
    return counts[device]


def chip() -> device_descriptions.Device:
    """The description of one IPU: that of the IPU model where it is in use, else the current hardware."""
    if not configured() or not environment.flags().use_ipu_model:
        return device_descriptions.MK2
    model = options().ipu_model
    described = device_descriptions.device(model.version)
    return replace(described, tiles=model.tiles_per_ipu) if model.tiles_per_ipu else described


def set_seed(device: str, seed: int, identical_replicas: bool) -> None:
    """Remember the seed that a device's random numbers start from."""
    _STATE.seeds[device] = (seed, identical_replicas)


def seed(device: str = "/device:IPU:0") -> Optional[Tuple[int, bool]]:
    """The seed of a device and whether all replicas draw alike; None where none was set."""
    return _STATE.seeds.get(device)


def ids() -> Tuple[int, ...]:
    """The number of IPUs behind every id of ``select_ipus``: single IPUs first, then pairs, and so on to all."""
    counts: List[int] = []
    size = 1
    while size <= power_of_two(EMULATED_IPUS):
        counts += [size] * (EMULATED_IPUS // size)
        size *= 2
    return tuple(counts)


def _ipus_of_devices(options: Any) -> Tuple[int, ...]:
    """One device of one IPU where nothing is selected."""
    numbers, chosen = _listed(options.auto_select_ipus), _listed(options.select_ipus)
    if chosen:
        known = ids()
        for identifier in chosen:
            refusals.UNKNOWN_ID(identifier=identifier, known=len(known))
        numbers = tuple(known[identifier] for identifier in chosen)
    counts = numbers or (1,)
    for count in counts:
        if count < 1:
            raise NoSuchDevice(f"A device of {count} IPUs was asked for; ask for at least 1.")
    refusals.TOO_MANY_IPUS(asked=sum(counts), there=EMULATED_IPUS)
    return counts


def _listed(selected: Any) -> Tuple[int, ...]:
    return (selected,) if isinstance(selected, int) else tuple(selected)


DEVICE_TYPE = "IPU"


def _numbers() -> range:
    """The numbers of the devices that TensorFlow sees: one for each group of IPUs that the configuration selects."""
    return range(len(devices()))


def physical_devices() -> List[Any]:
    """As ``tf.config.list_physical_devices`` gives them."""
    from tensorflow.python.eager import context

    return [context.PhysicalDevice(f"/physical_device:{DEVICE_TYPE}:{number}", DEVICE_TYPE) for number in _numbers()]


def logical_devices() -> List[Any]:
    """As ``tf.config.list_logical_devices`` gives them."""
    from tensorflow.python.eager import context

    return [context.LogicalDevice(f"/device:{DEVICE_TYPE}:{number}", DEVICE_TYPE) for number in _numbers()]


def session_devices() -> List[Any]:
    """As a session's ``list_devices`` gives them, with the memory of their IPUs."""
    from tensorflow.python.client import session

    return [
        session._DeviceAttributes(
            f"/job:localhost/replica:0/task:0/device:{DEVICE_TYPE}:{number}", DEVICE_TYPE, count * chip().memory, number
        )
        for number, count in enumerate(devices())
    ]
