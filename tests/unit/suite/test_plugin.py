"""The plug-in marks, selects, activates and counts; a run that proves nothing fails."""

import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipu_conformance import plugin, tally
from ipu_conformance.asking import SELECTION, matches_cases_only
from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.notes import NOT_SHOWN
from ipu_conformance.selection import Selection
from ipu_conformance.suite_files import suite_folder
from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.workers import hooks

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Where a third party's target is installed, a package of its own with what pip leaves: a device for everything."""
    site = tmp_path_factory.mktemp("site")
    (site / "acme.py").write_text(
        textwrap.dedent(
            """
            import sys, types

            from ipu_conformance.targets import Availability, Target


            class Acme(Target):
                kind = "hardware"

                def probe(self, framework):
                    return Availability(framework.name != "paddle", "an Acme accelerator")

                def activate(self, framework):
                    sys.modules["poptorch"] = types.SimpleNamespace(device="acme")

                def ipus(self):
                    return 4
            """
        )
    )
    information = site / "acme_target-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-target\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[ipu_conformance.targets]\nacme = acme:Acme\n")
    return site


@pytest.fixture
def vendor(installed, monkeypatch):
    """The third party's target, where the processes of a test find it."""
    monkeypatch.setenv("PYTHONPATH", str(installed))


CASES = """
    import pytest

    pytestmark = pytest.mark.ipu

    def test_neutral():
        pass

    @pytest.mark.poptorch
    def test_on_poptorch():
        import poptorch

        assert poptorch.device == "acme"

    @pytest.mark.paddle
    def test_on_paddle():
        raise AssertionError("paddle has no target here")

    @pytest.mark.hardware
    @pytest.mark.poptorch
    def test_hardware():
        pass

    @pytest.mark.emulator
    @pytest.mark.poptorch
    def test_emulator():
        raise AssertionError("this is not the emulator")

    @pytest.mark.level("soak")
    def test_long():
        raise AssertionError("not at this level")

    @pytest.mark.ipus(8)
    @pytest.mark.poptorch
    def test_eight():
        raise AssertionError("there are four")

    @pytest.mark.requires("a_module_of_other_versions")
    @pytest.mark.poptorch
    def test_other_version():
        raise AssertionError("this version has no such module")

    @pytest.mark.requires("json")
    @pytest.mark.poptorch
    def test_this_version():
        pass
"""


@pytest.mark.usefixtures("vendor")
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one-process", "xdist"])
def test_cases_run_on_a_third_partys_target(pytester, workers):
    """A plug-in's target is chosen by name, activated before its cases, and said in the header, once."""
    pytester.makepyfile(test_acme=CASES)

    result = pytester.runpytest_subprocess("--ipu-target", "acme", "-rs", *workers)

    result.assert_outcomes(passed=4, skipped=1, deselected=0 if workers else 4)
    lines = result.stdout.lines
    assert lines.count("ipu poptorch: acme (an Acme accelerator)") == 1
    assert lines.count("ipu paddle: left out (an Acme accelerator)") == 1
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "cases: 4 executed, 1 skipped, 4 left out; areas tested: 1",
            "left out: 1 that need a_module_of_other_versions",
            "left out: 1 that need level soak",
            "left out: 1 that need paddle",
            "left out: 1 that need target kind emulator",
            "*needs 8 IPUs, the target offers 4",
        ]
    )


@pytest.mark.usefixtures("vendor")
def test_a_framework_that_was_asked_for_and_is_missing_fails_the_run(pytester):
    """Asking for a framework that has no target stops the run before it starts."""
    pytester.makepyfile(test_acme=CASES)

    result = pytester.runpytest_subprocess("--ipu-target", "acme", "--ipu-frameworks", "poptorch,paddle")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: paddle was asked for and cannot run on target 'acme': an Acme accelerator."])


