"""The commands of every workload: references and verdicts, bad input, native twins and drawings."""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ipu_conformance import cli
from ipu_conformance.data import CLASS_NAMES, load
from ipu_conformance.data.places import DATA_VARIABLE
from ipu_conformance.oracle.convergence import baseline as baselines
from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.workloads import WORKLOADS, WorkloadError, plots
from ipu_conformance.workloads.keras_mnist import reference as keras_mnist
from ipu_conformance.workloads.paddle_mnist import reference as paddle_mnist
from ipu_conformance.workloads.poptorch_mnist import reference as poptorch_mnist
from ipu_conformance.workloads.recordable import find
from tests.unit.commands import printed, write_picture


def needs(name):
    """Skips a test where the framework of its workload is not installed."""
    framework = FRAMEWORKS[WORKLOADS[name].framework]
    return pytest.mark.skipif(not framework.installed, reason=f"needs {framework.module}")


def of_poptorch(means):
    """What references and the command read of a run whose epochs have these means."""
    losses = [mean + wave for mean in means for wave in (-0.25, 0.25)]
    return SimpleNamespace(accuracies=tuple(means), losses=losses)


def of_paddle(means):
    """The same of a run of the Paddle workload."""
    passes = [SimpleNamespace(batches=number, cost=1.0, accuracy=mean) for number, mean in enumerate(means, start=1)]
    costs = [mean + wave for mean in means for wave in (-0.25, 0.25)]
    return SimpleNamespace(costs=costs, validations=passes, passes=passes, accuracy=means[-1], best=1)


def of_keras(means):
    """The same of a run of the Keras workload."""
    return SimpleNamespace(losses=tuple(means), accuracy=0.5)


REFERENCES = {
    each.name: (each, module, make)
    for module, make, references in (
        (poptorch_mnist, of_poptorch, (poptorch_mnist.ACCURACY, poptorch_mnist.LOSS)),
        (paddle_mnist, of_paddle, (paddle_mnist.ACCURACY, paddle_mnist.LOSS)),
        (keras_mnist, of_keras, (keras_mnist.WHOLE, keras_mnist.SHORT)),
    )
    for each in references
}


def run_like(name, *, shift=0.0):
    """A run whose epochs have the means of a baseline, higher by ``shift``."""
    reference, _, make = REFERENCES[name]
    return make([row.mean + shift for row in baselines.load(Path(reference.name)).band().epochs])


@pytest.mark.parametrize("name", REFERENCES)
def test_a_baseline_was_recorded_with_the_settings_of_its_reference(name):
    """The shipped baseline is of the reference that is in the code, and says how to record it again."""
    reference = REFERENCES[name][0]
    baseline = baselines.load(Path(reference.name))
    place = next(word for word in baseline.regenerate.split() if ":" in word)

    assert dict(baseline.budget) == reference.budget
    assert (baseline.workload, baseline.metric) == (reference.name, reference.metric)
    assert find(place) is reference


SAME = {"keras-mnist": {"replicas": 2}, "keras-mnist-short": {"replicas": 2}}
"""Settings that change no update, beside the seed."""
OTHER = {"paddle-mnist": {"num_ipus": 2}, "paddle-mnist-loss": {"num_ipus": 2}}
"""Settings that no baseline was recorded with; without a row another learning rate."""


@pytest.mark.parametrize("name", REFERENCES)
def test_a_run_is_judged_by_the_baseline_of_its_settings(name):
    """A run like the mean of the baseline passes, for any seed; one that is too low or too high does not."""
    reference, module, _ = REFERENCES[name]
    settings = replace(reference.settings, seed=99, **SAME.get(name, {}))
    shift = max(row.high - row.mean for row in baselines.load(Path(reference.name)).band().epochs) * 1.001

    for moved, passed in ((0.0, True), (shift, False), (-shift, False)):
        verdicts = module.judgements(settings, run_like(name, shift=moved))
        assert [verdict.passed for verdict in verdicts] == [passed]
    other = OTHER.get(name, {"learning_rate": 0.5})
    assert module.judgements(replace(settings, **other), run_like(name)) == []


