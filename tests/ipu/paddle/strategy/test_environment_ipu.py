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


def check_trains(net: Net, program: Any) -> None:
    """A run of the compiled program changes every weight."""
    before = weights(net)
    net.run(program)
    for name, value in weights(net).items():
        check.differs(actual=value, other=before[name], what=f"{name} after a run")


# What is asked of the device


@pytest.mark.parametrize("proportion", [-0.25, 1.0625, 7.0])
def test_a_proportion_of_memory_is_between_0_and_1(net: Net, proportion: float) -> None:
    """A proportion outside that range is stored, and refused when the program is compiled."""
    match = r"(?s)available_?memory_?proportion|AvailableMemoryProportion"
    with check.raises(Exception, match=match, what=f"available_memory_proportion {proportion}"):
        net.compile(available_memory_proportion=proportion)


@pytest.mark.parametrize("proportion", [0.0, 0.25, 1.0])
def test_a_proportion_of_memory_up_to_all_is_accepted(net: Net, proportion: float) -> None:
    """From 0, which leaves it to the device, to 1 the proportion is accepted, and the program trains."""
    check_trains(net, net.compile(available_memory_proportion=proportion))


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["batches_per_step", "micro_batch_size"])
def test_there_is_at_least_one_of_everything(net: Net, name: str) -> None:
    """A program without micro-batches is refused."""
    options: Any = {name: 0}
    with check.raises(Exception, match=name, what=f"{name} 0"):
        net.compile(**options)


@pytest.mark.emulator
@pytest.mark.parametrize(("ipus", "attached"), [(1025, 2048), (65, 128)])
def test_only_ipus_that_exist_are_attached(net: Net, monkeypatch: pytest.MonkeyPatch, ipus: int, attached: int) -> None:
    """More IPUs than there are cannot be attached; devices come in powers of two."""
    monkeypatch.delenv("POPLAR_IPUMODEL", raising=False)
    with check.raises(RuntimeError, match=f"Can't attach IPU, ipu_num = {attached}", what=f"num_ipus {ipus}"):
        net.compile(num_ipus=ipus, enable_manual_shard=True)


def test_the_progress_of_compiling_is_told(net: Net) -> None:
    """A progress logger is called with what is done and the total, ends at the total, and never goes back."""
    told: List[Tuple[int, int]] = []
    net.compile(
        compilation_progress_logger=lambda progress, total: told.append((progress, total)),
        compilation_progress_total=250,
    )

    check.holds(told, "the compilation_progress_logger is never called.")
    progress = [each for each, _ in told]
    check.equal(actual=progress, expected=sorted(progress), what="the progress of the calls")
    check.equal(actual=progress[-1], expected=told[-1][1], what="the progress of the last call")
    check.equal(actual={total for _, total in told}, expected={250}, what="the totals that are told")


# POPLAR_IPUMODEL


@pytest.mark.parametrize("value", ["1", "true", "True", "TRUE"])
def test_the_ipu_model_is_one_device(paddle: Any, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """With POPLAR_IPUMODEL device 0 is the only one."""
    monkeypatch.setenv("POPLAR_IPUMODEL", value)
    paddle.set_device("ipu")

    check.equal(actual=paddle.get_device(), expected="ipus:{0-0}", what="the device of the IPU model")


@pytest.mark.emulator
@pytest.mark.parametrize("value", ["0", "", "false", "no"])
def test_the_ipu_model_is_used_only_when_it_is_asked_for(
    paddle: Any, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Any other value is as good as none."""
    monkeypatch.delenv("POPLAR_IPUMODEL", raising=False)
    paddle.set_device("ipu")
    usual = paddle.get_device()
    monkeypatch.setenv("POPLAR_IPUMODEL", value)

    check.equal(actual=paddle.get_device(), expected=usual, what=f"the device with POPLAR_IPUMODEL={value}")
    check.differs(actual=usual, other="ipus:{0-0}", what="the device without POPLAR_IPUMODEL")


def test_the_ipu_model_trains(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program compiled for the model trains: the weights change."""
    monkeypatch.setenv("POPLAR_IPUMODEL", "1")
    check_trains(net, net.compile())


# IPU_COMPILE_ONLY


@pytest.mark.parametrize("value", ["0", "", "false"])
def test_programs_run_unless_only_compiling_is_asked_for(net: Net, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Any other value is as good as none: the program trains."""
    monkeypatch.setenv("IPU_COMPILE_ONLY", value)
    check_trains(net, net.compile())


# IPU_CACHE_PATH


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


def test_the_same_program_is_found_again(net: Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compiling the same program under the same options adds nothing to the cache, whatever its weights are."""
    monkeypatch.setenv("IPU_CACHE_PATH", str(tmp_path))
    net.run(net.compile())
    once = written(tmp_path)
    net.run(net.compile())

    check.equal(actual=len(once), expected=1, what="the number of cached executables")
    check.equal(actual=written(tmp_path), expected=once, what="the cache after the second compile")


def test_another_program_has_another_executable(net: Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Options that change what is compiled make another executable."""
    monkeypatch.setenv("IPU_CACHE_PATH", str(tmp_path))
    net.compile()
    net.compile(batches_per_step=2)

    check.equal(actual=len(written(tmp_path)), expected=2, what="the number of cached executables")


# IPU_ONNX_DUMP_PATH


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
