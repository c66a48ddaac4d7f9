"""``python -m paddle.distributed.launch … ipu …`` becomes one poprun command, with the variables of each instance."""

from __future__ import annotations

import importlib
import json
import logging
import os
import shlex
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest

SIGNALS = (signal.SIGTERM, signal.SIGABRT, signal.SIGINT)


pytestmark = pytest.mark.usefixtures("ipu_build")


def arguments(
    *,
    devices: int = 4,
    hosts: str = "localhost",
    processes: int = 2,
    ipus: int = 1,
    program: str = "train.py",
    rest: List[str] = [],  # noqa: B006  read only
) -> List[str]:
    """The words after ``python -m paddle.distributed.launch``."""
    return [
        "--devices", str(devices), "ipu", f"--hosts={hosts}", f"--nproc_per_host={processes}",
        f"--ipus_per_replica={ipus}", "--ipu_partition=pod", "--vipu_server=10.0.0.1", program, *rest,
    ]  # fmt: skip


@pytest.fixture
def launched(paddle: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[List[str]], Any]]:
    """Makes the controller of a command line; handlers of signals and of logs are put back afterwards."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    logger = logging.getLogger("LAUNCH")
    logged = list(logger.handlers)
    for name in [name for name in os.environ if name.startswith("PADDLE_")]:
        monkeypatch.delenv(name)

    def make(words: List[str]) -> Any:
        controllers = importlib.import_module("paddle.distributed.launch.controllers")
        context = importlib.import_module("paddle.distributed.launch.context")
        monkeypatch.setattr(sys, "argv", ["launch", "--log_dir", str(tmp_path / "log"), *words])
        return controllers.init(context.Context())

    yield make
    for number, handler in handlers.items():
        signal.signal(number, handler)
    logger.handlers[:] = logged


def command(controller: Any) -> List[str]:
    """The words of the poprun command, as a shell reads them."""
    controller.replace_training_script()
    (line,) = controller._get_entrypoint()
    return shlex.split(line)


def value(words: List[str], flag: str) -> str:
    """The value of the one word that sets ``flag``."""
    (found,) = [word.split("=", 1)[1] for word in words if word.startswith(f"--{flag}=")]
    return found


def exported(words: str) -> Dict[str, str]:
    """The variables that are exported with -x."""
    parts = words.split()
    return dict(pair.split("=", 1) for mark, pair in zip(parts, parts[1:]) if mark == "-x")


def instances(words: List[str]) -> Dict[int, Dict[str, str]]:
    """The variables of each instance."""
    flag = "--instance-mpi-local-args="
    pairs = [word[len(flag) :].split(":", 1) for word in words if word.startswith(flag)]
    return {int(number): exported(text.strip('"')) for number, text in pairs}


def test_the_word_ipu_chooses_the_controller(launched: Any) -> None:
    """Where the training script would stand, ``ipu`` does."""
    assert type(launched(arguments())).__name__ == "IPUController"
    assert type(launched(["train.py"])).__name__ != "IPUController"


@pytest.mark.parametrize(
    ("devices", "hosts", "processes", "ipus"),
    [
        (4, "localhost", 2, 1),
        (4, "localhost", 1, 2),
        (12, "localhost", 3, 2),
        (16, "a,b", 2, 1),
        (24, "a,b,c", 2, 4),
        (8, "a, b", 1, 4),
    ],
)
def test_instances_and_replicas_follow_from_the_numbers(
    launched: Any, devices: int, hosts: str, processes: int, ipus: int
) -> None:
    """Replicas are devices over IPUs per replica, instances are hosts times processes per host."""
    words = command(launched(arguments(devices=devices, hosts=hosts, processes=processes, ipus=ipus)))
    names = hosts.replace(" ", "").split(",")

    assert words[0] == "poprun"
    assert value(words, "num-replicas") == str(devices // ipus)
    assert value(words, "num-instances") == str(len(names) * processes)
    assert value(words, "ipus-per-replica") == str(ipus)
    assert value(words, "host") == ",".join(names)
    assert sorted(instances(words)) == list(range(len(names) * processes))


def test_the_partition_and_its_server_are_named(launched: Any) -> None:
    """The partition is used as it is, and the topology is printed."""
    words = command(launched(arguments()))

    assert (value(words, "vipu-partition"), value(words, "vipu-server-host")) == ("pod", "10.0.0.1")
    assert (value(words, "update-partition"), value(words, "print-topology")) == ("no", "yes")


@pytest.mark.parametrize(("hosts", "processes"), [("localhost", 1), ("localhost", 4), ("a,b", 2), ("a,b,c,d", 1)])
def test_every_instance_knows_its_rank(launched: Any, hosts: str, processes: int) -> None:
    """An instance is told its number, its number on its host and its host's endpoint; all are told all endpoints."""
    words = command(launched(arguments(devices=8, hosts=hosts, processes=processes)))
    names = hosts.split(",")
    expected = {
        host * processes + rank: {
            "PADDLE_TRAINER_ID": str(host * processes + rank),
            "PADDLE_CURRENT_ENDPOINT": f"{name}:8090",
            "PADDLE_RANK_IN_NODE": str(rank),
        }
        for host, name in enumerate(names)
        for rank in range(processes)
    }

    assert instances(words) == expected
    assert exported(value(words, "mpi-local-args")) == {
        "PADDLE_TRAINERS_NUM": str(len(expected)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(f"{name}:8090" for name in names),
    }


@pytest.mark.parametrize("level", ["DEBUG", None])
def test_the_log_level_of_popart_is_passed_on(
    launched: Any, monkeypatch: pytest.MonkeyPatch, level: Optional[str]
) -> None:
    """POPART_LOG_LEVEL reaches the instances if it is set."""
    monkeypatch.delenv("POPART_LOG_LEVEL", raising=False)
    if level:
        monkeypatch.setenv("POPART_LOG_LEVEL", level)
    words = command(launched(arguments()))

    assert exported(value(words, "mpi-local-args")).get("POPART_LOG_LEVEL") == level


@pytest.mark.parametrize("rest", [[], ["--lr=0.1"], ["--devices", "7", "more", "--hosts=x"]], ids=len)
def test_the_program_and_its_arguments_stand_last(launched: Any, rest: List[str]) -> None:
    """This interpreter runs the program; all that follows it belongs to it."""
    words = command(launched(arguments(program="folder/train.py", rest=rest)))

    assert words[-2 - len(rest) :] == [sys.executable, "folder/train.py", *rest]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"devices": 5, "ipus": 2}, "The number of IPUs:5 mod the number of IPUs per replica:2 must == 0"),
        ({"devices": 6, "processes": 4}, "The number of replicas:6 mod the number of processes:4 must == 0"),
        ({"devices": 8, "processes": 3, "hosts": "a,b"}, "The number of replicas:8 mod the number of processes:6"),
    ],
    ids=["IPUs", "replicas", "replicas on two hosts"],
)
def test_numbers_that_do_not_divide_are_refused(launched: Any, given: Dict[str, Any], sentence: str) -> None:
    """IPUs are shared equally by replicas, and replicas by processes."""
    controller = launched(arguments(**given))
    with pytest.raises(AssertionError, match=sentence):
        controller.replace_training_script()