@pytest.mark.parametrize(("shift", "code"), [(0.5, 1), (0.0, 0)], ids=["outside", "inside"])
@pytest.mark.parametrize(
    ("name", "sign", "sentence"),
    [
        pytest.param("poptorch-mnist", -1, "test accuracy is too low at epoch 1", marks=needs("poptorch-mnist")),
        pytest.param("paddle-mnist", -1, "test accuracy is too low at epoch 1", marks=needs("paddle-mnist")),
        pytest.param("keras-mnist", 1, "mean training loss is too high at epoch 1", marks=needs("keras-mnist")),
    ],
)
def test_the_command_fails_where_a_run_leaves_its_baseline(
    name, sign, sentence, shift, code, monkeypatch, capsys, tmp_path
):
    """The exit code says whether the run was inside the band; the last line of the output is the accuracy."""
    result = run_like(name, shift=sign * shift)
    training = importlib.import_module(WORKLOADS[name].module + ".training")
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.setattr(training, "train", lambda *args, **kwargs: result)
    folder = [] if name == "poptorch-mnist" else ["--folder", str(tmp_path)]

    assert cli.main(["train", name, "--native", *folder]) == code
    shown = capsys.readouterr()
    accuracy = result.accuracies[-1] if name == "poptorch-mnist" else result.accuracy
    assert shown.out.splitlines()[-1] == f"Accuracy on test set: {100 * accuracy:.2f}%"
    assert (sentence in shown.err) == bool(code)


def bad_input(folder):
    """Command lines that are refused, with the beginnings of their sentences."""
    picture_of_nothing = write_picture(folder / "dark.png", np.zeros((28, 28), np.uint8))
    nowhere = str(folder / "nowhere")
    paddle, infer = ["train", "paddle-mnist", "--folder", nowhere], ["infer", "paddle-mnist", "--folder", nowhere]
    poptorch, digits, pictures = (["train", name] for name in ("poptorch-mnist", "keras-mnist", "keras-cifar10"))
    host = "and without IPUs there is one model on the host"
    return [
        ([*poptorch, "--native", "--epochs", "0"], "--epochs is 0; give 1 or more"),
        ([*poptorch, "--ipu-target", "acme"], "There is no target 'acme'"),
        ([*poptorch, "--ipu-target", "hardware"], "poptorch-mnist cannot run on target 'hardware': "),
        ([*paddle, "--native", "--epochs", "0"], "--epochs is 0; give 1 or more"),
        ([*paddle, "--num_ipus", "4", "--replication-factor", "3"], "--replication-factor is 3, which does not divide"),
        ([*paddle, "--use_ipu", "False", "--num_ipus", "2"], "--num_ipus is 2, and without IPUs"),
        ([*paddle, "--report-every", "0"], "--report-every is 0; give 1 or more"),
        ([*paddle, "--ipu-target", "hardware"], "paddle-mnist cannot run on target 'hardware': "),
        ([*infer, "--img", str(folder / "none.png")], f"--img {folder}/none.png does not exist"),
        ([*infer, "--img", str(picture_of_nothing)], f"{nowhere}/model has no recognise_digits.pdmodel"),
        ([*digits, "--native", "--epochs", "0"], "--epochs is 0; give 1 or more"),
        ([*digits, "--native", "--replicas", "2"], f"--replicas is 2, {host}"),
        ([*digits, "--ipu-target", "hardware"], "keras-mnist cannot run on target 'hardware': "),
        ([*pictures, "--native", "--ipus", "2"], f"--ipus is 2, {host}"),
        ([*pictures, "--native", "--approach", "other"], "--approach is 'other'; choose from strategy"),
        (
            [*pictures, "--native", "--gradient-accumulation-count", "2"],
            f"--gradient-accumulation-count is 2, {host}",
        ),
    ]


