"""The ``poprun`` of emulated programs: it starts the instances of a program on this machine.

``python -m paddle.distributed.launch … ipu …`` ends in this command. Each instance gets the variables that the command
gives it with ``-x NAME=VALUE`` and those by which a distributed program knows its replicas. Instances on other hosts
run here as well: no device is nearer to another host.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import IO, Any, Dict, Iterable, List, Mapping, NoReturn, Optional, Sequence, Tuple

from ipu_conformance.emulator.core.device import EMULATED_IPUS
from ipu_conformance.errors import ConformanceError

POLL_SECONDS = 0.05
GRACE_SECONDS = 10.0


class PoprunError(ConformanceError):
    """A poprun command line cannot be carried out."""


@dataclass(frozen=True)
class Instance:
    """One process of a distributed program."""

    index: int
    host: str
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Launch:
    """What a command line asks for."""

    instances: Tuple[Instance, ...]
    replicas: int
    ipus_per_replica: int
    command: Tuple[str, ...]
    shows_topology: bool
    only_output_from: Optional[int]


class _Parser(argparse.ArgumentParser):
    """Refuses in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise PoprunError(f"{message}; poprun --help lists what is allowed")


def _parser() -> _Parser:
    parser = _Parser(prog="poprun", description="Start the instances of a program on the emulator.", allow_abbrev=False)
    parser.add_argument("-n", "--num-instances", type=int, default=1, help="how many processes are started")
    parser.add_argument("--num-replicas", type=int, default=None, help="how many replicas the instances share")
    parser.add_argument("--ipus-per-replica", type=int, default=1, help="how many IPUs a replica has")
    parser.add_argument("-H", "--host", default="localhost", help="hosts, separated by commas; all run here")
    parser.add_argument("--mpi-local-args", default="", help="variables of all instances, as -x NAME=VALUE")
    parser.add_argument("--mpi-global-args", default="", help="read as --mpi-local-args")
    parser.add_argument(
        "--instance-mpi-local-args",
        action="append",
        default=[],
        help="variables of one instance, as INDEX:-x NAME=VALUE",
    )
    parser.add_argument("--print-topology", choices=("yes", "no"), default="no", help="print who runs what")
    parser.add_argument("--only-output-from-instance", type=int, default=None, help="the others print nothing")
    for flag in ("vipu-partition", "vipu-server-host", "vipu-server-port", "vipu-server-timeout", "vipu-cluster"):
        parser.add_argument(f"--{flag}", help="accepted: there is no server of partitions behind the emulator")
    for flag in ("update-partition", "reset-partition", "remove-partition", "numa-aware"):
        parser.add_argument(f"--{flag}", choices=("yes", "no"), help="accepted: it has no effect on the emulator")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    return parser


def read(arguments: Sequence[str]) -> Launch:
    """What the command line asks for; one that a pod of IPUs could not carry out is refused."""
    options = _parser().parse_args(list(arguments))
    replicas = options.num_instances if options.num_replicas is None else options.num_replicas
    _check(options, replicas)
    return Launch(
        tuple(_instances(options, replicas)),
        replicas,
        options.ipus_per_replica,
        tuple(options.command),
        options.print_topology == "yes",
        options.only_output_from_instance,
    )


def _check(options: Any, replicas: int) -> None:
    for what, count in (
        ("--num-instances", options.num_instances),
        ("--num-replicas", replicas),
        ("--ipus-per-replica", options.ipus_per_replica),
    ):
        if count < 1:
            raise PoprunError(f"{what} is {count}: give 1 or more")
    if replicas % options.num_instances:
        raise PoprunError(
            f"{replicas} replicas cannot be shared equally by {options.num_instances} instances: "
            "make --num-replicas a multiple of --num-instances"
        )
    if replicas * options.ipus_per_replica > EMULATED_IPUS:
        raise PoprunError(
            f"{replicas} replicas of {options.ipus_per_replica} IPUs are {replicas * options.ipus_per_replica} IPUs, "
            f"and the emulator has {EMULATED_IPUS}: ask for fewer"
        )
    hosts = len(options.host.split(","))
    if options.num_instances % hosts:
        raise PoprunError(
            f"{options.num_instances} instances cannot be shared equally by {hosts} hosts: "
            "make --num-instances a multiple of the hosts"
        )
    if not options.command:
        raise PoprunError("no program is given: name it after the options, as in poprun --num-instances=2 python a.py")


