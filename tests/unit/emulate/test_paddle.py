"""``ipu-conformance emulate`` runs a program for IPU builds of Paddle as several instances (alone: test_examples)."""

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

from ipu_conformance.emulator import emulate

if importlib.util.find_spec("paddle") is None:
    pytest.skip("the emulated IPU part of Paddle needs paddle", allow_module_level=True)

EMULATE = [sys.executable, "-m", "ipu_conformance", "emulate"]

TRAIN = """
    import os
    import sys

    import numpy as np
    import paddle

    paddle.enable_static()
    x = paddle.static.data("x", [None, 3], "float32")
    loss = paddle.mean(paddle.tanh(paddle.static.nn.fc(x, 2)))
    paddle.optimizer.SGD(learning_rate=0.5).minimize(loss)
    executor = paddle.static.Executor(paddle.IPUPlace())
    executor.run(paddle.static.default_startup_program())
    strategy = paddle.static.IpuStrategy()
    strategy.set_graph_config(num_ipus=1, is_training=True, micro_batch_size=2)
    program = paddle.static.IpuCompiledProgram(ipu_strategy=strategy).compile([x.name], [loss.name])
    losses = [
        float(executor.run(program, feed={"x": np.ones((2, 3), np.float32)}, fetch_list=[loss])[0]) for _ in range(3)
    ]
    rank = os.environ.get("PADDLE_TRAINER_ID")
    print("trained", rank, losses == sorted(losses, reverse=True), sys.argv[1:])
    if rank is not None:
        strategy.set_options({"enable_distribution": True})
        try:
            paddle.static.IpuCompiledProgram(ipu_strategy=strategy).compile([x.name], [loss.name])
        except Exception as error:
            print("refused", rank, "gradients of the other processes, which the emulator does not" in str(error))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the program, and no trace of emulation in the environment."""
    for name in ("PYTHONPATH", emulate.VARIABLE, emulate.TARGET_VARIABLE, "IPU_CONFORMANCE_FAULT", "PADDLE_TRAINER_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))
    return tmp_path


def answer(*words):
    """What a command printed and how it ended."""
    return subprocess.run([*EMULATE, *words], capture_output=True, text=True, timeout=240, check=False)


def test_a_launched_program_runs_in_every_instance(folder):
    """Paddle's launch starts the instances through poprun, each emulated and with its own rank.

    An instance trains alone; where it asks for gradients of the others it is refused.
    """
    emulated = answer(
        "-m", "paddle.distributed.launch", "--devices", "2", "ipu", "--hosts=localhost", "--nproc_per_host=2",
        "--ipus_per_replica=1", "--ipu_partition=pod", "--vipu_server=localhost", "train.py", "--lr", "0.1",
    )  # fmt: skip
    log = (folder / "log" / "workerlog.0").read_text()
    lines = [line for line in log.splitlines() if line.startswith(("trained", "refused", "poprun"))]

    assert emulated.returncode == 0, emulated.stderr + log
    assert sorted(lines) == [
        "poprun: 2 instances, 2 replicas, all emulated on this machine",
        "poprun: instance 0 for host localhost: replicas 0, IPUs 0",
        "poprun: instance 1 for host localhost: replicas 1, IPUs 1",
        "refused 0 True",
        "refused 1 True",
        "trained 0 True ['--lr', '0.1']",
        "trained 1 True ['--lr', '0.1']",
    ]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ({"PATH": "/a"}, ["{}", "/a"]),
        ({"PATH": os.pathsep.join(["/a", "{}", "/b"])}, ["{}", "/a", "/b"]),
        ({}, ["{}", *os.defpath.split(os.pathsep)]),
    ],
    ids=["one", "nested", "none"],
)
def test_the_commands_of_the_vendor_come_first_and_once(before, expected):
    """PATH keeps its entries in order behind the folder of the emulated commands."""
    inherited = {name: value.replace("{}", str(emulate.COMMANDS)) for name, value in before.items()}
    environment = emulate.environment(["paddle"], inherited, named=False)

    assert environment["PATH"].split(os.pathsep) == [place.replace("{}", str(emulate.COMMANDS)) for place in expected]
    assert environment[emulate.PYTHON_VARIABLE] == sys.executable


def test_without_paddle_the_path_stays_as_it_is():
    """The commands are those of Paddle's programs."""
    environment = emulate.environment(["poptorch"], {"PATH": "/a"}, named=False)

    assert environment["PATH"] == "/a"
    assert emulate.PYTHON_VARIABLE not in environment
