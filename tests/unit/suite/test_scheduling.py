"""Cases are spread so that a framework is imported by as few workers as makes sense."""

import os
import subprocess
import sys
from collections import OrderedDict
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.scheduling import (
    CHUNK,
    NEUTRAL,
    THREADS,
    FrameworkScheduling,
    chunks,
    framework_of,
    next_chunk,
    threads,
)


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("tests/ipu/poptorch/test_options.py::test_a", "poptorch"),
        ("poptorch/test_options.py::test_a[3]", "poptorch"),
        ("tests/ipu/test_paddle_shard.py::test_a", "paddle"),
        ("tests/ipu/test_replication.py::test_a[tensorflow-D2-G3]", "tensorflow"),
        ("tests/ipu/test_replication.py::test_a[D2-G3-tensorflow]", "tensorflow"),
        ("tests/ipu/test_replication.py::test_a[D2-paddle-G3]", "paddle"),
        ("tests/ipu/test_replication.py::test_a[paddleboat]", None),
        ("tests/ipu/test_replication.py::test_paddle", None),
        ("tests/ipu/test_schedule.py::test_a", None),
    ],
)
def test_the_framework_stands_in_the_id(nodeid, expected):
    """A case names its framework in its parameters or in the path of its file."""
    assert framework_of(nodeid) == expected


NODE_IDS = st.lists(
    st.builds(
        "tests/ipu/{}test_x.py::test_{}".format,
        st.sampled_from(["", "poptorch/", "tensorflow/", "paddle/"]),
        st.integers(0, 10_000),
    ),
    unique=True,
    max_size=200,
)


@given(nodeids=NODE_IDS)
def test_chunks_are_small_and_of_one_framework(nodeids):
    """Every test is in one chunk, chunks hold at most CHUNK tests, all of one framework, in order."""
    by_chunk = {}
    for nodeid, chunk in chunks(nodeids).items():
        by_chunk.setdefault(chunk, []).append(nodeid)

    assert sorted(chain.from_iterable(by_chunk.values())) == sorted(nodeids)
    for chunk, members in by_chunk.items():
        assert len(members) <= CHUNK
        assert {framework_of(member) or NEUTRAL for member in members} == {chunk.split(":")[0]}
        assert members == [nodeid for nodeid in nodeids if nodeid in set(members)]


def simulate(work, workers):
    """Hand out ``work`` chunks per framework to workers in turn; the frameworks each has imported at the end."""
    waiting = [f"{framework}:{i}" for framework, count in work.items() for i in range(count)]
    imported = [set() for _ in range(workers)]
    turn = 0
    while waiting:
        mine = imported[turn % workers]
        having = {framework: sum(framework in other for other in imported) for framework in work}
        chunk = next_chunk(waiting, mine, having)
        waiting.remove(chunk)
        mine.add(chunk.split(":")[0])
        turn += 1
    return imported


def test_each_worker_keeps_to_one_framework_while_there_is_work():
    """Three equal frameworks on three workers are imported once each."""
    assert simulate({"poptorch": 5, "tensorflow": 5, "paddle": 5}, workers=3) == [
        {"poptorch"},
        {"tensorflow"},
        {"paddle"},
    ]


def test_the_larger_framework_gets_more_workers():
    """Further workers join the framework with the most work for each worker that has it."""
    imported = simulate({"poptorch": 30, "tensorflow": 10, "paddle": 10}, workers=5)

    assert [sum(name in mine for mine in imported) for name in ("poptorch", "tensorflow", "paddle")] == [3, 1, 1]


def test_work_without_a_framework_fills_the_gaps():
    """A worker does neutral work before it imports a framework that others are about to finish."""
    assert next_chunk(["poptorch:7", "none:0"], {"paddle"}, {"poptorch": 2}) == "none:0"
    assert next_chunk(["poptorch:7", "none:0"], {"poptorch"}, {"poptorch": 2}) == "poptorch:7"


@given(
    work=st.dictionaries(st.sampled_from(["poptorch", "tensorflow", "paddle", NEUTRAL]), st.integers(1, 12)),
    workers=st.integers(1, 6),
)
def test_everything_is_handed_out(work, workers):
    """No chunk is lost or handed out twice, whatever the mix."""
    imported = simulate(work, workers)

    assert set().union(*imported) == set(work)


@pytest.mark.parametrize(("workers", "cores", "share"), [(1, 8, "8"), (4, 8, "2"), (4, 2, "1"), (3, 8, "2")])
def test_workers_share_the_cores(workers, cores, share):
    """An operation of a worker takes its share of the cores, and one at least."""
    assert threads(workers, cores, {}) == {"OMP_NUM_THREADS": share, "TF_NUM_INTRAOP_THREADS": share}


def test_a_number_of_threads_that_is_set_stays():
    """Who sets a variable decides."""
    assert threads(4, 8, {"OMP_NUM_THREADS": "3"}) == {"TF_NUM_INTRAOP_THREADS": "2"}


class Worker:
    """A worker of xdist that takes work, or is gone already and cannot be reached."""

    shutting_down = False

    def __init__(self, gone):
        self.gone = gone
        self.received = []

    def send_runtest_some(self, indices):
        if self.gone:
            raise OSError("cannot send (already closed?)")
        self.received.extend(indices)


def test_work_for_a_worker_that_is_gone_goes_to_another():
    """Work that is sent to a worker which has died unnoticed runs elsewhere, but for the test that it died in."""
    dead, alive = Worker(gone=True), Worker(gone=False)
    names = [f"test_it[{number}]" for number in range(5)]
    scheduling = FrameworkScheduling.__new__(FrameworkScheduling)
    scheduling._imported = {}
    scheduling.log = lambda *words: None
    scheduling.registered_collections = {dead: names, alive: names}
    scheduling.assigned_work = OrderedDict({dead: {}, alive: {}})
    scheduling.workqueue = OrderedDict({"none:0": dict.fromkeys(names, False)})

    scheduling._assign_work_unit(dead)
    died_in = scheduling.remove_node(dead)

    assert died_in == names[0]
    assert alive.received == [1, 2, 3, 4]


CRASHING = """
import os, pytest

@pytest.mark.parametrize("number", range(40))
def test_it(number):
    assert os.environ["OMP_NUM_THREADS"] == str(max(1, os.cpu_count() // 2))
    if number in (5, 6, 38, 39):
        os._exit(3)
"""


def test_a_worker_that_dies_takes_one_test_with_it(tmp_path):
    """Each test that ends its process fails once, and all others run; the last ones of a run are no exception."""
    (tmp_path / "test_crashing.py").write_text(CRASHING)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    made = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "test_crashing.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120, env=environment,
    )  # fmt: skip

    assert "4 failed, 36 passed" in made.stdout, made.stdout + made.stderr
    for number in (5, 6, 38, 39):
        assert made.stdout.count(f"FAILED test_crashing.py::test_it[{number}]") == 1
