"""``paddle.fluid.compiler``: the stock module, and the first name that the class for IPUs had."""

from __future__ import annotations

from typing import Any

from paddle.base.compiler import IpuCompiledProgram

from ipu_conformance.emulator.paddle.legacy import table

IPUCompiledProgram: Any = IpuCompiledProgram

__getattr__ = table.forwarded("paddle.fluid.compiler", "paddle.base.compiler")