@pytest.mark.parametrize(
    ("arguments", "variable", "code"),
    [
        ([], "acme", pytest.ExitCode.OK),
        (["--ipu-target", "emulator"], "", pytest.ExitCode.OK),
        (["--ipu-target", "acme"], "", pytest.ExitCode.USAGE_ERROR),
    ],
    ids=["not about cases", "another target", "asked for"],
)
def test_a_broken_plug_in_harms_only_runs_that_ask_for_it(pytester, monkeypatch, arguments, variable, code):
    """A plug-in that ends its process when it is imported is never imported, unless a run of cases names it."""
    (pytester.path / "acme.py").write_text("raise SystemExit('no driver')\n")
    information = pytester.mkdir("acme_target-1.0.dist-info")
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-target\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[ipu_conformance.targets]\nacme = acme:Acme\n")
    monkeypatch.syspath_prepend(pytester.path)
    monkeypatch.setenv("IPU_CONFORMANCE_TARGET", variable)
    pytester.makepyfile("def test_a():\n    pass\n")

    result = pytester.runpytest_inprocess(*arguments)

    assert result.ret == code
    if code:
        result.stderr.fnmatch_lines(["ERROR: target plug-in 'acme' (acme:Acme) cannot be loaded: no driver; *"])
    elif not arguments:
        assert "ipu level" not in result.stdout.str()


def test_a_bad_option_is_one_sentence(pytester):
    """A value that is not allowed ends the run with what is allowed."""
    result = pytester.runpytest_inprocess("--ipu-level", "quick")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --ipu-level is 'quick'; choose one of smoke, premerge, qualify, soak."])


def test_the_environment_sets_the_options(pytester, monkeypatch):
    """Each option has an environment variable."""
    monkeypatch.setenv("IPU_CONFORMANCE_LEVEL", "soak")
    pytester.makepyfile("import pytest\n\n@pytest.mark.ipu\n@pytest.mark.level('soak')\ndef test_long():\n    pass\n")

    result = pytester.runpytest_inprocess("-m", "ipu")

    result.stdout.fnmatch_lines(["ipu level: soak", "cases: 1 executed, 0 skipped, 0 left out; areas tested: 1"])


def test_a_level_that_does_not_exist_is_a_usage_error(pytester):
    """A case that asks for an unknown level is named."""
    pytester.makepyfile("import pytest\n\n@pytest.mark.ipu\n@pytest.mark.level('fast')\ndef test_a():\n    pass\n")

    result = pytester.runpytest_inprocess("-m", "ipu")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *test_a asks for level 'fast'; choose one of *"])


@pytest.mark.parametrize(
    ("kinds", "expression", "started"),
    [
        (("emulator",), "ipu", 3),
        (("emulator",), "ipu and not slow", 3),
        (("emulator",), "", 5),
        (("emulator", "hardware"), "ipu", 5),
        (("hardware",), "ipu", 5),
    ],
)
def test_the_emulator_has_no_more_workers_than_cores(kinds, expression, started, monkeypatch):
    """Cases on a device of its own, and a run that has other tests too, get the workers that were asked for."""
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    config: Any = SimpleNamespace(
        option=SimpleNamespace(tx=["popen"] * 5),
        stash={SELECTION: SimpleNamespace(kinds=kinds)},
        getoption={"markexpr": expression}.get,
    )
    hooks.limit(config)

    assert len(config.option.tx) == started


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one-process", "xdist"])
def test_a_run_without_an_executed_case_fails(pytester, workers):
    """When every case is skipped the run fails and says so."""
    pytester.makepyfile("import pytest\n\n@pytest.mark.ipu\ndef test_a():\n    pytest.skip('no')\n")

    result = pytester.runpytest_subprocess("-m", "ipu", *workers)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["FAILED: No case was executed: all 1 were skipped."])


def test_a_run_that_selects_nothing_fails(pytester):
    """Asking for ipu cases where there are none is not a pass."""
    pytester.makepyfile("def test_a():\n    pass\n")

    result = pytester.runpytest_inprocess("-m", "ipu")

    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["FAILED: No case was executed."])


