"""Writes the program of a failed case: what it needs of the suite, its fixtures as calls, and the call of the case.

The program holds the text of the case itself, so it fails by the same sentence.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest
from _pytest.mark.structures import ParameterSet

from ipu_conformance.cases import case_id, frameworks_of
from ipu_conformance.report.alone import sources, stand_ins, values
from ipu_conformance.report.alone.slices import Slice, UnslicedError
from ipu_conformance.report.alone.sources import Imported, Source
from ipu_conformance.suite_files import in_suite

GENERATOR = "contextlib.contextmanager"
DIRECT = "get_direct_param_fixture_func"
"""What pytest calls the fixture that it makes of a parameter."""
OF_PLUGIN = {
    "framework": ("ipu_conformance", "frameworks", "load"),
    "inspector": ("ipu_conformance", "targets", "inspector"),
}
"""The fixtures that the plug-in gives to cases, as calls with the name of the framework."""
BODY = '''\
from __future__ import annotations

{imports}

{activation}


{definitions}


def main() -> None:
    """Make what the case is given, and execute it."""
    with contextlib.ExitStack() as fixtures:
{calls}
    print("the case is as specified")


if __name__ == "__main__":
    main()
'''


def program(item: pytest.Item, targets: Mapping[str, str]) -> str:
    """The program of a case; ``targets`` executes each framework. A case that needs pytest itself is refused."""
    if not isinstance(item, pytest.Function):
        raise UnslicedError(f"{item.name} is no function.")
    return Writer(item, targets).text()


class Writer:
    """Writes the program of one case."""

    def __init__(self, item: pytest.Function, targets: Mapping[str, str]) -> None:
        self.item, self.targets = item, targets
        self.cut = Slice()
        self.source = sources.read(Path(item.path).resolve())
        callspec = getattr(item, "callspec", None)
        self.params: Dict[str, Any] = dict(callspec.params) if callspec is not None else {}
        self._calls: List[str] = []
        self._made: Dict[Tuple[str, int], str] = {}

    def text(self) -> str:
        """All of it."""
        contextlib = self.cut.imported(Imported("contextlib", ""), "contextlib")
        case = self.cut.function(self.source, self.item.function.__name__)
        for name in self.item.fixturenames:
            if name != "request" and self._is_of_the_case(name):
                self._value(name)
        wanted = inspect.signature(self.item.function).parameters
        arguments = ", ".join(f"{name}={self._value(name)}" for name in wanted)
        self._calls.append(f"{case}({arguments})")
        activation = self._activation()
        return BODY.format(
            imports="\n".join(self.cut.imports()),
            activation=activation,
            definitions="\n\n\n".join(self.cut.definitions()),
            calls="\n".join(f"        {call}" for call in self._calls),
        ).replace("contextlib.ExitStack", f"{contextlib}.ExitStack")

    def _activation(self) -> str:
        names = frameworks_of(self.item)
        if not names:
            return ""
        home = "ipu_conformance.targets"
        activate, discover, frameworks = (
            self.cut.imported(Imported(home, name), name) for name in ("activate", "discover", "FRAMEWORKS")
        )
        rows = [f"{activate}({discover}()[{self.targets[name]!r}], {frameworks}[{name!r}])" for name in names]
        return "\n".join(rows)

    def _is_of_the_case(self, name: str) -> bool:
        """Whether a fixture does something for the case; one that all files share keeps cases apart from each other."""
        definitions = self._definitions(name)
        file = Path(definitions[-1].func.__code__.co_filename) if definitions else None
        asked = name in inspect.signature(self.item.function).parameters
        return asked or file is None or file.name != "conftest.py" or name in self._used

    @property
    def _used(self) -> List[str]:
        markers = self.item.iter_markers("usefixtures")
        return [str(name) for marker in markers for name in marker.args]

    def _definitions(self, name: str) -> List[Any]:
        """The fixtures of a name, the one that counts last."""
        found = self.item._fixtureinfo.name2fixturedefs.get(name, ())
        return [each for each in found if getattr(each.func, "__name__", "") != DIRECT]

    def _value(self, name: str, before: Optional[Any] = None) -> str:
        """An expression for what a fixture or a parameter gives; ``before`` is the fixture that overrides it."""
        definitions = self._definitions(name)
        if name == "request":
            raise UnslicedError("Only a fixture may ask what it is made for.")
        if not definitions:
            return self._parameter(name)
        place = len(definitions) - 1
        if before is not None and before in definitions:
            place = definitions.index(before) - 1
        if (name, place) not in self._made:
            self._made[(name, place)] = self._call(name, definitions[place])
        return self._made[(name, place)]

    def _call(self, name: str, definition: Any) -> str:
        """Write the call of a fixture; the variable that holds its value."""
        variable = name
        while variable in self._made.values():
            variable += "_"
        function = definition.func
        file = Path(function.__code__.co_filename).resolve()
        if name in OF_PLUGIN and not in_suite(file):
            module, attribute, function_name = OF_PLUGIN[name]
            framework = self.params.get("framework") or frameworks_of(self.item)[0]
            call = f"{self.cut.imported(Imported(module, attribute), attribute)}.{function_name}({framework!r})"
        elif name in stand_ins.FIXTURES and not in_suite(file):
            home = self.cut.imported(Imported(stand_ins.__package__, "stand_ins"), "pytest")
            call = f"fixtures.enter_context({home}.FIXTURES[{name!r}]())"
        elif in_suite(file):
            call = self._own_call(name, definition, sources.read(file))
        else:
            raise UnslicedError(f"The fixture {name} is nobody's.")
        self._calls.append(f"{variable} = {call}")
        return variable

    def _own_call(self, name: str, definition: Any, source: Source) -> str:
        function = definition.func
        yields = inspect.isgeneratorfunction(function)
        made = self.cut.function(source, function.__name__, f"@{GENERATOR}" if yields else "", f"given_{name}")
        for attribute in _of_the_module(source.function(function.__name__)):
            self.cut.name(self.source, attribute)
        arguments = []
        for each in inspect.signature(function).parameters:
            if each == "request":
                value = self._request(name, source.function(function.__name__))
            else:
                value = self._value(each, definition if each == name else None)
            arguments.append(f"{each}={value}")
        call = f"{made}({', '.join(arguments)})"
        return f"fixtures.enter_context({call})" if yields else call

    def _request(self, name: str, fixture: Optional[ast.AST]) -> str:
        """What a fixture may ask of the case: its own parameter, and those that it names."""
        home = self.cut.imported(Imported(stand_ins.__package__, "stand_ins"), "pytest")
        said = {node.value for node in ast.walk(fixture or ast.Module([], [])) if isinstance(node, ast.Constant)}
        params = ", ".join(f"{word!r}: {self._parameter(word)}" for word in self.params if word in said)
        param = f", {self._parameter(name)}" if name in self.params else ""
        return f"{home}.Request({case_id(self.item)!r}, {{{params}}}{param})"

    def _parameter(self, name: str) -> str:
        if name not in self.params:
            raise UnslicedError(f"{name} is neither a fixture nor a parameter.")
        try:
            return values.written(self.params[name], self.cut, self.item.module)
        except UnslicedError:
            row = self._row(name)
            if row is None:
                raise
            return row

    def _row(self, name: str) -> Optional[str]:
        """A parameter as a place in the rows that the case is written with."""
        node = self.source.function(self.item.function.__name__)
        for marker in self.item.iter_markers("parametrize"):
            words = marker.args[0]
            names = [word.strip() for word in words.split(",")] if isinstance(words, str) else list(words)
            said = [stand_ins.param(*row.values) if isinstance(row, ParameterSet) else row for row in marker.args[1]]
            rows = stand_ins.parameters(said, len(names))
            for decorator in [] if node is None or name not in names else node.decorator_list:
                if (
                    not isinstance(decorator, ast.Call)
                    or len(decorator.args) < 2
                    or not _says(decorator.args[0], words)
                ):
                    continue
                place = names.index(name)
                for number, row in enumerate(rows):
                    if row[place] is self.params[name]:
                        home = self.cut.imported(Imported(stand_ins.__package__, "stand_ins"), "pytest")
                        table = self.cut.expression(self.source, decorator.args[1])
                        return f"{home}.parameters({table}, {len(names)})[{number}][{place}]"
        return None


def _of_the_module(function: Optional[ast.AST]) -> List[str]:
    """What a fixture takes from the module of the case: ``request.module.train``."""
    nodes = [] if function is None else [node for node in ast.walk(function) if isinstance(node, ast.Attribute)]
    module = ast.dump(ast.parse("request.module", mode="eval").body)
    return [node.attr for node in nodes if ast.dump(node.value) == module and node.attr != "__name__"]


def _says(node: ast.expr, words: Any) -> bool:
    """Whether the text of a parametrisation has these names."""
    try:
        said = ast.literal_eval(node)
    except ValueError:
        return False
    return bool(said == words)
