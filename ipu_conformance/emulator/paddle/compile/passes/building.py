"""Handing the program to the backend, and leaving one op that runs it."""

from __future__ import annotations

from typing import Any, Mapping

from paddle.base import core

from ipu_conformance.emulator.faults.decisions import paddle_ir as decide
from ipu_conformance.emulator.paddle.compile.passes.compilation import Compilation, keep, name_of
from ipu_conformance.emulator.paddle.ir import dumps

TYPE = "ipu_runtime"


def build(record: Compilation, values: Mapping[str, Any]) -> None:
    """Compile the program on the backend."""
    record.feeds = tuple(name_of(feed) for feed in values.get("feed_list", record.feeds))
    record.fetches = tuple(name_of(fetch) for fetch in values.get("fetch_list", record.fetches))
    core.IpuBackend.get_instance().compile(record)
    dumps.compiled(record)


def replace(record: Compilation, values: Mapping[str, Any]) -> None:
    """Replace all ops by one ``ipu_runtime`` that reads the feeds and writes the fetches."""
    feeds = [name_of(feed) for feed in values.get("feed_list", record.feeds)]
    fetches = [name_of(fetch) for fetch in values.get("fetch_list", record.fetches)]
    keep(record.program, decide("left over", [], ops=record.ops()))
    desc = record.program.global_block().desc.append_op()
    desc.set_type(TYPE)
    desc.set_input("FeedList", decide("runtime feeds", feeds))
    desc.set_output("FetchList", decide("runtime fetches", fetches))
    record.program._sync_with_cpp()
