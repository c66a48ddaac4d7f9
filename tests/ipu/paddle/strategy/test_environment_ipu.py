"""Environment variables, and what a strategy may ask of a device when a program is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device import held
from .test_ipu_compiled_program_ipu import Net


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """No case sees a variable of the machine it runs on."""
    for name in ("IPU_COMPILE_ONLY", "IPU_ONNX_DUMP_PATH", "IPU_CACHE_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def net(static: Any, paddle: Any) -> Net:
    """A linear layer in a fresh program, with its weights initialised."""
    return Net(static, paddle)


def weights(net: Net) -> Dict[str, np.ndarray]:
    """The parameters as the host holds them, after the device sent them."""
    net.backend.weights_to_host()
    return {each.name: held(net.paddle, each.name) for each in net.program.all_parameters()}


TRAINING: Dict[str, Tuple[Dict[str, str], Dict[str, Any]]] = {
    # From 0, which leaves it to the device, to 1 a proportion is accepted.
    **{f"proportion-{share}": ({}, {"available_memory_proportion": share}) for share in (0.0, 0.25, 1.0)},
    "IPU model": ({"POPLAR_IPUMODEL": "1"}, {}),
    **{f"compile-only-{value}": ({"IPU_COMPILE_ONLY": value}, {}) for value in ("0", "", "false")},
}
"""Variables and options under which a run of the compiled program changes every weight."""


@pytest.mark.parametrize(("variables", "options"), TRAINING.values(), ids=list(TRAINING))
def test_a_program_trains(net: Net, monkeypatch: pytest.MonkeyPatch, variables: Any, options: Any) -> None:
    """A proportion up to all, the IPU model, and values that do not ask for compiling alone change no training."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    program = net.compile(**options)
    before = weights(net)
    net.run(program)

    for name, value in weights(net).items():
        check.differs(actual=value, other=before[name], what=f"{name} after a run")


