"""A report that travels packed arrives as it was sent."""

from __future__ import annotations

import threading
from typing import Any, Dict, Iterator

import execnet
import pytest

from ipu_conformance.workers.packing import PACKED, TYPE, Packing


@pytest.fixture(autouse=True)
def _packing(pytestconfig: pytest.Config) -> Iterator[None]:
    """Only a run with workers packs its reports by itself."""
    plugins, packing = pytestconfig.pluginmanager, Packing()
    if any(isinstance(plugin, Packing) for plugin in plugins.get_plugins()):
        yield
        return
    plugins.register(packing)
    yield
    plugins.unregister(packing)


def report(**fields: Any) -> pytest.TestReport:
    """A skipped case with something in every field that pytest fills."""
    return pytest.TestReport(
        nodeid="tests/test_x.py::test_y[3-a]",
        location=("tests/test_x.py", 7, "test_y[3-a]"),
        keywords={"ipu": 1, "test_y[3-a]": 1},
        outcome="skipped",
        longrepr=("tests/test_x.py", 7, "Skipped: no device"),
        when="call",
        sections=[("Captured stdout call", "line\n\udc80")],
        duration=0.25,
        user_properties=[("convergence", "within its band"), ("counts", (3, 5))],
        **fields,
    )


def sent(config: pytest.Config, what: pytest.TestReport) -> Dict[str, Any]:
    """The fields that a worker sends."""
    fields: Dict[str, Any] = config.hook.pytest_report_to_serializable(config=config, report=what)
    return fields


def test_a_report_arrives_as_it_was_sent(pytestconfig: pytest.Config) -> None:
    """Tuples stay tuples, and what pytest-xdist has added beside the packed fields is there too."""
    fields = sent(pytestconfig, report(ipu_point=["add", "paddle", [0.5, float("inf")]]))
    assert set(fields) == {TYPE, PACKED}

    data = execnet.loads(execnet.dumps({**fields, "worker_id": "gw3"}))
    arrived = pytestconfig.hook.pytest_report_from_serializable(config=pytestconfig, data=data)

    expected = report(ipu_point=["add", "paddle", [0.5, float("inf")]], worker_id="gw3")
    assert vars(arrived) == {**vars(expected), TYPE: "TestReport"}


def test_what_cannot_be_packed_goes_as_it_is(pytestconfig: pytest.Config) -> None:
    """Pytest-xdist then says which value it cannot send."""
    lock = threading.Lock()

    assert sent(pytestconfig, report(held=lock))["held"] is lock
