"""Cases are spread so that a framework is imported by as few workers as makes sense."""

import os
import subprocess
import sys
from collections import OrderedDict
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.workers.scheduler import FrameworkScheduling
from ipu_conformance.workers.scheduling import (
    CHUNK,
    NEUTRAL,
    THREADS,
    chunks,
    cost,
    framework_of,
    next_chunk,
    program_of,
    run_of,
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


def test_tests_that_share_a_process_are_one_chunk_for_each_framework():
    """What the first of them starts, no other worker starts again."""
    kills = [
        f"tests/unit/faults/test_kills.py::test_a[{name}-{n}]" for n in range(9) for name in ("paddle", "poptorch")
    ]
    wheel = [f"tests/unit/suite/test_wheel.py::test_{n}" for n in range(CHUNK + 3)]
    others = [f"tests/unit/suite/test_hook.py::test_{n}" for n in range(CHUNK + 3)]
    found = chunks([*kills, *others, *wheel])

    assert {found[nodeid] for nodeid in kills} == {
        f"{name}:unit/faults/test_kills.py" for name in ("paddle", "poptorch")
    }
    assert {found[nodeid] for nodeid in wheel} == {f"{NEUTRAL}:unit/suite/test_wheel.py"}
    assert len({found[nodeid] for nodeid in others}) == 2


def simulate(work, workers):
    """Hand out ``work`` chunks per framework to workers in turn; the frameworks each has imported at the end."""
    waiting = {f"{framework}:{i}": CHUNK for framework, count in work.items() for i in range(count)}
    imported = [set() for _ in range(workers)]
    turn = 0
    while waiting:
        mine = imported[turn % workers]
        having = {framework: sum(framework in other for other in imported) for framework in work}
        chunk = next_chunk(waiting, mine, having)
        del waiting[chunk]
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
    waiting = {"poptorch:7": CHUNK, "none:0": CHUNK}

    assert next_chunk(waiting, {"paddle"}, {"poptorch": 2}) == "none:0"
    assert next_chunk(waiting, {"poptorch"}, {"poptorch": 2}) == "poptorch:7"


def test_the_largest_chunk_goes_first():
    """What takes long is begun early; chunks of one size keep their order."""
    waiting = {"paddle:0": 8, "paddle:a": 31, "paddle:b": 31, "paddle:1": 5}

    assert next_chunk(waiting, {"paddle"}, {}) == "paddle:a"


def test_a_long_case_is_a_chunk_of_its_own():
    """What takes seconds waits for no neighbour, and no neighbour waits for it."""
    long = [f"tests/ipu/ops/test_any_call_ipu.py::test_any_call[paddle-{seed}]" for seed in (3, 5)]
    short = [f"tests/ipu/paddle/strategy/test_compile_ipu.py::test_{number}" for number in range(3)]
    by_chunk = chunks([short[0], long[0], short[1], long[1], short[2]])

    assert len({by_chunk[nodeid] for nodeid in long}) == 2
    assert len({by_chunk[nodeid] for nodeid in short}) == 1
    assert not {by_chunk[nodeid] for nodeid in long} & {by_chunk[nodeid] for nodeid in short}


def test_every_area_has_a_cost():
    """A test that the table does not name costs what most do; TensorFlow's take longer."""
    assert cost("tests/unit/check/test_values.py::test_a") > 0
    assert cost("tests/ipu/training/test_x.py::test_a[tensorflow-a]") > cost(
        "tests/ipu/training/test_x.py::test_a[paddle-a]"
    )
    assert cost("tests/ipu/ops/test_ops_ipu.py::test_forward[paddle-a-b-float32-drawn]") < cost(
        "tests/ipu/training/test_x.py::test_a[paddle-a]"
    )


def test_a_framework_weighs_as_much_as_its_tests():
    """One chunk of many tests is more work than two of a few."""
    assert next_chunk({"paddle:0": 8, "paddle:1": 8, "poptorch:a": 40}, set(), {}) == "poptorch:a"


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("suite/ops/test_a.py::test_f[paddle-reduce-sum-float16-axis1]", "suite/ops/test_a.py::paddle-reduce-float16"),
        ("ops/test_a.py::test_f[tensorflow-unary-exp-float32]", "ops/test_a.py::tensorflow-unary-float32"),
        ("suite/ops/deep/test_b.py::test_f[poptorch-conv-1d-int32]", "suite/ops/deep/test_b.py::poptorch-conv-int32"),
        ("tests/ipu/ops/test_a_ipu.py::test_forward[unary-exp-float32-paddle]", None),
        ("tests/ipu/ops/test_a_ipu.py::test_forward[paddle-unary-exp]", None),
        ("tests/ipu/ops/test_a_ipu.py::test_forward", None),
        ("tests/ipu/poptorch/ops/test_a_ipu.py::test_forward[poptorch-unary-exp-float32]", None),
        ("tests/ipu/training/test_a_ipu.py::test_forward[poptorch-unary-exp-float32]", None),
    ],
)  # fmt: skip
def test_the_id_names_the_program(nodeid, expected):
    """Ops of one family and dtype share a program of their framework and file; other cases share none."""
    assert program_of(nodeid) == expected