@pytest.mark.parametrize(("option", "expression"), [("-k", "("), ("-m", "ipu and")])
def test_an_expression_that_nobody_can_read_is_one_sentence(pytester, option, expression):
    """Workers would refuse it one by one, which xdist takes for an internal error."""
    pytester.makepyfile("import pytest\n\n@pytest.mark.ipu\ndef test_a():\n    pass\n")

    result = pytester.runpytest_subprocess("-m", "ipu", option, expression, "-n", "2")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {option} is '{expression}', which cannot be read: *"])


def test_an_area_with_every_case_skipped_fails(pytester):
    """One area that was not tested fails a run in which others passed."""
    pytester.makepyfile(
        test_replication="import pytest\n\n@pytest.mark.ipu\ndef test_a():\n    pass\n",
        test_pipelining="import pytest\n\n@pytest.mark.ipu\ndef test_a():\n    pytest.skip('no')\n",
    )

    result = pytester.runpytest_inprocess("-m", "ipu")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["FAILED: Area 'pipelining' was not tested: every case of it was skipped (1)."])


@pytest.mark.parametrize(
    ("target", "code", "line"),
    [
        ("acme", pytest.ExitCode.OK, "not covered: 1 skipped: the target does not show its compiled program"),
        ("emulator", pytest.ExitCode.TESTS_FAILED, "FAILED: Area 'poptorch dumps' was not tested: *"),
    ],
)
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one-process", "xdist"])
def test_a_target_may_show_no_more_than_the_vendors_api(pytester, vendor, target, code, line, workers):
    """An area that looks at more is not covered on an accelerator; the emulator shows everything."""
    pytester.mkdir("poptorch")
    skipped = f"pytest.skip('{NOT_SHOWN}its compiled program')"
    header = "import pytest\npytestmark = [pytest.mark.ipu, pytest.mark.poptorch]\n"
    pytester.path.joinpath("poptorch", "test_dumps.py").write_text(f"{header}def test_a():\n    {skipped}\n")
    pytester.path.joinpath("poptorch", "test_replication.py").write_text(f"{header}def test_b():\n    pass\n")

    result = pytester.runpytest_subprocess("-m", "ipu", "--ipu-target", target, *workers)

    assert result.ret == code
    result.stdout.fnmatch_lines(["cases: 1 executed, 1 skipped, 0 left out; areas tested: 1", line])


def test_an_area_with_one_executed_case_passes(pytester):
    """A skip beside an executed case is only counted."""
    pytester.makepyfile(
        "import pytest\npytestmark = pytest.mark.ipu\ndef test_a():\n    pass\ndef test_b():\n    pytest.skip('no')\n"
    )

    result = pytester.runpytest_inprocess("-m", "ipu")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["cases: 1 executed, 1 skipped, 0 left out; areas tested: 1"])


def test_other_tests_are_left_alone(pytester):
    """A run that has nothing to do with the suite is neither judged nor summarised."""
    pytester.makepyfile("import pytest\n\ndef test_a():\n    pytest.skip('no')\n")

    result = pytester.runpytest_inprocess()

    assert result.ret == pytest.ExitCode.OK
    assert "IPU conformance" not in result.stdout.str()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("ipu", True),
        ("ipu and poptorch", True),
        ("poptorch and (ipu and not emulator)", True),
        ("not (not ipu or paddle)", True),
        ("ipu or poptorch", False),
        ("not ipu", False),
        ("ipu or not paddle", False),
        ("paddle", False),
        ("", False),
        ("ipu and", False),
        (" or ".join(f"(ipu and m{number})" for number in range(30)), False),
    ],
)
def test_an_expression_may_match_cases_only(expression, expected):
    """It does if no choice of other markers makes it true without ipu; a long one is not worth the search."""
    assert matches_cases_only(expression) is expected


