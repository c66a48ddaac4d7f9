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
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import pytest

from ipu_conformance import check

SIGNALS = (signal.SIGTERM, signal.SIGABRT, signal.SIGINT)

pytestmark = pytest.mark.usefixtures("ipu_build")


def arguments(
    *, devices: Any = 4, hosts: str = "localhost", processes: int = 2, ipus: int = 1, program: str = "train.py",
    rest: Sequence[str] = (),
) -> List[str]:  # fmt: skip
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
    values = [word.split("=", 1)[1] for word in words if word.startswith(f"--{flag}=")]
    check.equal(actual=len(values), expected=1, what=f"the number of words that set --{flag} among {words}")
    return values[0]


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
    """``ipu`` stands where the training script would."""
    chosen = [type(launched(words)).__name__ == "IPUController" for words in (arguments(), ["train.py"])]

    check.equal(actual=chosen, expected=[True, False], what="whether IPUController launches with and without ipu")


@pytest.mark.parametrize(
    ("devices", "hosts", "processes", "ipus"),
    [
        (4, "localhost", 2, 1), (4, "localhost", 1, 2), (12, "localhost", 3, 2), (16, "a,b", 2, 1), (24, "a,b,c", 2, 4),
        (8, "a, b", 1, 4), (8, "localhost", 1, 1), (8, "localhost", 4, 1), (8, "a,b", 2, 1), (8, "a,b,c,d", 1, 1),
    ],
)  # fmt: skip
def test_instances_and_replicas_follow_from_the_numbers(
    launched: Any, devices: int, hosts: str, processes: int, ipus: int
) -> None:
    """Replicas are devices over IPUs per replica, instances are hosts times processes per host.

    The partition is used as it is, and the topology is printed. An instance is told its number, its number on its host
    and its host's endpoint; all are told all endpoints.
    """
    words = command(launched(arguments(devices=devices, hosts=hosts, processes=processes, ipus=ipus)))
    names = hosts.replace(" ", "").split(",")
    flags = {
        "host": ",".join(names), "num-replicas": str(devices // ipus), "num-instances": str(len(names) * processes),
        "ipus-per-replica": str(ipus), "vipu-partition": "pod", "vipu-server-host": "10.0.0.1",
        "update-partition": "no", "print-topology": "yes",
    }  # fmt: skip
    expected = {
        host * processes + rank: {
            "PADDLE_TRAINER_ID": str(host * processes + rank),
            "PADDLE_CURRENT_ENDPOINT": f"{name}:8090",
            "PADDLE_RANK_IN_NODE": str(rank),
        }
        for host, name in enumerate(names)
        for rank in range(processes)
    }
    endpoints = ",".join(f"{name}:8090" for name in names)
    shared = {"PADDLE_TRAINERS_NUM": str(len(expected)), "PADDLE_TRAINER_ENDPOINTS": endpoints}

    check.equal(actual=words[0], expected="poprun", what="the command")
    check.equal(actual={flag: value(words, flag) for flag in flags}, expected=flags, what="the table of flags")
    check.equal(actual=instances(words), expected=expected, what="the environment of each instance")
    exports = exported(value(words, "mpi-local-args"))
    check.equal(actual=exports, expected=shared, what="the environment of all instances")


@pytest.mark.parametrize("level", ["DEBUG", None])
def test_the_log_level_of_popart_is_passed_on(
    launched: Any, monkeypatch: pytest.MonkeyPatch, level: Optional[str]
) -> None:
    """POPART_LOG_LEVEL reaches the instances if it is set."""
    monkeypatch.delenv("POPART_LOG_LEVEL", raising=False)
    if level:
        monkeypatch.setenv("POPART_LOG_LEVEL", level)
    variables = exported(value(command(launched(arguments())), "mpi-local-args"))

    check.equal(actual=variables.get("POPART_LOG_LEVEL"), expected=level, what="the instances' POPART_LOG_LEVEL")


@pytest.mark.parametrize("rest", [[], ["--lr=0.1"], ["--devices", "7", "more", "--hosts=x"]], ids=len)
def test_the_program_and_its_arguments_stand_last(launched: Any, rest: List[str]) -> None:
    """This interpreter runs the program; all that follows it belongs to it."""
    words = command(launched(arguments(program="folder/train.py", rest=rest)))

    expected = [sys.executable, "folder/train.py", *rest]
    check.equal(actual=words[-len(expected) :], expected=expected, what="the end of poprun's command line")


REFUSED: Dict[str, Any] = {
    "IPUs": (
        {"devices": 5, "ipus": 2}, AssertionError,
        "The number of IPUs:5 mod the number of IPUs per replica:2 must == 0",
    ),
    "replicas": (
        {"devices": 6, "processes": 4}, AssertionError,
        "The number of replicas:6 mod the number of processes:4 must == 0",
    ),
    "replicas on two hosts": (
        {"devices": 8, "processes": 3, "hosts": "a,b"}, AssertionError,
        "The number of replicas:8 mod the number of processes:6",
    ),
    **{devices: ({"devices": devices}, ValueError, "invalid literal") for devices in ("four", "0,1", "")},
}  # fmt: skip


@pytest.mark.parametrize(("given", "error", "sentence"), REFUSED.values(), ids=list(REFUSED))
def test_numbers_that_do_not_divide_are_refused(launched: Any, given: Any, error: Any, sentence: str) -> None:
    """IPUs are shared equally by replicas, and replicas by processes; --devices is how many there are, not which."""
    controller = launched(arguments(**given))
    with check.raises(error, match=sentence, what=f"a launch with {given}"):
        controller.replace_training_script()


def test_the_command_is_printed(launched: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What is about to run is printed first, one word per line."""
    words = command(launched(arguments(rest=["--lr", "0.1"])))
    lines = [line.rstrip(" \\") for line in capsys.readouterr().out.splitlines()]
    shown = lines[lines.index("poprun") : lines.index("---------------------------------------")]

    check.equal(actual=shlex.split(" ".join(shown)), expected=words, what="the printed command")


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
    """The command on the path gets those words and the selected IPUs, and its exit code is the launch's."""
    folder, record = tmp_path / "bin", tmp_path / "record.json"
    folder.mkdir()
    recorder = RECORDER.format(python=sys.executable, file=str(record), code=code)
    (folder / "poprun").write_text(textwrap.dedent(recorder).lstrip())
    (folder / "poprun").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))
    words = command(launched(arguments(rest=["--lr", "0.1"])))
    controller = launched(arguments(rest=["--lr", "0.1"]))
    controller.run()
    with check.raises(SystemExit, match=rf"^{code}$", what="the launch"):
        controller.finalize()
    for container in controller.pod.containers:
        container.terminate(force=True)
        container._stdout.close()
    argv, environment = json.loads(record.read_text())
    log = (tmp_path / "log" / "workerlog.0").read_text()

    check.equal(actual=argv, expected=words[1:], what="poprun's command line")
    check.equal(actual=environment.get("FLAGS_selected_ipus"), expected="4", what="poprun's FLAGS_selected_ipus")
    check.contains(actual=log, expected="poprun was called", what="the log of worker 0")
