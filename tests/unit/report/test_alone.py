"""A failed case of the suite is a program that needs neither pytest nor a fixture, and fails by the same sentence."""

import json
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from ipu_conformance.report import folder as report_folder
from ipu_conformance.report.alone import lost, sources, stand_ins, values
from ipu_conformance.report.alone.slices import Slice
from ipu_conformance.run import RunConfig, optimizer
from ipu_conformance.suite_files import suite_folder
from tests.unit.commands import run

UNSLICED = {
    "test_forward": "an op has its call as a program",
    "test_gradient": "an op has its call as a program",
    "test_any_call": "an op has its call as a program",
    "test_another_process_leaves_the_same_bits": "the other process imports the file of the case",
    "test_an_exported_model_runs_elsewhere": "a pickle names the module of its class",
    "test_saving_keeps_the_trained_weights": "a pickle names the module of its class",
}
"""The cases that have no program made of their text, and why."""

SLICING = """
import json, sys
import pytest
from ipu_conformance.report.alone import programs
from ipu_conformance.report.alone.slices import UnslicedError

texts, refused = {}, set()

class Slicing:
    def pytest_collection_finish(self, session):
        for item in session.items:
            key = f"{item.path.name}::{item.originalname}"
            if key not in texts and item.originalname not in refused:
                try:
                    texts[key] = programs.program(item, dict.fromkeys(("poptorch", "tensorflow", "paddle"), "emulator"))
                except UnslicedError:
                    refused.add(item.originalname)

words = ["--collect-only", "-qq", "-m", "ipu", "--ipu-level", "qualify", "--ipu-target", "emulator"]
code = pytest.main([sys.argv[1], *words, "-p", "no:cacheprovider"], plugins=[Slicing()])
with open("programs.json", "w") as file:
    json.dump({"code": code, "texts": texts, "refused": sorted(refused)}, file)
"""


def unknown_names(text):
    """The names that a program uses and does not have."""
    source = sources.Source(Path("failure.py"), text)
    said = {each.name for statement in source.statements for each in sources.references(statement)}
    unknown = said - {*source.bound, *source.imported, "__name__", "__file__"}
    return sorted(name for name in unknown if not sources.is_builtin(name))


def test_every_function_of_the_suite_is_a_program(tmp_path):
    """It has each name that it uses, and does not import pytest."""
    answer = run("-c", SLICING, str(suite_folder()), module=None, cwd=tmp_path)
    sliced = json.loads((tmp_path / "programs.json").read_text())
    unknown = {key: unknown_names(text) for key, text in sliced["texts"].items()}

    assert sliced["code"] == pytest.ExitCode.OK, answer.stderr
    assert sliced["refused"] == sorted(UNSLICED)
    assert len(sliced["texts"]) > 1000
    assert {key: names for key, names in unknown.items() if names} == {}
    assert [key for key, text in sliced["texts"].items() if "import pytest" in text] == []


FAULT = "update-halved"
CASES = (
    "paddle/training/test_weights_sync_ipu.py::test_a_sync_leaves_the_device_as_it_is[twice]",
    "paddle/strategy/test_dy2static_fp16_ipu.py::test_a_call_is_a_step_in_float16[3-1.0]",
    "training/test_updates_ipu.py::test_weights_are_the_oracle_s[paddle-mlp-D2-G4-R3-momentum]",
    "ops/test_any_call_ipu.py::test_any_call[paddle-7]",
)
EXECUTING = """
import pathlib, runpy, sys
sys.modules["pytest"] = None
from ipu_conformance.check.failure import CheckFailure
from ipu_conformance.emulator.faults import catalogue

catalogue.load("paddle")

def execute():
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except CheckFailure as failure:
            print(str(failure).splitlines()[0])

execute()
with catalogue.inject(sys.argv[2]):
    execute()
"""


