"""What could run code from a file is in the package only where SECURITY.md explains it."""

import ast
import re
from pathlib import Path

import pytest

import ipu_conformance

PACKAGE = Path(ipu_conformance.__file__).parent
EXPLAINED = {
    "data/formats/unpickle.py": {"import pickle", "import pickletools"},
    "emulator/poptorch/data/asynchronous.py": {"import pickle", "pickle.dumps"},
    "emulator/poptorch/data/worker.py": {"import pickle", "pickle.load", "pickle.loads"},
    "frameworks/poptorch/trainer.py": {"weights_only=False"},
    "workers/packing.py": {"import marshal", "marshal.dumps", "marshal.loads"},
}
"""What each file has of it, as SECURITY.md says."""
WORDS = re.compile(r"pickle|marshal|shelve|dill|joblib|weights_only|\b(eval|exec)\b")
"""Without one of these a file has nothing to look for."""
MODULES = {"pickle", "pickletools", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


def found(tree):
    """The imports, calls and arguments of a file through which a file or a text could run."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            yield from (f"import {name}" for name in names if name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name) and function.id in ("eval", "exec"):
                yield function.id
            owner = getattr(getattr(function, "value", None), "id", None)
            called = getattr(function, "attr", "")
            if owner in MODULES and called.rstrip("s") in ("load", "dump"):
                yield f"{owner}.{called}"
            for word in node.keywords:
                value = getattr(word.value, "value", None)
                if (word.arg, value) in (("weights_only", False), ("allow_pickle", True)):
                    yield f"{word.arg}={value}"


def test_only_what_is_explained_could_run_code_from_a_file():
    """Pickles, marshal, eval, exec, and arguments that switch a reader's care off."""
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    having = {name: set(found(ast.parse(text))) for name, text in texts.items() if WORDS.search(text)}

    assert {name: what for name, what in having.items() if what} == EXPLAINED


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import pickle as p", "import pickle"),
        ("from pickle import loads", "import pickle"),
        ("eval('1')", "eval"),
        ("torch.load(file, weights_only=False)", "weights_only=False"),
        ("numpy.load(file, allow_pickle=True)", "allow_pickle=True"),
    ],
)
def test_a_new_way_is_found(text, what):
    """The search sees what it is for."""
    assert list(found(ast.parse(text))) == [what]


def test_every_file_is_named_where_it_is_explained():
    """A reader of SECURITY.md finds each file that a search does."""
    text = (PACKAGE.parent / "SECURITY.md").read_text(encoding="utf-8")

    assert [name for name in EXPLAINED if name not in text] == []
