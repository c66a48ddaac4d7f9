"""Baseline files are written whole, refused when doubtful, recorded seed by seed and checked by a command."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from ipu_conformance import cli
from ipu_conformance.cli import baseline as command
from ipu_conformance.oracle.convergence import baseline, recording
from ipu_conformance.oracle.convergence.baseline import Baseline, BaselineError
from ipu_conformance.workloads.recordable import find


class Toy:
    """A workload of three epochs that counts its runs and can be killed."""

    name = "toy"
    metric = "accuracy"

    def __init__(self, budget=3, killed_at=None):
        self.budget = {"epochs": budget}
        self.killed_at = killed_at
        self.ran = []

    def __call__(self, seed):
        if seed == self.killed_at:
            raise KeyboardInterrupt
        self.ran.append(seed)
        return [0.5 + 0.1 * epoch + 0.001 * ((7 * seed) % 20) for epoch in range(self.budget["epochs"])]


toy = Toy()


def saved(folder: Path) -> Path:
    """A small valid baseline file."""
    made = recording.record(Toy(), range(20), folder / "journal", regenerate="make it")
    made.save(folder / "toy.json")
    return folder / "toy.json"


def edited(path: Path, redigest: bool = True, **changes) -> Path:
    """The file with some fields changed (None removes one), with a fitting digest unless told otherwise."""
    content = json.loads(path.read_text())
    for key, value in changes.items():
        if value is None:
            del content[key]
        else:
            content[key] = value
    if redigest and "digest" in content:
        content["digest"] = baseline.digest(content)
    path.write_text(json.dumps(content))
    return path


class TestFile:
    def test_what_is_saved_is_loaded(self, tmp_path):
        """A round trip keeps every field."""
        made = recording.record(Toy(), range(20), tmp_path / "journal", regenerate="make it")
        made.save(tmp_path / "toy.json")

        assert baseline.load(tmp_path / "toy.json") == made

    def test_the_file_states_what_it_detects(self, tmp_path):
        """Rate, power, limits and the detectable shift are there for a reader."""
        content = json.loads(saved(tmp_path).read_text())

        assert content["false_alarm_rate"] == 0.001
        assert content["power"] == 0.95
        assert [sorted(row) for row in content["band"]] == [["detectable_shift", "epoch", "high", "low", "mean"]] * 3

    def test_layout_does_not_matter_to_the_digest(self, tmp_path):
        """A reformatted file is the same baseline."""
        path = saved(tmp_path)
        before = baseline.load(path)
        path.write_text(json.dumps(json.loads(path.read_text()), indent=8, sort_keys=True))

        assert baseline.load(path) == before

    def test_an_edited_value_is_refused(self, tmp_path):
        """A digest that does not fit names the command that records the baseline again."""
        path = edited(saved(tmp_path), redigest=False, false_alarm_rate=0.1)

        with pytest.raises(BaselineError, match=r"toy\.json was edited: its content .* record it again with: make it$"):
            baseline.load(path)

    @pytest.mark.parametrize("key", ["schema", "values", "seeds", "digest", "regenerate"])
    def test_a_missing_field_is_refused(self, tmp_path, key):
        """Every field is needed."""
        with pytest.raises(BaselineError, match=f"toy.json has no '{key}'; record it again"):
            baseline.load(edited(saved(tmp_path), **{key: None}))

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"version": 2}, "is ipu-conformance/baseline version 2, and this program reads"),
            ({"schema": "other"}, "is other version 1, and this program reads"),
            ({"values": "many"}, "has a 'values' of type str"),
            ({"values": [[0.1]] * 19 + [["x"]]}, "has no list of numbers in row 19"),
            ({"values": [[0.1]] * 19 + [[True]]}, "has no list of numbers in row 19"),
            ({"values": [[0.1 * i] for i in range(20)], "seeds": [1] * 20}, "has 1 different seeds for 20 rows"),
            ({"seeds": [[3], *range(19)]}, r"has a seed \[3\], which is not a whole number"),
            ({"values": [[10**400], *([0.1 * i] for i in range(19))]}, "has a value that no float can hold"),
            ({"values": [[0.1 * i] for i in range(5)], "seeds": [*range(5)]}, "has 5 seeds; it needs at least 20"),
            ({"values": [[1.0]] * 20}, "every seed has the value 1 at epoch 1"),
            ({"power": 2.0}, "cannot be used: the power is 2.0"),
        ],
    )
    def test_a_file_that_decides_nothing_is_refused(self, tmp_path, changes, words):
        """Even with a digest that fits."""
        with pytest.raises(BaselineError, match=words):
            baseline.load(edited(saved(tmp_path), **changes))

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "is not a JSON baseline"),
            ("[1, 2]", "holds a list and no baseline"),
            ('{"values": [NaN]}', "is not a JSON baseline: it has the value NaN"),
            ('{"values": [Infinity]}', "is not a JSON baseline: it has the value Infinity"),
            ("[" * 100_000, "is not a JSON baseline"),
            ("\udcff", "is not a JSON baseline"),
        ],
    )
    def test_what_is_no_baseline_is_refused(self, tmp_path, text, words):
        """Hostile text is one sentence, never a crash."""
        (tmp_path / "x.json").write_bytes(text.encode(errors="surrogateescape"))

        with pytest.raises(BaselineError, match=words):
            baseline.load(tmp_path / "x.json")

    def test_a_missing_file_names_the_shipped_ones(self, tmp_path):
        """Whoever mistypes a name learns the names."""
        with pytest.raises(BaselineError, match=r"cannot be read: No such file .*: .*oracle-mlp, .*poptorch-mnist"):
            baseline.load(tmp_path / "nothing.json")

    def test_a_failed_write_leaves_the_old_file(self, tmp_path, monkeypatch):
        """The file is replaced in one step or not at all."""
        path = saved(tmp_path)
        before = path.read_text()
        monkeypatch.setattr(os, "replace", _no_space)

        with pytest.raises(BaselineError, match="cannot be written: no space"):
            baseline.write_atomically(path, "half")

        assert path.read_text() == before
        assert sorted(file.name for file in tmp_path.iterdir()) == ["journal", "toy.json"]


def _no_space(*_):
    raise OSError(errno.ENOSPC, "no space")


class TestRecording:
    def test_a_killed_recording_goes_on_where_it_was(self, tmp_path):
        """Finished seeds are not run again, and the result is the same as in one go."""
        journal = tmp_path / "journal"
        with pytest.raises(KeyboardInterrupt):
            recording.record(Toy(killed_at=12), range(20), journal, regenerate="x")
        rest = Toy()

        resumed = recording.record(rest, range(20), journal, regenerate="x")

        assert rest.ran == list(range(12, 20))
        assert resumed == recording.record(Toy(), range(20), tmp_path / "other", regenerate="x")

    def test_a_line_that_a_kill_cut_short_is_run_again(self, tmp_path):
        """The last line may be half; it is taken out and its seed is run again."""
        journal = tmp_path / "journal"
        with pytest.raises(KeyboardInterrupt):
            recording.record(Toy(killed_at=12), range(20), journal, regenerate="x")
        journal.write_text(journal.read_text()[:-9])
        rest = Toy()

        recording.record(rest, range(20), journal, regenerate="x")

        assert rest.ran == list(range(11, 20))
        assert len(journal.read_text().splitlines()) == 21

    def test_a_journal_of_another_budget_is_refused(self, tmp_path):
        """Values of different budgets are never mixed."""
        recording.record(Toy(), range(20), tmp_path / "journal", regenerate="x")

        with pytest.raises(BaselineError, match="was begun with another workload, budget or version; delete it"):
            recording.record(Toy(budget=4), range(20), tmp_path / "journal", regenerate="x")

    def test_a_damaged_journal_is_refused(self, tmp_path):
        """A whole line that is not JSON was not written by a recording."""
        (tmp_path / "journal").write_text("nonsense\n")

        with pytest.raises(BaselineError, match="has a damaged line; delete it to begin again"):
            recording.record(Toy(), range(20), tmp_path / "journal", regenerate="x")

    @pytest.mark.parametrize("seeds", [range(19), [1] * 25])
    def test_too_few_seeds_are_refused(self, tmp_path, seeds):
        """Before anything is run."""
        workload = Toy()

        with pytest.raises(BaselineError, match="different seeds are given; a baseline needs at least 20"):
            recording.record(workload, seeds, tmp_path / "journal", regenerate="x")
        assert workload.ran == []

    def test_a_value_that_is_not_finite_is_refused(self, tmp_path):
        """The seed and the epoch are named, and the journal keeps the others."""

        class Diverging(Toy):
            def __call__(self, seed):
                return [0.5, float("nan") if seed == 3 else 0.6, 0.7]

        with pytest.raises(BaselineError, match="toy with seed 3 gives nan at epoch 2; it must be finite"):
            recording.record(Diverging(), range(20), tmp_path / "journal", regenerate="x")
        assert len((tmp_path / "journal").read_text().splitlines()) == 4

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("nothing", "workload 'nothing' is unknown; use one of oracle-mlp"),
            ("no_such_module:x", "cannot be imported: No module named 'no_such_module'"),
            ("json:x", "cannot be imported: module 'json' has no attribute 'x'"),
            ("json:dumps", "is not Recordable: it lacks name, metric, budget or a call with a seed"),
        ],
    )
    def test_what_cannot_be_recorded_is_refused(self, name, words):
        """An unknown workload is one sentence."""
        with pytest.raises(BaselineError, match=words):
            find(name)


def call(*words: str) -> int:
    """The command with its own parser, as the command line calls it."""
    import argparse

    parser = argparse.ArgumentParser()
    command.configure(parser)
    return command.run(parser.parse_args(list(words)))


class TestCommand:
    def test_record_show_and_check(self, tmp_path, capsys):
        """From nothing to a verdict; the journal is gone when the file is there."""
        path = tmp_path / "toy.json"

        assert call("record", f"{__name__}:toy", "--seeds", "20", "-o", str(path)) == 0
        assert [file.name for file in tmp_path.iterdir()] == ["toy.json"]
        assert call("show", str(path)) == 0
        shown = capsys.readouterr().out
        assert "Student's band of a run from 20 seeds, false-alarm rate 0.001 over 3 epochs" in shown
        assert f"regenerate   ipu-conformance baseline record {__name__}:toy --seeds 20 -o toy.json" in shown
        assert "left out     0 of 20 seeds lie outside the band of the others" in shown

    def test_a_run_inside_exits_with_0_and_outside_with_1(self, tmp_path, capsys):
        """Both say why in one sentence."""
        path = str(saved(tmp_path))

        assert call("check", path, "--values", "0.51,0.61,0.71") == 0
        assert capsys.readouterr().out.startswith("toy's accuracy converges like the baseline: 0.71 at epoch 3")
        assert call("check", path, "--values", "0.51,0.61,0.91") == 1
        assert capsys.readouterr().out.startswith("toy's accuracy is too high at epoch 3: 0.91, allowed ")
        assert call("check", path, "--values", "0.31,0.61,0.71") == 1
        assert capsys.readouterr().out.startswith("toy's accuracy is too low at epoch 1: 0.31, allowed ")

    def test_runs_come_from_files_and_are_judged_by_their_mean(self, tmp_path, capsys):
        """A list, or an object with values."""
        (tmp_path / "a.json").write_text("[0.51, 0.61, 0.71]")
        (tmp_path / "b.json").write_text('{"values": [0.51, 0.61, 0.71], "more": 1}')

        assert call("check", str(saved(tmp_path)), str(tmp_path / "a.json"), str(tmp_path / "b.json")) == 0
        assert "Student's band of the mean of 2 runs from 20 seeds" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ((), "no run is given; name a RUN.json or use --values"),
            (("--values", "0.1,x"), r"--values has values \['0.1', 'x'\], which are not all numbers"),
            (("--values", "0.1"), "a run has 1 values, and the baseline has 3 epochs"),
            (("nowhere.json",), "nowhere.json cannot be read: No such file or directory"),
        ],
    )
    def test_a_run_that_cannot_be_read_is_refused(self, tmp_path, words, sentence):
        """Bad input is one sentence."""
        from ipu_conformance.errors import ConformanceError

        with pytest.raises(ConformanceError, match=sentence):
            call("check", str(saved(tmp_path)), *words)

    @pytest.mark.parametrize(("text", "sentence"), [("{}", "has no values"), ("{", "is not JSON"), ("3", "no values")])
    def test_a_run_file_without_values_is_refused(self, tmp_path, text, sentence):
        """Bad input is one sentence."""
        (tmp_path / "run.json").write_text(text)

        with pytest.raises(BaselineError, match=sentence):
            call("check", str(saved(tmp_path)), str(tmp_path / "run.json"))

    def test_a_plot_is_a_picture(self, tmp_path):
        """The run inside the band, as PNG."""
        pytest.importorskip("matplotlib")
        picture = tmp_path / "run.png"

        call("check", str(saved(tmp_path)), "--values", "0.51,0.61,0.71", "--plot", str(picture))

        assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"

    def test_a_plot_of_an_unknown_format_is_refused(self, tmp_path):
        """The suffix chooses the format."""
        pytest.importorskip("matplotlib")

        with pytest.raises(BaselineError, match="the plot cannot be written to"):
            call("show", str(saved(tmp_path)), "--plot", str(tmp_path / "run.nothing"))

    def test_it_is_in_the_table_of_commands(self, capsys):
        """``ipu-conformance baseline`` reaches it."""
        assert cli.main(["baseline", "show", "oracle-mlp"]) == 0
        assert "workload     oracle-mlp" in capsys.readouterr().out


def _six_digits(row: dict) -> dict:
    return {key: f"{value:.6g}" for key, value in row.items()}


class TestShipped:
    @pytest.mark.parametrize("name", baseline.shipped_names())
    def test_it_loads_and_states_its_own_band(self, name):
        """What the file says it detects is what its values give today."""
        loaded = baseline.load(Path(name))
        stated = json.loads((baseline.SHIPPED / f"{name}.json").read_text())

        assert isinstance(loaded, Baseline)
        # Another platform's lgamma and exp may differ in the last bits; a reader is shown six digits.
        assert [_six_digits(row) for row in json.loads(loaded.to_json())["band"]] == [
            _six_digits(row) for row in stated["band"]
        ]

    def test_there_is_one(self):
        """The package comes with a baseline."""
        assert "oracle-mlp" in baseline.shipped_names()