def test_a_program_fails_by_the_sentence_of_its_case_and_without_the_fault_not_at_all(tmp_path):
    """Cases with fixtures, with parameters, of all frameworks, and of an op."""
    cases = [str(suite_folder() / case) for case in CASES]
    words = ["--ipu-frameworks", "paddle", "--ipu-target", "emulator", "--ipu-level", "qualify", "--ipu-report", "out"]
    run(*cases, *words, "-p", "no:cacheprovider", module="pytest", cwd=tmp_path, IPU_CONFORMANCE_FAULT=FAULT)
    report = report_folder.read_report(tmp_path / "out")
    answer = run("-c", EXECUTING, "out/failures", FAULT, module=None, cwd=tmp_path)
    said = [line for line in answer.stdout.splitlines() if line]

    assert sorted(row["case"] for row in report["cases"] if row["outcome"] == "failed") == sorted(CASES)
    assert [line.endswith(" is as specified") for line in said[:4]] == [True] * 4, answer.stderr
    assert sorted(said[4:]) == sorted(row["sentence"] for row in report["cases"])


CRASHING = """
import os

def pytest_runtest_call():
    os._exit(9)
"""


def test_a_case_that_took_its_process_with_it_is_a_program_too(tmp_path):
    """Another process collects the case; an op has none, since nobody knows its call."""
    (tmp_path / "crashing.py").write_text(CRASHING)
    cases = [CASES[0], "ops/test_ops_ipu.py::test_forward[paddle-elementwise-sub-float32-drawn]"]
    words = ["--ipu-frameworks", "paddle", "--ipu-target", "emulator", "--ipu-level", "qualify", "--ipu-report", "out"]
    paths = [str(suite_folder() / case) for case in cases]
    run(*paths, *words, "-p", "crashing", "-p", "no:cacheprovider", module="pytest", cwd=tmp_path, PYTHONPATH=tmp_path)
    (program,) = (tmp_path / "out" / "failures").glob("*.py")
    answer = run(str(program), module=None, cwd=tmp_path)

    assert "exit: the case ended its process with exit code 9" in program.read_text()
    assert answer.stdout.splitlines()[-1] == "the case is as specified", answer.stderr


ROWS = "paddle/strategy/test_feed_fetch_ipu.py::test_a_feed_of_another_size_is_refused[transposed-D2-G4-R3]"


def test_a_parameter_that_nothing_names_is_a_place_in_the_rows_of_the_case():
    """The rows stand in the program, those with marks among them."""
    text = lost.program(ROWS, "emulator", {"paddle": "emulator"})

    assert "pytest.param(lambda n: (MICRO_BATCH, n, 2), marks=pytest.mark.emulator)" in text
    assert text.count("], 1)[4][0])") == 1
    assert unknown_names(text) == []


SUITE = {
    "conftest.py": """
        import pytest
        from .tables import TWICE

        @pytest.fixture
        def given():
            yield TWICE["half"]
        """,
    "tables.py": """
        import operator

        # What twice a number is.
        TWICE = {"half": 1.0, "one": 2.0}
        '''By words.'''

        def check(value, where=__file__):
            size = value * 2
            return size, where
        """,
    "test_a.py": """
        import operator
        from . import tables
        from .tables import check as checked

        def test_a(given, size):
            check = tables.check(given)
            assert [each for each in check] == checked(size)
        """,
}


