"""Options inside the emulator: synthetic data, the progress bar, locations in the source, and what has no effect."""

from __future__ import annotations

import io
import logging
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
import torch

from ipu_conformance.emulator.poptorch import api
from ipu_conformance.emulator.poptorch.compile import capture, observers
from ipu_conformance.emulator.poptorch.options import unmodelled
from ipu_conformance.emulator.poptorch.options.diagnostics import logger
from ipu_conformance.emulator.poptorch.run import micro_batches

PAGE = Path(__file__).parents[4] / "docs" / "poptorch.md"


class Terminal(io.StringIO):
    """A stream that a person watches."""

    def isatty(self) -> bool:
        return True


class Doubling(torch.nn.Module):
    """Closes a block and computes outside of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with api.Block("inside", ipu_id=0):
            x = x + 1
        return x * 2


class Choosing(torch.nn.Module):
    """Asks for a value that only the device knows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Passing(torch.nn.Module):
    """Returns what it is given."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return x * 1, y * 1


# Synthetic data.


def test_synthetic_inputs_are_drawn_by_a_seed() -> None:
    """Floating-point inputs follow from the seed, differ between seeds and are no values of the host."""
    given = [torch.full((50, 4), 3.0), torch.full((50, 4), 3.0, dtype=torch.float16)]
    one, again, other = (micro_batches.synthetic_inputs(given, seed) for seed in (1, 1, 2))

    assert all(a.equal(b) for a, b in zip(one, again))
    assert not any(a.equal(b) for a, b in zip(one, other))
    assert [tensor.dtype for tensor in one] == [torch.float32, torch.float16]
    assert not bool((one[0] == 3.0).any())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool], ids=str)
def test_synthetic_indices_are_zero(dtype: torch.dtype) -> None:
    """Integers and truth values are zero, which every index may be."""
    (made,) = micro_batches.synthetic_inputs([torch.ones(3, dtype=dtype)], 1)

    assert made.equal(torch.zeros(3, dtype=dtype))


def test_outputs_of_synthetic_data_are_zero() -> None:
    """Nothing is read back, anchored tensors neither."""
    options = api.Options().enableSyntheticData(True).deviceIterations(2)
    options.anchorTensor("product", "mul")
    model = api.inferenceModel(Passing(), options)
    x, y = model(torch.ones(4, 2), torch.ones(4, dtype=torch.int64))

    assert x.equal(torch.zeros(4, 2))
    assert y.equal(torch.zeros(4, dtype=torch.int32))
    assert model.getAnchoredTensor("product").equal(torch.zeros(4, 2))


# The progress bar.


def _bar(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, show: bool) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    options = api.Options().showCompilationProgressBar(show)
    api.inferenceModel(torch.nn.ReLU(), options).compile(torch.ones(1))
    return stream.getvalue()


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of the compilation is counted; the bar ends full."""
    steps = len(observers.STEPS)

    assert f"{steps}/{steps}" in _bar(monkeypatch, Terminal(), show=True)


@pytest.mark.parametrize(("stream", "show"), [(Terminal, False), (io.StringIO, True)], ids=["off", "file"])
def test_nobody_else_gets_a_bar(monkeypatch: pytest.MonkeyPatch, stream: Callable[[], io.StringIO], show: bool) -> None:
    """Nothing is drawn where it is turned off, or where nobody watches."""
    assert _bar(monkeypatch, stream(), show) == ""


def test_a_failed_compilation_leaves_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar of a compilation that fails stops at the step that failed."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(api.Error, match="No active Block"):
        api.inferenceModel(Doubling()).compile(torch.ones(1))

    assert f"1/{len(observers.STEPS)}" in stream.getvalue()
    assert f"2/{len(observers.STEPS)}" not in stream.getvalue()


# Locations.