def _instances(options: Any, replicas: int) -> Iterable[Instance]:
    everyone = _variables(f"{options.mpi_global_args} {options.mpi_local_args}")
    of_instance: Dict[int, Dict[str, str]] = {}
    for text in options.instance_mpi_local_args:
        number, _, arguments = text.partition(":")
        if not number.isdigit() or int(number) >= options.num_instances:
            raise PoprunError(
                f"--instance-mpi-local-args={text} names no instance: begin with a number below "
                f"{options.num_instances} and a colon"
            )
        of_instance.setdefault(int(number), {}).update(_variables(arguments))
    hosts = options.host.split(",")
    on_each, local = options.num_instances // len(hosts), replicas // options.num_instances
    for index in range(options.num_instances):
        counted = {
            "OMPI_COMM_WORLD_RANK": index,
            "OMPI_COMM_WORLD_SIZE": options.num_instances,
            "OMPI_COMM_WORLD_LOCAL_RANK": index % on_each,
            "OMPI_COMM_WORLD_LOCAL_SIZE": on_each,
            "POPDIST_NUM_TOTAL_REPLICAS": replicas,
            "POPDIST_NUM_LOCAL_REPLICAS": local,
            "POPDIST_REPLICA_INDEX_OFFSET": index * local,
            "POPDIST_NUM_IPUS_PER_REPLICA": options.ipus_per_replica,
        }
        variables = {name: str(count) for name, count in counted.items()}
        yield Instance(index, hosts[index // on_each], {**variables, **everyone, **of_instance.get(index, {})})


def _variables(arguments: str) -> Dict[str, str]:
    """The variables that MPI exports with a value; where it puts processes has no effect here."""
    # The launch controller quotes an instance's arguments as one word, and the shell keeps them together or not.
    words = [word for part in shlex.split(arguments) for word in part.split()]
    exported = [words[place + 1] for place, word in enumerate(words[:-1]) if word == "-x"]
    return dict(pair.split("=", 1) for pair in exported if "=" in pair)


def topology(launch: Launch) -> List[str]:
    """The lines that --print-topology shows."""
    local = launch.replicas // len(launch.instances)
    lines = [f"poprun: {len(launch.instances)} instances, {launch.replicas} replicas, all emulated on this machine"]
    for instance in launch.instances:
        first = instance.index * local
        ipus = range(first * launch.ipus_per_replica, (first + local) * launch.ipus_per_replica)
        lines.append(
            f"poprun: instance {instance.index} for host {instance.host}: replicas {_span(range(first, first + local))}"
            f", IPUs {_span(ipus)}"
        )
    return lines


def _span(numbers: range) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


def run(launch: Launch) -> int:
    """Start every instance and wait; when one fails the others are ended, and its exit code is the command's."""
    processes: List[subprocess.Popen] = []
    copies: List[threading.Thread] = []
    lock = threading.Lock()

    def forward(number: int, frame: Any) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    try:
        for instance in launch.instances:
            process = _start(launch, instance)
            processes.append(process)
            silent = launch.only_output_from not in (None, instance.index)
            for stream, target in ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer)):
                copy = threading.Thread(
                    target=_copy_lines, args=(stream, None if silent else target, lock), daemon=True
                )
                copy.start()
                copies.append(copy)
        return _wait(processes)
    finally:
        _end(processes)
        for copy in copies:
            copy.join(GRACE_SECONDS)  # what an instance leaves running may keep its streams open


def _start(launch: Launch, instance: Instance) -> subprocess.Popen:
    variables = {**os.environ, **instance.variables}
    try:
        return subprocess.Popen(launch.command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise PoprunError(f"{launch.command[0]} cannot be started: {error.strerror}; name a program") from error


def _copy_lines(stream: IO[bytes], target: Optional[IO[bytes]], lock: threading.Lock) -> None:
    """Pass on what an instance prints, a whole line at a time, so that lines of instances do not mix."""
    with stream:
        for line in stream:
            if target is not None:
                with lock:
                    target.write(line)
                    target.flush()


def _wait(processes: Sequence[subprocess.Popen]) -> int:
    while True:
        codes = [process.poll() for process in processes]
        failed = [code for code in codes if code]
        if failed:
            # A process that a signal ended has that signal's negative number, as shells write it 128 more.
            return failed[0] if failed[0] > 0 else 128 - failed[0]
        if None not in codes:
            return 0
        time.sleep(POLL_SECONDS)


def _end(processes: Sequence[subprocess.Popen]) -> None:
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    limit = time.monotonic() + GRACE_SECONDS
    for process in running:
        try:
            process.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Carry out the command line."""
    try:
        launch = read(sys.argv[1:] if arguments is None else arguments)
        if launch.shows_topology:
            print("\n".join(topology(launch)), flush=True)
        return run(launch)
    except PoprunError as error:
        print(f"poprun: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
