"""The emulated poprun reads a command line and starts its instances here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator import emulate
from ipu_conformance.emulator.core.device import EMULATED_IPUS
from ipu_conformance.emulator.paddle.run import poprun
from tests.unit.examples import at_most

PROGRAM = ["python", "train.py", "--num-instances=9", "-x"]


def words(instances: int, replicas: int, *more: str) -> List[str]:
    """A command line."""
    return [f"--num-instances={instances}", f"--num-replicas={replicas}", *more, *PROGRAM]


@at_most(60)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_replicas_are_shared_in_order(hosts: int, on_each: int, local: int, ipus: int) -> None:
    """Every replica belongs to one instance, in order, and hosts get neighbouring instances."""
    instances = hosts * on_each
    if instances * local * ipus > EMULATED_IPUS:
        return
    names = [f"h{number}" for number in range(hosts)]
    launch = poprun.read(words(instances, instances * local, f"--ipus-per-replica={ipus}", f"--host={','.join(names)}"))
    owned = []
    for instance in launch.instances:
        first, count = (
            int(instance.variables[f"POPDIST_{name}"]) for name in ("REPLICA_INDEX_OFFSET", "NUM_LOCAL_REPLICAS")
        )
        owned += range(first, first + count)

    assert owned == list(range(instances * local))
    assert [instance.host for instance in launch.instances] == [name for name in names for _ in range(on_each)]
    assert [int(instance.variables["OMPI_COMM_WORLD_LOCAL_RANK"]) for instance in launch.instances] == [
        *range(on_each)
    ] * hosts
    assert launch.command == tuple(PROGRAM)


def test_instances_get_the_variables_that_are_exported() -> None:
    """Those for all, then those of one instance; what MPI is told beside them has no effect."""
    launch = poprun.read(
        words(
            2,
            2,
            "--mpi-global-args=--tag-output -x A=global -x B=global",
            "--mpi-local-args='-x B=all -x C=a=b -x INHERITED'",
            '--instance-mpi-local-args=1:"-x C=own -x D=1,2"',
        )
    )
    given_names = [{name: instance.variables.get(name) for name in "ABCD"} for instance in launch.instances]

    assert given_names == [
        {"A": "global", "B": "all", "C": "a=b", "D": None},
        {"A": "global", "B": "all", "C": "own", "D": "1,2"},
    ]
    assert "INHERITED" not in launch.instances[0].variables


def test_one_instance_is_the_default() -> None:
    """Without options there is one instance with one replica of one IPU."""
    launch = poprun.read(["python", "train.py"])

    assert (len(launch.instances), launch.replicas, launch.ipus_per_replica) == (1, 1, 1)
    assert (launch.shows_topology, launch.only_output_from) == (False, None)


@pytest.mark.parametrize(
    ("given_words", "sentence"),
    [
        (words(0, 1), "--num-instances is 0: give 1 or more"),
        (words(1, 0), "--num-replicas is 0: give 1 or more"),
        (words(1, 1, "--ipus-per-replica=-1"), "--ipus-per-replica is -1: give 1 or more"),
        (words(2, 3), "3 replicas cannot be shared equally by 2 instances: make --num-replicas a multiple"),
        (words(3, 3, "--host=a,b"), "3 instances cannot be shared equally by 2 hosts: make --num-instances a multiple"),
        (words(1, EMULATED_IPUS, "--ipus-per-replica=2"), f"are {2 * EMULATED_IPUS} IPUs, and the emulator has"),
        (words(2, 2, "--instance-mpi-local-args=2:-x A=1"), "names no instance: begin with a number below 2"),
        (words(2, 2, "--instance-mpi-local-args=-x A=1"), "names no instance"),
        (["--num-instances=two", *PROGRAM], "invalid int value: 'two'; poprun --help lists what is allowed"),
        (["--no-such-option=1", *PROGRAM], "poprun --help lists what is allowed"),
        (["--num-instances=2"], "no program is given: name it after the options"),
    ],
    ids=range(11),
)
def test_a_command_that_cannot_be_carried_out_is_one_sentence(
    given_words: List[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with 2 and starts nothing."""
    code = poprun.main(given_words)
    said = capsys.readouterr()

    assert (code, said.out) == (2, "")
    assert said.err.startswith("poprun: error: ")
    assert sentence in said.err
    assert said.err.count("\n") == 1


def test_the_topology_names_replicas_and_ipus() -> None:
    """A line for all and a line for each instance."""
    launch = poprun.read(words(2, 4, "--ipus-per-replica=3", "--host=a,b"))

    assert poprun.topology(launch) == [
        "poprun: 2 instances, 4 replicas, all emulated on this machine",
        "poprun: instance 0 for host a: replicas 0-1, IPUs 0-5",
        "poprun: instance 1 for host b: replicas 2-3, IPUs 6-11",
    ]


# Processes

FOLDER = str(Path(__file__).parents[5])


def start(*arguments: str, **options: Any) -> subprocess.Popen:
    """The command as emulated programs find it on their path."""
    environment = emulate.environment(["paddle"], os.environ, named=True)
    return subprocess.Popen(
        ["poprun", *arguments], env=environment, text=True, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        **options,
    )  # fmt: skip


TELL = "import json, os; print(json.dumps([os.environ['OMPI_COMM_WORLD_RANK'], os.environ.get('A')]), flush=True)"


def test_every_instance_is_a_process_with_its_variables() -> None:
    """The command on the path runs all instances, and ends with 0 when they all did."""
    own = [f"--instance-mpi-local-args={number}:-x A=own{number}" for number in range(3)]
    with start("--num-instances=3", *own, sys.executable, "-c", TELL) as process:
        shown, said = process.communicate(timeout=60)

    assert (process.returncode, said) == (0, "")
    assert sorted(json.loads(line) for line in shown.splitlines()) == [[str(n), f"own{n}"] for n in range(3)]


def test_the_others_may_be_silent() -> None:
    """--only-output-from-instance keeps what the others print."""
    with start("-n", "3", "--only-output-from-instance=1", sys.executable, "-c", TELL) as process:
        shown, _ = process.communicate(timeout=60)

    assert [json.loads(line)[0] for line in shown.splitlines()] == ["1"]


FAIL = """
import os, sys, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    sys.exit(5)
time.sleep(120)
"""


def test_one_failure_ends_all() -> None:
    """When an instance fails the others are ended, and its exit code is the command's."""
    began = time.monotonic()
    with start("-n", "2", sys.executable, "-c", FAIL) as process:
        process.communicate(timeout=60)

    assert process.returncode == 5
    assert time.monotonic() - began < 60


def test_a_program_that_does_not_exist_is_one_sentence() -> None:
    """What cannot be started is named."""
    with start("no-such-program") as process:
        _, said = process.communicate(timeout=60)

    assert process.returncode == 2
    assert said == "poprun: error: no-such-program cannot be started: No such file or directory; name a program\n"


WAIT = """
import signal, sys, time
def end(number, frame):
    print("told", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(120)
"""


def test_a_signal_reaches_every_instance() -> None:
    """SIGTERM to the command is SIGTERM to its instances, which end as they like."""
    with start("-n", "2", sys.executable, "-c", WAIT) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        process.send_signal(signal.SIGTERM)
        shown, _ = process.communicate(timeout=60)

    assert shown.splitlines() == ["told", "told"]
    assert process.returncode == 3


def test_the_command_can_be_executed() -> None:
    """The file on the path bears the bits of a program."""
    assert os.access(emulate.COMMANDS / "poprun", os.X_OK)
