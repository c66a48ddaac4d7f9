"""The files of the suite as data: which statement binds a name, what it refers to, and where a name comes from."""

from __future__ import annotations

import ast
import builtins
import functools
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

FILE, EVERYTHING = "__file__", "*"
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]
Names = FrozenSet[str]


class Imported(NamedTuple):
    """What an import binds: a name of a module, or the module where the name is empty."""

    module: str
    """Dotted; with as many dots in front as the statement has."""
    name: str


class Reference(NamedTuple):
    """A name that a statement takes from its module, or an attribute of such a name."""

    node: Union[ast.Name, ast.Attribute]
    name: str
    attribute: str
    """Empty for the name alone."""
    inside: bool
    """Whether a function refers to it, so that it is looked up when that is called."""


class Source:
    """One file of the suite."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.lines = path, text.splitlines()
        self._tree = ast.parse("\n".join(self.lines))
        self.statements = self._tree.body
        self.bound: Dict[str, List[int]] = {}
        """The statements that bind a name, by their numbers."""
        self.imported: Dict[str, Imported] = {}
        self.everything_of = ""
        """The module from which all names are imported."""
        for number, statement in enumerate(self.statements):
            self._look_at(number, statement)

    def _look_at(self, number: int, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import):
            for each in statement.names:
                self.imported[each.asname or each.name.partition(".")[0]] = Imported(each.name, "")
        elif isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            for each in statement.names:
                self.imported[each.asname or each.name] = Imported(module, each.name)
                if each.name == EVERYTHING:
                    self.everything_of = module
        elif not (isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test)):
            for name in bound_by([statement]):
                self.bound.setdefault(name, []).append(number)

    @functools.cached_property
    def variables(self) -> FrozenSet[str]:
        """Every name that a function of the file binds."""
        functions = (
            node
            for node in ast.walk(self._tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        )
        return frozenset(name for function in functions for name in own_names(function))

    def function(self, name: str) -> Optional[Function]:
        """The function of a name."""
        found = [self.statements[number] for number in self.bound.get(name, ())]
        return found[-1] if found and isinstance(found[-1], (ast.FunctionDef, ast.AsyncFunctionDef)) else None

    def span(self, number: int) -> Tuple[int, int]:
        """The first line of a statement with its decorators and the comment above it, and the one behind its last."""
        statement = self.statements[number]
        decorators = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(each.lineno for each in decorators)]) - 1
        while first and self.lines[first - 1].startswith("#"):
            first -= 1
        last = statement.end_lineno or statement.lineno
        following = self.statements[number + 1] if number + 1 < len(self.statements) else None
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and _is_text(following):
            last = following.end_lineno or last  # type: ignore[union-attr]
        return first, last


@functools.lru_cache(maxsize=None)
def read(path: Path) -> Source:
    """A file of the suite, or that of a package, read once."""
    file = path / "__init__.py" if path.is_dir() else path
    return Source(file, file.read_text(encoding="utf-8"))


def _is_text(statement: Optional[ast.stmt]) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def bound_by(statements: List[ast.stmt]) -> Set[str]:
    """The names that statements bind in their own scope."""
    names: Set[str] = set()
    waiting: List[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(each.asname or each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        if not isinstance(node, (*SCOPES, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))
        elif isinstance(node, SCOPES[3:]):  # what := binds belongs to the function around
            waiting.extend(each for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
    return names


def references(node: ast.AST, known: Names = frozenset(), inside: bool = False) -> Iterator[Reference]:
    """What a statement takes from its module; annotations are text, and nothing that runs."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id not in known:
            yield Reference(node, node.value.id, node.attr, inside)
    elif isinstance(node, ast.Name):
        if node.id not in known:
            yield Reference(node, node.id, "", inside)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        yield from _of_function(node, known, inside)
    elif isinstance(node, ast.ClassDef):
        for outer in (*node.decorator_list, *node.bases, *(each.value for each in node.keywords)):
            yield from references(outer, known, inside)
        own = bound_by(node.body)
        for statement in node.body:
            # Functions of a class do not see the names of its body.
            is_function = isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from references(statement, known if is_function else known | own, inside)
    elif isinstance(node, SCOPES):
        yield from _of_comprehension(node, known, inside)
    elif isinstance(node, ast.ImportFrom) and node.level:
        yield Reference(ast.Name(".", ast.Load(), lineno=node.lineno, col_offset=0), ".", "", inside)
    elif isinstance(node, ast.AnnAssign):
        yield from references(node.target, known, inside)
        if node.value is not None:
            yield from references(node.value, known, inside)
    else:
        for child in ast.iter_child_nodes(node):
            yield from references(child, known, inside)


def _of_function(node: Union[Function, ast.Lambda], known: Names, inside: bool) -> Iterator[Reference]:
    for default in (*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)):
        yield from references(default, known, inside)
    if isinstance(node, ast.Lambda):
        yield from references(node.body, known | own_names(node), True)
        return
    for decorator in node.decorator_list:
        yield from references(decorator, known, inside)
    for statement in node.body:
        yield from references(statement, known | own_names(node), True)


def annotated(node: ast.AST) -> Iterator[str]:
    """The names in the annotations of a statement: nothing looks them up, but a reader does."""
    for each in ast.walk(node):
        for part in (getattr(each, "annotation", None), getattr(each, "returns", None)):
            yield from (name.id for name in ast.walk(part or ast.Pass()) if isinstance(name, ast.Name))


def own_names(function: Union[Function, ast.Lambda]) -> Set[str]:
    """The names that a function binds: its arguments and its variables."""
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    own = {each.arg for each in every if each is not None}
    if isinstance(function, ast.Lambda):
        return own
    said_global = {name for each in ast.walk(function) if isinstance(each, ast.Global) for name in each.names}
    return own | (bound_by(function.body) - said_global)


def _of_comprehension(node: Any, known: Names, inside: bool) -> Iterator[Reference]:
    own = known | {each.id for part in node.generators for each in ast.walk(part.target) if isinstance(each, ast.Name)}
    for number, part in enumerate(node.generators):
        yield from references(part.iter, own if number else known, inside)
        for condition in part.ifs:
            yield from references(condition, own, inside)
    for result in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
        yield from references(result, own, inside)


def is_builtin(name: str) -> bool:
    """Whether Python itself knows a name, and it means the same in every module."""
    return hasattr(builtins, name) and not name.startswith("__")