def test_bad_input_is_one_sentence_and_imports_no_framework(tmp_path):
    """The exit code is 2, nothing is written, and no framework is imported; nor is one for help."""
    text = """
        import contextlib, io, json, sys
        from ipu_conformance import cli

        def answer(words):
            out, said = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
                try:
                    code = cli.main(words)
                except SystemExit as end:
                    code = end.code
            imported = [name for name in ("tensorflow", "torch", "paddle") if name in sys.modules]
            return code, out.getvalue(), said.getvalue(), imported

        for words in json.loads(sys.argv[1]):
            print(json.dumps(answer(words)))
        print(json.dumps(answer(["train", "--help"])))
    """
    cases = bad_input(tmp_path)
    lines = printed(text, json.dumps([words for words, _ in cases]), cwd=tmp_path).splitlines()
    *answers, helped = map(json.loads, lines)

    assert (helped[0], helped[3]) == (0, [])
    assert len(answers) == len(cases)
    for (words, sentence), (code, shown, said, imported) in zip(cases, answers):
        assert (code, shown, imported) == (2, "", []), words
        assert said.startswith(f"ipu-conformance: error: {sentence}")
        assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["dark.png"]


NATIVE = {
    "poptorch-mnist": "epochs=1, train_size=4, test_size=3, batch_size=2, test_batch_size=3, device_iterations=2",
    "paddle-mnist": "epochs=1, train_size=4, test_size=3, batch_size=2",
    "keras-mnist": "epochs=1, steps_per_epoch=2, steps_per_execution=1, train_size=4, test_size=3, batch_size=2",
    "keras-cifar10": "epochs=1, train_size=4, test_size=3, batch_size=2",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(name), id=f"{WORKLOADS[name].framework}-{name}") for name in NATIVE]
)
def test_a_native_twin_touches_no_ipu_api_and_no_emulator(name, tmp_path, request):
    """A native run imports neither the emulator, nor the vendor's package, nor a module that speaks to IPUs."""
    module = WORKLOADS[name].module
    text = f"""
        import importlib, sys
        from {module} import Settings, training
        for other in ("reference", "saved_model", "trainers"):
            if importlib.util.find_spec("{module}." + other):
                importlib.import_module("{module}." + other)
        training.train(Settings({NATIVE[name]}), native=True)
        print([name for name in sys.modules if "emulator" in name or name.endswith(".ipu") or name == "poptorch"])
    """

    start = request.getfixturevalue(f"after_{FRAMEWORKS[WORKLOADS[name].framework].module}")
    assert printed(text, cwd=tmp_path, start=start) == "[]\n"


def test_samples_are_drawn_whole(tmp_path):
    """A PNG of grey and of coloured samples; no other file is left, and a folder that is not there is named."""
    from PIL import Image

    for data in ("synthetic-digits", "synthetic-cifar"):
        plots.show_samples(data, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [plots.SAMPLES]
        with Image.open(tmp_path / plots.SAMPLES) as drawn:
            assert drawn.format == "PNG"
            assert len(drawn.convert("L").getcolors(1 << 16)) > 10
    split = load("synthetic-digits", train=1, test=0).train
    with pytest.raises(WorkloadError, match="the samples cannot be drawn to"):
        plots.draw_samples(split, CLASS_NAMES["synthetic-digits"], "title", tmp_path / "nowhere" / plots.SAMPLES)


def test_the_loss_curve_is_written_whole(tmp_path):
    """A PNG with both curves; no other file is left."""
    from PIL import Image

    plots.show_loss_curve([2.0, 1.0, 0.5], [(2, 0.9), (3, 0.6)], "title", tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == [plots.CURVE]
    with Image.open(tmp_path / plots.CURVE) as drawn:
        assert drawn.format == "PNG"
        assert len(drawn.convert("L").getcolors(1 << 16)) > 2
    with pytest.raises(WorkloadError, match="the loss curve cannot be written to"):
        plots.draw_loss_curve([1.0], [(1, 1.0)], "title", tmp_path / "nowhere" / plots.CURVE)


def test_without_the_plotting_library_a_sentence_says_so(tmp_path, monkeypatch, capsys):
    """Nothing is drawn, and training goes on."""
    monkeypatch.setattr(plots, "can_draw", lambda: False)
    plots.show_samples("synthetic-digits", tmp_path)
    plots.show_loss_curve([1.0], [(1, 1.0)], "title", tmp_path)

    assert list(tmp_path.iterdir()) == []
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("No samples are drawn: matplotlib is not installed; ")
    assert said[1].startswith("No loss curve is drawn: matplotlib is not installed; ")