@pytest.mark.parametrize("devices", ["four", "0,1", ""])
def test_devices_are_a_number(launched: Any, devices: str) -> None:
    """--devices is how many IPUs there are, not which."""
    controller = launched(["--devices", devices, *arguments()[2:]])
    with pytest.raises(ValueError, match="invalid literal"):
        controller.replace_training_script()


def test_the_command_is_printed(launched: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What is run is shown first, a word a line."""
    words = command(launched(arguments(rest=["--lr", "0.1"])))
    lines = [line.rstrip(" \\") for line in capsys.readouterr().out.splitlines()]
    shown = lines[lines.index("poprun") : lines.index("---------------------------------------")]

    assert shlex.split(" ".join(shown)) == words


RECORDER = """
    #!{python}
    import json, os, sys
    with open({file!r}, "w") as written:
        json.dump([sys.argv[1:], dict(os.environ)], written)
    print("poprun was called")
    sys.exit({code})
"""


@pytest.mark.parametrize("code", [0, 3])
def test_poprun_is_run_as_it_was_printed(
    launched: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    """The command on the path gets those words and the selected devices, and its exit code is the launch's."""
    folder, record = tmp_path / "bin", tmp_path / "record.json"
    folder.mkdir()
    recorder = RECORDER.format(python=sys.executable, file=str(record), code=code)
    (folder / "poprun").write_text(textwrap.dedent(recorder).lstrip())
    (folder / "poprun").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))
    words = command(launched(arguments(rest=["--lr", "0.1"])))
    controller = launched(arguments(rest=["--lr", "0.1"]))
    controller.run()
    with pytest.raises(SystemExit) as ended:
        controller.finalize()
    for container in controller.pod.containers:
        container.terminate(force=True)
        container._stdout.close()
    given, environment = json.loads(record.read_text())

    assert given == words[1:]
    assert environment["FLAGS_selected_ipus"] == "4"
    assert ended.value.code == code
    assert "poprun was called" in (tmp_path / "log" / "workerlog.0").read_text()
