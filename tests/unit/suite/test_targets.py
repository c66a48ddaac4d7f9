"""Targets are found, asked and chosen without importing a framework."""

import os
import re
import stat
import threading
from importlib import metadata

import pytest

from ipu_conformance import selection, targets
from ipu_conformance.targets import Availability, Choice, Framework, Target, TargetError, choose

ABSENT = Framework("absent", "no_such_module", ("no-such-module",), "absent", "the absent SDK", lambda: None)
PRESENT = Framework("present", "json", ("pytest",), "present", "the present SDK", lambda: "3.4")


class Refusing(Target):
    name = "refusing"

    def probe(self, framework):
        return Availability(False, "it does not want to")


class Willing(Target):
    name = "willing"

    def probe(self, framework):
        return Availability(True, "it can do anything")

    def ipus(self):
        return 3


def entry_point(value, name="vendor"):
    return metadata.EntryPoint(name=name, value=value, group=targets.ENTRY_POINT_GROUP)


def test_the_table_of_frameworks_is_the_projects_vocabulary():
    """There are three frameworks, each with its module and its extra."""
    assert {name: (row.module, row.extra) for name, row in targets.FRAMEWORKS.items()} == {
        "poptorch": ("torch", "torch"),
        "tensorflow": ("tensorflow", "tensorflow"),
        "paddle": ("paddle", "paddle"),
    }


def test_a_framework_that_is_not_installed_has_no_version():
    """An absent framework says so instead of failing."""
    assert (ABSENT.installed, ABSENT.version) == (False, None)


def test_an_installed_framework_has_the_version_of_its_distribution():
    """The version comes from package metadata."""
    assert PRESENT.version == pytest.__version__


def test_a_named_target_is_asked_alone():
    """A named target that cannot run the framework is not replaced by another."""
    choice = choose(PRESENT, "refusing", {"refusing": Refusing(), "willing": Willing()})

    assert choice == Choice("present", None, None, 0, "it does not want to")


def test_a_named_target_that_can_run_is_chosen():
    """The choice carries the kind, the number of IPUs and the reason."""
    choice = choose(PRESENT, "willing", {"willing": Willing()})

    assert choice == Choice("present", "willing", "hardware", 3, "it can do anything")


def test_an_unknown_target_is_refused_with_the_known_ones():
    """A name that no target has is an error that lists the names."""
    with pytest.raises(TargetError) as refusal:
        choose(PRESENT, "wiling", {"willing": Willing()})

    assert str(refusal.value) == ("There is no target 'wiling'; choose one of auto, willing, or install its plug-in.")


@pytest.mark.parametrize(
    ("sdk", "ipus", "expected"),
    [("3.4", 4, "hardware"), ("3.4", 0, "ipu-model"), (None, 4, None)],
    ids=["sdk-and-ipus", "sdk-alone", "no-sdk"],
)
def test_auto_prefers_hardware_then_the_model(monkeypatch, sdk, ipus, expected):
    """Auto takes a real SDK with hardware, else its IPU model, and never invents a target."""
    monkeypatch.setattr(targets, "attached_ipus", lambda: ipus)
    framework = Framework("present", "json", (), "present", "the SDK", lambda: sdk)

    choice = choose(framework, "auto", targets.discover())

    assert choice.target == expected


def test_auto_says_each_refusal_once():
    """The reason for no target joins the different refusals."""
    choice = choose(ABSENT, "auto", targets.discover())

    assert choice.reason == (
        "the absent SDK is not installed; no_such_module is not installed: pip install 'ipu-conformance[absent]'"
    )


def test_the_emulator_takes_over_where_there_is_no_sdk(monkeypatch):
    """On a machine with neither SDK nor hardware auto means the emulator."""
    from ipu_conformance.emulator import hook

    monkeypatch.setattr(hook, "FRONT_ENDS", {"present": hook.FrontEnd()})
    framework = Framework("present", "json", ("pytest",), "present", "the SDK", lambda: None)

    choice = choose(framework, "auto", targets.discover())

    assert (choice.target, choice.kind, choice.ipus) == ("emulator", "emulator", 64)


def test_the_model_is_switched_on_once(monkeypatch):
    """Activating the IPU model adds the vendor's switch and keeps what the user had set."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--executable_cache_path=x")

    for _ in range(2):
        targets.IpuModel().activate(targets.FRAMEWORKS["tensorflow"])

    assert os.environ["TF_POPLAR_FLAGS"] == "--executable_cache_path=x --use_ipu_model"


@pytest.mark.parametrize(
    ("script", "expected"),
    [("echo 16", 16), ("echo 'Devices: 4'", 4), ("exit 1", 0), ("echo none", 0)],
    ids=["bare", "in-words", "failing", "no-number"],
)
def test_ipus_are_counted_by_the_vendors_tool(tmp_path, monkeypatch, script, expected):
    """The number of IPUs is what gc-info reports, and 0 when it fails."""
    tool = tmp_path / "gc-info"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    assert targets.attached_ipus() == expected


def test_a_plug_in_is_known_by_its_entry_points_name(monkeypatch):
    """An entry point's name is the name of its target."""
    monkeypatch.setattr(targets, "_entry_points", lambda: [entry_point(f"{__name__}:Willing", name="acme")])

    assert isinstance(targets.discover()["acme"], Willing)


