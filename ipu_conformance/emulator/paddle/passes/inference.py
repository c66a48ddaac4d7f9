"""The passes that paddle.inference adds."""

from __future__ import annotations

from typing import Any, Mapping

from ipu_conformance.emulator.paddle.passes.compilation import Compilation


def process(record: Compilation, values: Mapping[str, Any]) -> None:
    """Check the settings of an inference."""


def transfer(record: Compilation, values: Mapping[str, Any]) -> None:
    """With ``enable_fp16``, turn float32 into float16."""


def postprocess(record: Compilation, values: Mapping[str, Any]) -> None:
    """Leave feeds and fetches as a predictor reads them."""
