"""Environment variables, and what a strategy may ask of a device when a program is compiled."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import pytest

BATCH = np.array([[1.0, -2.0, 0.5], [0.25, 4.0, -1.0]], np.float32)


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """No case sees a variable of the machine it runs on."""
    for name in ("IPU_COMPILE_ONLY", "IPU_ONNX_DUMP_PATH", "IPU_CACHE_PATH"):
        monkeypatch.delenv(name, raising=False)


class Net:
    """A linear layer with SGD on one IPU, and what compiles and runs it."""

    def __init__(self, static: Any, paddle: Any) -> None:
        self.static, self.paddle = static, paddle
        self.x = static.data("x", [None, 3], "float32")
        self.loss = paddle.mean(paddle.tanh(static.nn.fc(self.x, 2)))
        paddle.optimizer.SGD(learning_rate=0.5).minimize(self.loss)
        self.executor = static.Executor(paddle.IPUPlace())
        self.executor.run(static.default_startup_program())

    def compile(self, **options: Any) -> Any:
        """The program compiled for one IPU under those options."""
        strategy = self.static.IpuStrategy()
        strategy.set_graph_config(num_ipus=1, is_training=True, micro_batch_size=len(BATCH))
        strategy.set_options(options)
        program = self.static.default_main_program().clone()
        compiled = self.static.IpuCompiledProgram(program, ipu_strategy=strategy)
        self.backend = compiled._backend
        return compiled.compile([self.x.name], [self.loss.name])

    def trains(self, program: Any) -> bool:
        """Whether a run of the compiled program changes a weight."""
        before = self.weights()
        self.run(program)
        return any(not np.array_equal(old, new) for old, new in zip(before, self.weights()))

    def run(self, program: Any) -> np.ndarray:
        """The loss of one step."""
        (loss,) = self.executor.run(program, feed={"x": BATCH}, fetch_list=[self.loss])
        return np.asarray(loss)

    def weights(self) -> List[np.ndarray]:
        """The parameters as the host holds them, after the device sent them."""
        self.backend.weights_to_host()
        names = [parameter.name for parameter in self.static.default_main_program().all_parameters()]
        return [np.array(self.static.global_scope().find_var(name).get_tensor()) for name in names]


@pytest.fixture
def net(static: Any, paddle: Any) -> Net:
    """The net in a fresh program, with its weights initialised."""
    return Net(static, paddle)


# What is asked of the device


@pytest.mark.parametrize("proportion", [-0.25, 1.0625, 7.0])
def test_a_proportion_of_memory_is_between_0_and_1(net: Net, proportion: float) -> None:
    """A value outside is stored, and refused when the program is compiled."""
    with pytest.raises(Exception, match=r"(?s)available_?memory_?proportion|AvailableMemoryProportion"):
        net.compile(available_memory_proportion=proportion)


@pytest.mark.parametrize("proportion", [0.0, 0.25, 1.0])
def test_a_proportion_of_memory_up_to_all_is_accepted(net: Net, proportion: float) -> None:
    """0, which leaves it to the device, 1 and what lies between are accepted, and the program trains."""
    assert net.trains(net.compile(available_memory_proportion=proportion))


@pytest.mark.parametrize("name", ["batches_per_step", "micro_batch_size"])
def test_there_is_at_least_one_of_everything(net: Net, name: str) -> None:
    """No program is compiled for no micro-batch."""
    with pytest.raises(Exception, match=name):
        net.compile(**{name: 0})


@pytest.mark.emulator
@pytest.mark.parametrize(("ipus", "attached"), [(1025, 2048), (65, 128)])
def test_only_ipus_that_exist_are_attached(net: Net, monkeypatch: pytest.MonkeyPatch, ipus: int, attached: int) -> None:
    """More IPUs than there are cannot be attached; devices come in powers of two."""
    monkeypatch.delenv("POPLAR_IPUMODEL", raising=False)
    with pytest.raises(RuntimeError, match=f"Can't attach IPU, ipu_num = {attached}"):
        net.compile(num_ipus=ipus, enable_manual_shard=True)


def test_the_progress_of_compiling_is_told(net: Net) -> None:
    """A progress logger is called with what is done and the total, ends at the total, and never goes back."""
    told: List[Tuple[int, int]] = []
    net.compile(compilation_progress_logger=lambda progress, total: told.append((progress, total)))

    assert told
    assert [progress for progress, _ in told] == sorted(progress for progress, _ in told)
    assert told[-1][0] == told[-1][1]


# POPLAR_IPUMODEL


@pytest.mark.parametrize("value", ["1", "true", "True", "TRUE"])
def test_the_ipu_model_is_one_device(paddle: Any, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """With POPLAR_IPUMODEL the device has the number 0 alone."""
    monkeypatch.setenv("POPLAR_IPUMODEL", value)
    paddle.set_device("ipu")

    assert paddle.get_device() == "ipus:{0-0}"


@pytest.mark.emulator
@pytest.mark.parametrize("value", ["0", "", "false", "no"])
def test_the_ipu_model_is_used_only_when_it_is_asked_for(
    paddle: Any, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Another value is as none."""
    monkeypatch.delenv("POPLAR_IPUMODEL", raising=False)
    paddle.set_device("ipu")
    usual = paddle.get_device()
    monkeypatch.setenv("POPLAR_IPUMODEL", value)

    assert paddle.get_device() == usual
    assert usual != "ipus:{0-0}"


def test_the_ipu_model_computes_the_same(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program compiled for the model trains: the weights change."""
    monkeypatch.setenv("POPLAR_IPUMODEL", "1")
    assert net.trains(net.compile())


# IPU_COMPILE_ONLY


def test_compiling_only_runs_nothing(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """With IPU_COMPILE_ONLY a program is compiled, and running it leaves the weights as they are."""
    monkeypatch.setenv("IPU_COMPILE_ONLY", "1")
    program = net.compile()

    assert [op.type for op in program.global_block().ops] == ["ipu_runtime"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a target may say that it runs nothing
        assert not net.trains(program)


@pytest.mark.parametrize("value", ["0", "", "false"])
def test_programs_run_unless_only_compiling_is_asked_for(net: Net, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Another value is as none: the program trains."""
    monkeypatch.setenv("IPU_COMPILE_ONLY", value)
    assert net.trains(net.compile())


# IPU_CACHE_PATH


def written(folder: Path) -> List[str]:
    """The names of the files in a folder that hold something."""
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

    assert {folder: len(written(tmp_path / folder)) for folder in files} == files


def test_the_same_program_is_found_again(net: Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compiling the same program under the same options adds nothing to the cache, whatever its weights are."""
    monkeypatch.setenv("IPU_CACHE_PATH", str(tmp_path))
    net.run(net.compile())
    once = written(tmp_path)
    net.run(net.compile())

    assert len(once) == 1
    assert written(tmp_path) == once


def test_another_program_has_another_executable(net: Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Options that change what is compiled make another executable."""
    monkeypatch.setenv("IPU_CACHE_PATH", str(tmp_path))
    net.compile()
    net.compile(batches_per_step=2)

    assert len(written(tmp_path)) == 2


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

    assert written(tmp_path) == files