SLICED = """\
    # tables.py
    tables_file = str(suite_folder() / 'tables.py')
    # What twice a number is.
    TWICE = {"half": 1.0, "one": 2.0}
    '''By words.'''
    def tables_check(value, where=tables_file):
        size = value * 2
        return size, where
    # conftest.py
    @contextlib.contextmanager
    def given_given():
        yield TWICE["half"]
    # test_a.py
    def test_a(given, size):
        check = tables_check(given)
        assert [each for each in check] == tables_check(size)"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """A suite of three files, in the place of ours."""
    for name, text in SUITE.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    for module in ("ipu_conformance.report.alone.slices", "ipu_conformance.suite_files"):
        monkeypatch.setattr(f"{module}.suite_folder", lambda: tmp_path)
    return tmp_path


def test_a_slice_is_what_a_function_needs(suite):
    """Definitions of other files under names that no variable has, with their comments, in an order that runs."""
    cut = Slice()
    cut.function(sources.read(suite / "conftest.py"), "given", "@contextlib.contextmanager", "given_given")
    name = cut.function(sources.read(suite / "test_a.py"), "test_a")
    text = "\n".join(cut.definitions())

    assert name == "test_a"
    assert list(cut.imports()) == ["from ipu_conformance.suite_files import suite_folder"]
    assert text == textwrap.dedent(SLICED)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        ("it's", '"it\'s"'),
        ((1,), "(1,)"),
        ([1.5, float("-inf")], "[1.5, float('-inf')]"),
        ({"a": {2, 1}}, "{'a': set([1, 2])}"),
        (np.float32(0.5), "array(0.5, 'float32')[()]"),
        (np.zeros((0, 3), "int32"), "array([], 'int32').reshape((0, 3))"),
        (slice(1, None), "slice(1, None, None)"),
        (len, "len"),
        (Path("a") / "b", "Path('a/b')"),
        (json.dumps, "dumps"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_value_is_written_so_that_python_reads_it(value, text):
    """What is plain stands there; what a module defines is imported."""
    assert values.written(value, Slice(), sys.modules[__name__]) == text


def test_a_configuration_is_written_without_its_defaults():
    """And is equal to the one that it was."""
    config = RunConfig(replicas=3, optimizer=optimizer("lamb", weight_decay=0.5))
    cut = Slice()
    text = values.written(config, cut, sys.modules[__name__])
    names = {}
    exec("\n".join(cut.imports()), names)

    assert eval(text, names) == config
    assert "device_iterations" not in text


HELD = {"row": (lambda x: x + 1, 2)}


def test_a_value_without_a_name_is_looked_for_in_the_files_of_the_case(monkeypatch):
    """A lambda of a table is the place where the table has it."""
    monkeypatch.setattr(values, "in_suite", lambda path: True)

    assert values.written(HELD["row"][0], Slice(), sys.modules[__name__]) == "HELD['row'][0]"


def test_what_pytest_gives_is_there_without_it(monkeypatch, capfd):
    """Folders, variables, printed text and log lines, which are put back."""
    monkeypatch.setenv("STOOD", "before")
    with stand_ins.FIXTURES["monkeypatch"]() as patch, stand_ins.FIXTURES["tmp_path"]() as folder:
        patch.setenv("STOOD", "inside")
        patch.setattr("json.dumps", len)
        patch.delenv("NEVER", raising=False)
        patch.chdir(folder)
        inside = json.dumps("abc"), Path.cwd(), sys.modules["os"].environ["STOOD"]
    with stand_ins.FIXTURES["capfd"]() as captured:
        sys.modules["os"].write(1, b"native")
        printed = captured.readouterr()

    assert inside == (3, folder, "inside")
    assert (json.dumps("abc"), folder.exists(), sys.modules["os"].environ["STOOD"]) == ('"abc"', False, "before")
    assert printed == ("native", "")


def test_a_mark_leaves_a_function_as_it_is():
    """With arguments and without: a case may be what another one calls."""
    function = stand_ins.mark.emulator(stand_ins.mark.parametrize("x", [1, 2])(len))

    assert function is len
    assert stand_ins.parameters([stand_ins.param(1, 2, marks=stand_ins.mark.ipus(4)), (3, 4)], 2) == [(1, 2), (3, 4)]
    assert stand_ins.parameters((each for each in "ab"), 1) == [("a",), ("b",)]


@pytest.mark.parametrize("call", [lambda: stand_ins.skip("needs 4 IPUs"), lambda: stand_ins.importorskip("no_such")])
def test_a_program_that_cannot_be_executed_ends_with_the_reason(call):
    """Its exit code is not 0."""
    with pytest.raises(SystemExit, match=r"skipped: (needs 4 IPUs|No module named 'no_such')"):
        call()