@pytest.mark.parametrize(
    ("arguments", "collected"),
    [
        (["-m", "ipu", "tests"], {"tests/ipu"}),
        (["-m", "ipu and paddle"], {"tests/ipu"}),
        (["-m", "paddle or ipu", "tests"], {"tests/ipu", "tests/unit"}),
        (["tests"], {"tests/ipu", "tests/unit"}),
        (["-m", "ipu", "tests/ipu", "tests/unit"], {"tests/ipu", "tests/unit"}),
        (["-m", "ipu", "tests/unit/suite/test_layers.py"], {"tests/unit"}),
    ],
    ids=lambda words: " ".join(sorted(words)) if isinstance(words, set) else " ".join(words),
)
def test_a_run_of_cases_alone_opens_no_test_of_the_project(pytester, monkeypatch, arguments, collected):
    """Tests of the project are opened where an expression may match them, or where they are asked for by name."""
    opened = set()
    for folder in ("tests/ipu", "tests/unit/suite"):
        (pytester.path / folder).mkdir(parents=True)
        (pytester.path / folder / "test_layers.py").write_text("def test_a():\n    pass\n")
    monkeypatch.setattr(plugin, "suite_folder", lambda: pytester.path / "tests" / "ipu")

    class Watch:
        def pytest_collect_file(self, file_path):
            if file_path.suffix == ".py":
                opened.add("/".join(file_path.relative_to(pytester.path).parts[:2]))

    pytester.makeini("[pytest]\ntestpaths = tests\n")
    pytester.inline_run("--collect-only", "--import-mode=importlib", *arguments, plugins=[Watch()])

    assert opened == collected


@pytest.mark.parametrize("root", [None, "/"])
def test_the_suite_is_whole_below_a_foreign_pytest_ini(pytester, root):
    """Every file is collected, ids name the framework, and fixtures of common names are the suite's own.

    The root may be a folder above the suite: that of a user who stands there, or names two folders.
    """
    pytester.makeini(
        "[pytest]\npython_files = check_*.py\npython_functions = check_*\nnorecursedirs = ir keras\n"
        "addopts = --strict-markers --foreign\nfilterwarnings = error\n"
    )
    pytester.makeconftest(
        "import pytest\n\ndef pytest_addoption(parser):\n    parser.addoption('--foreign', action='store_true')\n\n"
        "@pytest.fixture\ndef framework():\n    pass\n\n@pytest.fixture\ndef inspector():\n    pass\n"
    )
    packages = ("poptorch.ir", "paddle", "training.test_saving_ipu") if root is None else ("poptorch.ir",)
    files = set()

    class Watch:
        def pytest_collection_finish(self, session):
            files.update(item.nodeid.partition("::")[0] for item in session.items)

    arguments = [
        "--pyargs",
        *(f"ipu_conformance.suite.{name}" for name in packages),
        "--ipu-level",
        "soak",
        "-k",
        "dump or trace or saving",
    ]
    result = pytester.runpytest_inprocess(
        "--fixtures-per-test", *arguments, *([] if root is None else ["--rootdir", root]), plugins=[Watch()]
    )

    suite, start = suite_folder(), suite_folder() if root is None else Path(root)
    folders = [suite / name.replace(".", "/") for name in packages if "test" not in name]
    paths = [path for folder in folders for word in ("dump", "trace") for path in folder.rglob(f"test_*{word}*_ipu.py")]
    assert {path.relative_to(start).as_posix() for path in paths} <= files
    origins = dict(line.split(" -- ") for line in result.outlines if " -- " in line)
    assert "tests/ipu/conftest.py" in origins["runs_of_session"]
    assert "plugin.py" in origins["inspector"]
    assert "plugin.py" in origins.get("framework", "plugin.py")


