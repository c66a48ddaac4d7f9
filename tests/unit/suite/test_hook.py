"""A vendor's module name leads to our package, and to the same objects."""

import importlib
import os
import sys
import textwrap

import pytest

from ipu_conformance import targets
from ipu_conformance.emulator import hook

pytestmark = pytest.mark.usefixtures("no_hook")


@pytest.fixture
def front_end(no_hook, tmp_path, monkeypatch):
    """A package ``our_front_end`` that stands for the vendor's ``acmetorch``."""
    folder = tmp_path / "our_front_end"
    folder.mkdir()
    (folder / "__init__.py").write_text("from .options import Options\n")
    (folder / "options.py").write_text(
        textwrap.dedent(
            """
            class Options:
                pass
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    hook.alias({"acmetorch": "our_front_end"})
    yield
    hook.uninstall()
    for name in [name for name in sys.modules if name.startswith("our_front_end")]:
        del sys.modules[name]


@pytest.mark.usefixtures("front_end")
def test_both_names_give_the_same_objects():
    """The vendor's name and ours are one module, below the top too."""
    vendor = importlib.import_module("acmetorch")
    ours = importlib.import_module("our_front_end")

    assert vendor is ours
    assert importlib.import_module("acmetorch.options") is importlib.import_module("our_front_end.options")
    assert vendor.options.Options is ours.Options


@pytest.mark.usefixtures("front_end")
def test_a_module_keeps_its_own_spec():
    """Relative imports inside a front end go on working after it was imported under the vendor's name."""
    module = importlib.import_module("acmetorch")

    assert module.__spec__.name == "our_front_end"
    assert importlib.reload(module) is module


@pytest.mark.usefixtures("front_end")
def test_a_name_that_the_front_end_lacks_is_an_import_error():
    """A submodule that we do not have is missing, not empty."""
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("acmetorch.no_such_module")


def test_without_the_hook_the_vendors_name_is_unknown():
    """The alias exists only while the hook is installed."""
    hook.alias({"acmetorch": "json"})
    importlib.import_module("acmetorch")
    hook.uninstall()

    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("acmetorch")
    assert hook._FINDER not in sys.meta_path


@pytest.fixture
def framework(no_hook, tmp_path, monkeypatch):
    """A module ``acmeflow`` of somebody else, and our ``acme_changes`` that add to it."""
    (tmp_path / "acmeflow.py").write_text("def devices():\n    return ['cpu']\n")
    change = "def add(module):\n    module.changed = getattr(module, 'changed', 0) + 1\n"
    (tmp_path / "acme_changes.py").write_text(change)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "acmeflow"
    hook.uninstall()
    for name in ("acmeflow", "acme_changes"):
        sys.modules.pop(name, None)


def test_a_module_is_changed_when_it_is_imported(framework):
    """Nothing is imported before its time; then our function gets the finished module, whose loader is its own."""
    hook.change({framework: "acme_changes:add"})
    assert framework not in sys.modules

    module = importlib.import_module(framework)

    assert (module.changed, module.devices()) == (1, ["cpu"])
    assert module.__spec__.loader is module.__loader__
    assert type(module.__loader__).__name__ == "SourceFileLoader"


def test_a_module_that_is_imported_is_changed_at_once_and_once(framework):
    """An imported module is changed by the installation; to install again changes nothing."""
    module = importlib.import_module(framework)

    for _ in range(2):
        hook.change({framework: "acme_changes:add"})

    assert module.changed == 1


def test_after_the_hook_is_gone_a_module_comes_as_it_is(framework):
    """A change that was never made is forgotten."""
    hook.change({framework: "acme_changes:add"})
    hook.uninstall()

    assert not hasattr(importlib.import_module(framework), "changed")
    assert hook._CHANGER not in sys.meta_path


@pytest.mark.parametrize(
    ("module", "before", "after"), [("json", None, "1"), ("json", "0", "0"), ("a_module_that_is_not_here", None, None)]
)
def test_a_switch_is_set_where_its_module_is_and_the_user_has_set_none(monkeypatch, module, before, after):
    """Frameworks read it when they are imported."""
    if before is None:
        monkeypatch.delenv("ACME_SWITCH", raising=False)
    else:
        monkeypatch.setenv("ACME_SWITCH", before)
    monkeypatch.setitem(hook.FRONT_ENDS, "acme", hook.FrontEnd(switches={"ACME_SWITCH": (module, "1")}))
    hook.install("acme")

    assert os.environ.pop("ACME_SWITCH", None) == after


@pytest.mark.parametrize(
    ("version", "module", "refused"),
    [
        ("3.1.1", "", False),
        ("3.2.0", "", True),
        ("3.10.0rc1", "", True),
        ("4.0", "", True),
        ("4.0", "json", False),
        ("4.0", "a_module_that_is_not_here", True),
        ("unknown", "", False),
    ],
)
def test_a_version_that_cannot_be_emulated_is_refused(version, module, refused):
    """From one version on, unless a module that helps is installed."""
    front_end = hook.FrontEnd(below=(3, 2), with_module=module, because="it is new")

    assert front_end.why_not(version) == ("it is new" if refused else None)


def test_a_version_that_cannot_be_emulated_has_no_target(monkeypatch):
    """Doctor and a run say why and what to do."""
    monkeypatch.setattr(targets, "distribution_version", lambda name: "3.3.1")
    choice = targets.choose(targets.FRAMEWORKS["paddle"], "emulator", targets.discover())

    assert choice.target is None
    assert choice.reason.startswith("paddle 3.3.1 cannot be emulated: its functions take programs of the new IR alone")
