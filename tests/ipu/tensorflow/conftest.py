"""What the cases of TensorFlow share."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest

from .device_programs import MODES, Device

# Silences the C++ part of TensorFlow, which reads its level once, at the import.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture
def tf() -> Any:
    """TensorFlow itself."""
    return importlib.import_module("tensorflow")


@pytest.fixture
def ipu(tf: Any) -> Any:
    """The vendor's package, or whatever the target puts in its place."""
    return importlib.import_module("tensorflow.python.ipu")


KEPT = 16
"""Cases that share the kernels of what they compute outside of functions: to make a kernel takes ten times as long as
to use it. From time to time all go, those of functions that nobody calls any more among them."""
_cases = itertools.count(1)


@pytest.fixture(autouse=True)
def _clean_system() -> Iterator[None]:
    """No case inherits a configuration, a graph or Keras' counters from the one before, of whatever folder."""
    if "tensorflow.python.ipu" in sys.modules:
        sys.modules["tensorflow.python.ipu"].utils.reset_ipu_configuration()
    yield
    if "tensorflow.python.ipu" in sys.modules:
        tensorflow = sys.modules["tensorflow"]
        sys.modules["tensorflow.python.ipu"].utils.reset_ipu_configuration()
        with pytest.MonkeyPatch.context() as patch:
            if next(_cases) % KEPT:
                runtime = importlib.import_module("tensorflow.python.eager.context").Context
                patch.setattr(runtime, "clear_kernel_cache", lambda self: None)
            tensorflow.keras.backend.clear_session()


@pytest.fixture
def configure(ipu: Any) -> Callable[..., Any]:
    """Configures the system with ``ipus`` in each device, and with attributes by their full names."""

    def put_in_force(ipus: Any = 1, **attributes: Any) -> Any:
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = ipus
        for name, value in attributes.items():
            *categories, attribute = name.split("__")
            category = config
            for inner in categories:
                category = getattr(category, inner)
            setattr(category, attribute, value)
        config.configure_ipu_system()
        return config

    return put_in_force


@pytest.fixture
def strategy_on(ipu: Any, configure: Callable[..., Any]) -> Callable[..., Any]:
    """Configures the system as ``configure`` does, and opens a strategy on it."""

    def opened(ipus: Any = 1, **attributes: Any) -> Any:
        configure(ipus, **attributes)
        return ipu.ipu_strategy.IPUStrategy()

    return opened


@pytest.fixture
def strategy(strategy_on: Callable[..., Any]) -> Any:
    """A strategy on one IPU."""
    return strategy_on()


@pytest.fixture(params=MODES)
def device(request: Any, tf: Any, ipu: Any, configure: Any) -> Iterator[Device]:
    """A device that runs programs in a function of a strategy, or in a session."""
    with contextlib.closing(Device(tf, ipu, configure, request.param)) as one:
        yield one


@pytest.fixture
def eager(tf: Any, ipu: Any, configure: Any) -> Device:
    """A device that runs programs in a function of a strategy."""
    return Device(tf, ipu, configure, "function")


@pytest.fixture
def graph(tf: Any, ipu: Any, configure: Any) -> Iterator[Device]:
    """A device that runs programs in a session."""
    with contextlib.closing(Device(tf, ipu, configure, "graph")) as one:
        yield one


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], List[Path]]:
    """Asks for reports; gives the folders that have been written, the oldest first."""
    folder = tmp_path / "reports"
    options = {"autoReport.all": "true", "autoReport.directory": str(folder)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    return lambda: sorted(folder.glob("tf_report__*"))


class _Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def said(tf: Any) -> Iterator[Callable[[], str]]:
    """TensorFlow's warnings since the case began."""
    collecting = _Collecting()
    logger = tf.get_logger()
    logger.addHandler(collecting)
    yield lambda: "\n".join(collecting.lines)
    logger.removeHandler(collecting)