PROPORTION = r"(?s)available_?memory_?proportion|AvailableMemoryProportion"
REFUSED: Dict[str, Tuple[Dict[str, Any], str]] = {
    **{f"proportion-{share}": ({"available_memory_proportion": share}, PROPORTION) for share in (-0.25, 1.0625, 7.0)},
    # A program needs micro-batches; more IPUs than there are cannot be attached, and they come in powers of two.
    **{name: ({name: 0}, name) for name in ("batches_per_step", "micro_batch_size")},
    **{
        f"{name}-{count}": ({enabling: True, name: count}, name)
        for enabling, name in (
            ("enable_gradient_accumulation", "accumulation_factor"),
            ("enable_replicated_graphs", "replicated_graph_count"),
        )
        for count in (0, -3)
    },
    **{
        f"{ipus}-{attached}": (
            {"num_ipus": ipus, "enable_manual_shard": True}, f"Can't attach IPU, ipu_num = {attached}",
        )
        for ipus, attached in ((1025, 2048), (65, 128))
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=[pytest.mark.emulator] * (not what.startswith("proportion"))) for what in REFUSED],
)
def test_what_a_device_cannot_do_is_refused(net: Net, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Any value is stored, and refused when the program is compiled."""
    options, match = REFUSED[what]
    if "num_ipus" in options:
        monkeypatch.delenv("POPLAR_IPUMODEL", raising=False)
    with check.raises(RuntimeError if "num_ipus" in options else Exception, match=match, what=str(options)):
        net.compile(**options)


def test_the_progress_of_compiling_is_told(net: Net) -> None:
    """A progress logger is called with what is done and the total, ends at the total, and never goes back."""
    told: List[Tuple[int, int]] = []
    net.compile(compilation_progress_logger=lambda *call: told.append(call), compilation_progress_total=250)

    check.holds(told, "the compilation_progress_logger is never called.")
    progress = [each for each, _ in told]
    check.equal(actual=progress, expected=sorted(progress), what="the progress of the calls")
    check.equal(actual=progress[-1], expected=told[-1][1], what="the progress of the last call")
    check.equal(actual={total for _, total in told}, expected={250}, what="the totals that are told")


@pytest.mark.parametrize(
    ("value", "one"),
    [
        *((value, True) for value in ("1", "true", "True", "TRUE")),
        *(pytest.param(value, False, marks=pytest.mark.emulator) for value in ("0", "", "false", "no")),
    ],
)
def test_the_ipu_model_is_one_device(paddle: Any, monkeypatch: pytest.MonkeyPatch, value: str, one: bool) -> None:
    """With POPLAR_IPUMODEL device 0 is the only one; any other value is as good as none."""
    if not one:
        monkeypatch.delenv("POPLAR_IPUMODEL", raising=False)
    paddle.set_device("ipu")
    usual = paddle.get_device()
    monkeypatch.setenv("POPLAR_IPUMODEL", value)

    device = paddle.get_device()
    check.equal(actual=device, expected="ipus:{0-0}" if one else usual, what=f"the device with POPLAR_IPUMODEL={value}")
    if not one:
        check.differs(actual=usual, other="ipus:{0-0}", what="the device without POPLAR_IPUMODEL")


def written(folder: Path) -> List[str]:
    """The names of the files in a folder that are not empty."""
    return sorted(file.name for file in folder.rglob("*") if file.is_file() and file.stat().st_size)


CACHES: Dict[str, Tuple[Optional[str], Dict[str, Any], Dict[str, int]]] = {
    "variable": ("deep/cache", {}, {"deep/cache": 1}),
    "option": (None, {"enable_engine_caching": True, "cache_path": "cache"}, {"cache": 1}),
    "both": ("variable", {"enable_engine_caching": True, "cache_path": "option"}, {"variable": 1, "option": 0}),
    "path-alone": (None, {"cache_path": "cache"}, {".": 0}),
}
"""IPU_CACHE_PATH, the options, and how many files each folder holds afterwards; all paths are below one folder."""


@pytest.mark.parametrize("what", CACHES)
def test_the_cache_is_written_where_it_is_asked_for(
    net: Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    """The variable turns the cache on and beats the option, which needs its switch; missing folders are made."""
    variable, options, files = CACHES[what]
    monkeypatch.chdir(tmp_path)
    if variable:
        monkeypatch.setenv("IPU_CACHE_PATH", str(tmp_path / variable))
    if "cache_path" in options:
        options = {**options, "cache_path": str(tmp_path / options["cache_path"])}
    net.compile(**options)

    counted = {folder: len(written(tmp_path / folder)) for folder in files}
    check.equal(actual=counted, expected=files, what="the number of files in each folder")


@pytest.mark.parametrize(("options", "count"), [({}, 1), ({"batches_per_step": 2}, 2)], ids=["same", "another"])
def test_the_same_program_is_found_again(
    net: Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: Any, count: int
) -> None:
    """Compiling again adds an executable if the options change what is compiled, whatever the weights are."""
    monkeypatch.setenv("IPU_CACHE_PATH", str(tmp_path))
    net.run(net.compile())
    once = written(tmp_path)
    net.compile(**options)

    again = written(tmp_path)
    check.equal(actual=(len(once), len(again)), expected=(1, count), what="the numbers of cached executables")
    check.contains(actual=again, expected=once[0], what="the cache after the second compile")


@pytest.mark.parametrize(
    ("variable", "option", "files"),
    [("model.onnx", "", ["model.onnx"]), ("variable.onnx", "option.onnx", ["variable.onnx"]), ("", "", [])],
    ids=["variable", "both", "none"],
)
def test_the_model_is_dumped_where_it_is_asked_for(
    net: Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, option: str, files: List[str]
) -> None:
    """IPU_ONNX_DUMP_PATH names the file and beats the option; where both are empty no file is left anywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPU_ONNX_DUMP_PATH", str(tmp_path / variable) if variable else "")
    net.compile(**({"onnx_dump_path": str(tmp_path / option)} if option else {}))

    check.equal(actual=written(tmp_path), expected=files, what="the list of dumped files")