@pytest.mark.parametrize(
    ("value", "name", "sentence"),
    [
        ("no_such_module:Target", "vendor", "cannot be loaded: No module named 'no_such_module'"),
        ("builtins:dict", "vendor", "is not a subclass of ipu_conformance.targets.Target"),
        (f"{__name__}:Willing", "emulator", "takes a name that is in use"),
    ],
    ids=["unimportable", "no-target", "name-taken"],
)
def test_a_broken_plug_in_is_named(monkeypatch, value, name, sentence):
    """A plug-in that cannot be used is an error that names it, never a silent omission."""
    monkeypatch.setattr(targets, "_entry_points", lambda: [entry_point(value, name=name)])
    found = targets.discover()
    if name == "emulator":
        assert isinstance(found[name], targets.Emulator)
    else:
        with pytest.raises(TargetError, match="target plug-in"):
            choose(PRESENT, name, found)

    (said,) = found.broken()
    assert said.startswith(f"target plug-in {name!r} ({value}) {sentence}")


def test_a_plug_in_that_nobody_names_is_not_loaded(monkeypatch):
    """A broken one harms no run that does not ask for it."""
    monkeypatch.setattr(targets, "_entry_points", lambda: [entry_point("no_such_module:Target")])

    assert choose(ABSENT, "auto", targets.discover()).target is None
    assert "vendor" in targets.discover()


def raises(error):
    raise error


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"ipus": lambda: raises(RuntimeError("no\ndriver"))}, "cannot say how many IPUs it has: no driver."),
        ({"probe": lambda _: raises(SystemExit("no licence"))}, "cannot say whether it runs present: no licence."),
        ({"probe": lambda _: None}, "was asked whether it runs present and said None; let it return an Availability."),
        (
            {"probe": lambda _: Availability(True, None)},
            "was asked whether it runs present and said Availability.*; let it return an Availability.",
        ),
        (
            {"ipus": lambda: "many"},
            "was asked how many IPUs it has and said 'many'; let it return a whole number above 0.",
        ),
        ({"ipus": lambda: 0}, "was asked how many IPUs it has and said 0; let it return a whole number above 0."),
    ],
)
def test_a_target_that_says_what_cannot_be_used_is_one_sentence(answer, sentence):
    """Whatever a vendor's code raises or returns names the target."""
    target = Willing()
    for name, function in answer.items():
        setattr(target, name, function)

    with pytest.raises(TargetError, match=f"^Target 'willing' {sentence}$"):
        choose(PRESENT, "willing", {"willing": target})


def test_a_target_that_never_answers_is_one_sentence():
    """A driver that hangs ends the command and not the engineer's patience."""
    waiting = threading.Event()

    with pytest.raises(TargetError, match="did not say what it is within 9e-05 s"):
        targets.told(Willing(), "what it is", waiting.wait, bool, "yes", 9e-05)
    waiting.set()


@pytest.mark.parametrize(
    ("ask", "method", "said"),
    [
        (targets.devices_of, "devices", 5),
        (targets.devices_of, "devices", "d0"),
        (targets.identity_of, "identity", {"serial": 7}),
    ],
)
def test_devices_and_identity_are_words(ask, method, said):
    """A report, and the leases of devices, rest on them."""
    target = Willing()
    setattr(target, method, lambda: said)

    with pytest.raises(TargetError, match=f"Target 'willing' was asked .* and said {re.escape(repr(said))};"):
        ask(target)


def test_a_target_that_fails_to_refuse_is_one_sentence(monkeypatch):
    """What it raises is not for the engineer, unless it is a refusal."""
    target = Willing()
    monkeypatch.setattr(target, "require", lambda frameworks, environment: raises(KeyError("x")))
    monkeypatch.setattr(selection, "discover", lambda: {"willing": target})

    with pytest.raises(TargetError, match="Target 'willing' cannot check what is asked of it: 'x'"):
        selection.select({"target": "willing"}, {})


def test_only_an_emulator_is_wrong_on_purpose(monkeypatch):
    """Hours later the verdict on an accelerator would be that of no device."""
    target = Willing()
    monkeypatch.setattr(selection, "discover", lambda: {"willing": target})

    with pytest.raises(
        TargetError, match="IPU_CONFORMANCE_FAULT is 'update-halved', and target 'willing' is no emulator"
    ):
        selection.select({"target": "willing"}, {"IPU_CONFORMANCE_FAULT": "update-halved"})
    target.kind = "emulator"
    assert selection.select({"target": "willing"}, {"IPU_CONFORMANCE_FAULT": "update-halved"}).frameworks


def test_a_target_names_as_many_devices_as_it_offers_ipus(monkeypatch):
    """A case that needs more than there are names would run on devices that others hold."""
    target = Willing()
    monkeypatch.setattr(target, "ipus", lambda: 8)
    monkeypatch.setattr(target, "devices", lambda: ["d0", "d1", "d2"])
    monkeypatch.setattr(selection, "discover", lambda: {"willing": target})

    with pytest.raises(TargetError, match="Target 'willing' offers 8 IPUs and names 3 devices; let it name each"):
        selection.select({"target": "willing"}, {})


def test_a_target_without_a_probe_says_what_to_write():
    """The class is named by its target, the method by its name."""
    with pytest.raises(TargetError, match=r"its class needs a method probe\(framework\) that returns an Availability"):
        choose(PRESENT, "bare", {"bare": Target()})