def test_collecting_imports_no_framework():
    """pytest --collect-only leaves torch, tensorflow and paddle unimported, and marks all of tests/ipu."""
    program = textwrap.dedent(
        """
        import sys, pytest

        class Watch:
            def pytest_collection_finish(self, session):
                self.unmarked = [
                    item.nodeid
                    for item in session.items
                    if item.nodeid.startswith("tests/ipu/") and not item.get_closest_marker("ipu")
                ]

        watch = Watch()
        code = pytest.main([sys.argv[1], "--collect-only", "-q", "-p", "no:cacheprovider"], plugins=[watch])
        print("imported", sorted({"torch", "tensorflow", "paddle"} & set(sys.modules)))
        print("unmarked", watch.unmarked)
        sys.exit(code)
        """
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, "tests/ipu"], capture_output=True, text=True, cwd=ROOT, check=False
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.splitlines()[-2:] == ["imported []", "unmarked []"]


def test_workers_import_only_the_frameworks_of_their_cases(pytester):
    """Of two frameworks on two workers at most one worker sees both: the one that had finished its own."""
    body = "import os, pathlib\nimport pytest\n\n@pytest.mark.parametrize('i', range(32))\ndef test_a(i):\n    "
    body += "folder = pathlib.Path(os.environ['SEEN']) / os.environ['PYTEST_XDIST_WORKER']\n    "
    for name in ("poptorch", "paddle"):
        pytester.makepyfile(**{f"test_{name}_a": body + f"folder.with_suffix('.{name}').touch()\n"})
    seen = pytester.mkdir("seen")
    pytester._monkeypatch.setenv("SEEN", str(seen))

    result = pytester.runpytest_subprocess("-n", "2")

    result.assert_outcomes(passed=64)
    assert len(list(seen.iterdir())) <= 3, sorted(path.name for path in seen.iterdir())


def test_an_area_is_a_framework_and_a_file():
    """PopTorch's replication cannot be skipped behind Paddle's."""
    ids = [f"tests/ipu/{name}/test_replication_ipu.py::test_a" for name in ("poptorch", "paddle")]
    executed, skipped = ({tally.area_of(nodeid): 3} for nodeid in ids)

    assert tally.complaints(executed, skipped) == [
        "Area 'paddle replication_ipu' was not tested: every case of it was skipped (3)."
    ]


def test_a_case_that_was_asked_for_and_left_out_says_why(pytester):
    """Naming one case that does not belong to the run is not silent."""
    pytester.makepyfile(
        test_acme="import pytest\n@pytest.mark.ipu\n@pytest.mark.level('soak')\ndef test_a():\n    pass\n"
    )

    (file,) = pytester.path.glob("test_*.py")
    result = pytester.runpytest_inprocess(f"{file.name}::test_a")

    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["FAILED: No case was executed: left out were 1 that need level soak."])


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["here", "worker"])
def test_a_case_that_the_command_line_leaves_out_says_why(pytester, workers):
    """The cases that do not belong to the run are not all that is left out."""
    soak = "@pytest.mark.ipu\n@pytest.mark.level('soak')\ndef test_b():\n    pass\n"
    pytester.makepyfile(test_acme=f"import pytest\n@pytest.mark.ipu\ndef test_a():\n    pass\n{soak}")

    result = pytester.runpytest_inprocess("-m", "ipu", "-k", "other", *workers)

    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["FAILED: No case was executed: left out were 1 that need level soak, 1 that the command line leaves out (-k*"]
    )


def test_cases_without_any_framework_prove_nothing(pytester, monkeypatch):
    """Neutral cases alone pass on a machine with no framework, and that is not a device's doing."""
    pytester.makepyfile(test_acme="import pytest\n@pytest.mark.ipu\ndef test_a():\n    pass\n")
    monkeypatch.setattr(Selection, "frameworks", ())

    result = pytester.runpytest_inprocess("-m", "ipu")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["FAILED: No framework can run, so no device was tested; see *doctor*"])