def test_cases_of_one_program_are_one_chunk():
    """However many they are, and wherever they stand; cases of another program and others are apart."""
    shared = [f"tests/ipu/ops/test_a.py::test_f[paddle-unary-op{number}-float32]" for number in range(3 * CHUNK)]
    half = [f"tests/ipu/ops/test_a.py::test_f[paddle-unary-op{number}-float16]" for number in range(3)]
    others = [f"tests/ipu/paddle/test_b.py::test_{number}" for number in range(CHUNK + 1)]
    mixed = [*shared[:5], *others[:4], *half, *shared[5:], *others[4:]]

    by_chunk = {}
    for nodeid, chunk in chunks(mixed).items():
        by_chunk.setdefault(chunk, []).append(nodeid)

    assert sorted(by_chunk.values()) == sorted([shared, half, others[:CHUNK], others[CHUNK:]])
    assert {chunk.split(":")[0] for chunk in by_chunk} == {"paddle"}


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("tests/ipu/training/test_a_ipu.py::test_b[paddle-mlp-sharded-3-R5]", "training::mlp-sharded-3-R5"),
        ("suite/training/test_c_ipu.py::test_d[tensorflow-mlp-sharded-3-R5]", "training::mlp-sharded-3-R5"),
        ("tests/ipu/training/test_a_ipu.py::test_b[paddle]", None),
        ("tests/ipu/training/test_a_ipu.py::test_b[mlp-paddle]", None),
        ("tests/ipu/training/test_a_ipu.py::test_b", None),
        ("tests/ipu/paddle/training/test_a_ipu.py::test_b[paddle-mlp]", None),
        ("tests/ipu/models/test_a_ipu.py::test_b[paddle-replicated-lstm]", "models::replicated-lstm"),
        ("tests/unit/oracle/training/test_a.py::test_b[paddle-mlp]", None),
    ],
)  # fmt: skip
def test_the_id_names_the_run(nodeid, expected):
    """Cases of the rules of training, and of models, share a row of their tables, in whatever file they stand."""
    assert run_of(nodeid) == expected


def test_cases_of_one_run_are_one_chunk():
    """Those of a row on one framework are, and those of a file whose cases look at the same runs."""
    row = [
        f"tests/ipu/training/test_{file}_ipu.py::test_{case}[paddle-mlp-R3]" for file in "abc" for case in range(CHUNK)
    ]
    other = [nodeid.replace("R3", "R5") for nodeid in row[:3]]
    elsewhere = [nodeid.replace("paddle", "poptorch") for nodeid in row[:5]]
    workload = [f"tests/ipu/tensorflow/training/test_cifar10_ipu.py::test_{case}" for case in range(CHUNK + 3)]
    own = [f"tests/unit/workloads/test_mnist_ipu.py::test_{case}" for case in range(3)]

    by_chunk = {}
    for nodeid, chunk in chunks([*own, *row[:9], *other, *workload, *elsewhere, *row[9:]]).items():
        by_chunk.setdefault(chunk, []).append(nodeid)

    assert sorted(by_chunk.values()) == sorted([own, row, other, elsewhere, workload])


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
    assert threads(workers, cores, {"MALLOC_ARENA_MAX": "8"}) == {
        "OMP_NUM_THREADS": share,
        "TF_NUM_INTRAOP_THREADS": share,
    }


def test_the_threads_of_a_worker_share_their_memory():
    """glibc gives a worker two pools of memory, however many threads run replicas in it."""
    assert threads(4, 8, {})["MALLOC_ARENA_MAX"] == "2"


def test_a_number_of_threads_that_is_set_stays():
    """Who sets a variable decides."""
    given = {"OMP_NUM_THREADS": "3", "MALLOC_ARENA_MAX": "8"}

    assert threads(4, 8, given) == {"TF_NUM_INTRAOP_THREADS": "2"}


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
    scheduling._imported, scheduling._cost_of = {}, {"none:0": 1.0}
    scheduling._position_of = {name: position for position, name in enumerate(names)}
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


EXITING = """
import os, pytest

@pytest.mark.ipu
@pytest.mark.parametrize("number", range(7))
def test_it(number):
    os._exit(3)
"""


@pytest.mark.parametrize(("options", "outcome"), [((), "7 failed"), (("--max-worker-restart", "2"), "3 failed")])
def test_a_device_that_takes_many_workers_with_it_does_not_end_the_run(tmp_path, options, outcome):
    """A crash costs one case; xdist gives up after four crashes a worker, unless the command line says otherwise."""
    (tmp_path / "test_exiting.py").write_text(EXITING)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "ipu", "-n", "1", "-p", "no:cacheprovider", *options],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    assert outcome in run.stdout, run.stdout + run.stderr