@pytest.mark.parametrize("module", [Doubling, Choosing])
@pytest.mark.parametrize(("more", "named"), [((), True), ((Path(__file__).name,), False)], ids=["default", "excluded"])
def test_an_error_names_the_line(module: Callable[[], torch.nn.Module], more: Any, named: bool) -> None:
    """An operation that cannot be compiled is named with the user's line, unless its file is excluded."""
    model = api.inferenceModel(module(), api.Options().appendToLocationExcludes(*more))
    with pytest.raises(api.Error, match=r"No active Block|cannot be compiled") as raised:
        model.compile(torch.ones(1))

    assert bool(re.search(re.escape(Path(__file__).name) + r":\d+", str(raised.value))) is named


def test_the_innermost_line_that_is_left_counts() -> None:
    """Frames of excluded files are passed over from the inside out."""
    node = torch.fx.Graph().placeholder("x")
    node.meta["stack_trace"] = '  File "/a/model.py", line 3, in f\n    g()\n  File "/lib/inner.py", line 9, in g\n'

    assert capture.location(node, []) == "/lib/inner.py:9"
    assert capture.location(node, ["inner"]) == "/a/model.py:3"
    assert capture.location(node, ["inner", "/a/"]) == ""


# Export.


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable and the path."""
    (tmp_path / "missing").write_text("a file, where a folder is needed")
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", str(tmp_path / "missing" / "model.onnx"))
    with pytest.raises(api.Error, match=r"POPTORCH_EXPORT_PROTO_FILE is .*missing"):
        api.inferenceModel(torch.nn.ReLU()).compile(torch.ones(1))


# What has no effect.


def _located(options: Any) -> Any:
    return options.TensorLocations.setWeightLocation(api.TensorLocationSettings().useOnChipStorage(False))


SET: Dict[str, Callable[[Any], Any]] = {
    "enableStableNorm": lambda options: options.enableStableNorm(True),
    "TensorLocations": _located,
    "syncPattern": lambda options: options.syncPattern(api.enums.SyncPattern.SinglePipeline),
    "useIpuId": lambda options: options.useIpuId(0),
    "useOfflineIpuTarget": lambda options: options.useOfflineIpuTarget(),
    "logDir": lambda options: options.logDir("logs"),
    "_Popart.set": lambda options: options._Popart.set("enableStochasticRounding", True),
    "_Popart.setEngineOptions": lambda options: options._Popart.setEngineOptions({"opt.enableInlining": "true"}),
    "_Popart.setPatterns": lambda options: options._Popart.setPatterns({"OptimizerDecompose": False}),
    "Training.setConvolutionDithering": lambda options: options.Training.setConvolutionDithering(True),
    "Distributed.configureProcessId": lambda options: options.Distributed.configureProcessId(0, 2),
}


def test_every_row_is_tried() -> None:
    """Each option of the table is in the cases below."""
    assert set(SET) == {row.option for row in unmodelled.ROWS}


def test_default_options_all_have_an_effect() -> None:
    """Neither the default options nor those that are modelled below are listed."""
    modelled = api.Options().enableProfiling("reports")
    modelled._Popart.set("autoRecomputation", True).set("automaticLossScalingSettings.binEdgeLocation", 0.5)
    modelled.Training.setAutomaticLossScaling(True)

    assert unmodelled.without_effect(api.Options()) == ()
    assert unmodelled.without_effect(modelled) == ()


@pytest.mark.parametrize("option", SET)
def test_an_option_without_effect_is_logged_once(option: str, caplog: pytest.LogCaptureFixture) -> None:
    """Two models that set it give one line, which says why."""
    unmodelled._log_once.cache_clear()
    with caplog.at_level(logging.INFO, logger=logger.name):
        for _ in range(2):
            options = api.Options()
            SET[option](options)
            api.inferenceModel(torch.nn.ReLU(), options).compile(torch.ones(1))
    lines = [record.getMessage() for record in caplog.records if "no effect" in record.getMessage()]

    assert len(lines) == 1
    assert lines[0].startswith(f"{option} has no effect on the emulator: ")


@pytest.mark.parametrize("row", unmodelled.ROWS, ids=lambda row: row.option)
def test_the_page_lists_what_has_no_effect(row: unmodelled.Row) -> None:
    """docs/poptorch.md names every option of the table."""
    assert f"`{row.option}`" in PAGE.read_text(encoding="utf-8")