@pytest.mark.usefixtures("_catalogue")
def test_an_active_fault_stands_in_the_header(pytester, monkeypatch):
    """Nobody mistakes a device that is wrong on purpose for a wrong one."""
    pytester.makepyfile(test_acme="import pytest\n@pytest.mark.ipu\ndef test_a():\n    pass\n")
    monkeypatch.setenv("IPU_CONFORMANCE_FAULT", "update-halved")

    result = pytester.runpytest_inprocess("-m", "ipu")

    result.stdout.fnmatch_lines(["ipu fault: update-halved is on, the device is wrong on purpose (IPU_*)"])


@pytest.fixture
def _catalogue():
    """The rows of faults are registered: pytester forgets the modules that a run imports, the table does not."""
    for framework in FRAMEWORKS:
        catalogue.load(framework)


@pytest.mark.usefixtures("_catalogue")
@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("update-halfed", "no fault is named 'update-halfed'; did you mean 'update-halved' or *"),
        ("update-halved,off:paddle.nesterov", "'off:paddle.nesterov' is a fault of paddle, which is not in this run *"),
        ("slip:core.streams:Strem.join", "no fault is named 'slip:core.streams:Strem.join'; the emulator has no *"),
        ("slip:core.stream:join", "no fault is named 'slip:core.stream:join'; the emulator has no *"),
    ],
)
def test_an_unknown_fault_is_refused_before_any_case(pytester, monkeypatch, fault, sentence):
    """A run under a misspelt fault would pass as the run of a right device."""
    pytester.makepyfile(test_acme="import pytest\n@pytest.mark.ipu\ndef test_a():\n    pass\n")
    monkeypatch.setenv("IPU_CONFORMANCE_FAULT", fault)

    result = pytester.runpytest_inprocess("-m", "ipu", "--ipu-frameworks", "poptorch")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {sentence}"])


@pytest.mark.usefixtures("_catalogue")
@pytest.mark.parametrize("fault", ["inert", "off:paddle.nesterov", "slip:core.streams:join?"])
def test_a_fault_of_one_framework_is_on_in_a_run_of_several(pytester, monkeypatch, fault):
    """The frameworks that do not have it are right."""
    pytester.makepyfile(test_acme="import pytest\n@pytest.mark.ipu\ndef test_a():\n    pass\n")
    monkeypatch.setenv("IPU_CONFORMANCE_FAULT", fault)

    result = pytester.runpytest_inprocess("-m", "ipu", "--ipu-frameworks", "poptorch,paddle")

    assert result.ret == pytest.ExitCode.OK


def test_a_failure_is_one_line_of_the_summary(pytester):
    """With its sentence, whole, and without the module of the exception."""
    pytester.makepyfile(
        test_acme="import pytest\nfrom ipu_conformance import check\n@pytest.mark.ipu\ndef test_a():\n"
        f"    check.equal(actual=1, expected=2, what={'the count ' + 'of it ' * 30!r})\n"
    )

    result = pytester.runpytest_inprocess("-m", "ipu")

    result.stdout.fnmatch_lines(
        [f"failed: test_acme.py::test_a: CheckFailure: the count {'of it ' * 30} is 1 where 2 *"]
    )


@pytest.mark.parametrize(("said", "sections"), [("E   OSError", 1), ("E   wrong\nE   reproduce: it", 0)])
def test_every_failed_case_of_the_suite_says_how_to_run_it_alone(said, sections):
    """Also one that fails by an exception; a check says it already."""
    config = SimpleNamespace(stash={SELECTION: Selection("acme", "smoke", (), (), None)})
    item: Any = SimpleNamespace(path=suite_folder() / "test_a.py", nodeid="x/test_a.py::test_a[D2]", config=config)
    report = SimpleNamespace(failed=True, longreprtext=said, sections=[])
    hook = plugin.pytest_runtest_makereport(item)
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(report)

    assert (
        report.sections == [("reproduce", "ipu-conformance case 'test_a.py::test_a[D2]' --ipu-target acme")][:sections]
    )
