"""Cuts what a function of the suite needs out of it: imports, constants and definitions, in an order that runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ipu_conformance.errors import ConformanceError
from ipu_conformance.report.alone import sources, stand_ins
from ipu_conformance.report.alone.sources import FILE, Imported, Reference, Source
from ipu_conformance.suite_files import suite_folder

PYTEST = "pytest"
STAND_INS = Imported(stand_ins.__package__, "stand_ins")
SUITE_FOLDER = Imported("ipu_conformance.suite_files", "suite_folder")
Place = Tuple[Path, int]
"""A statement: its file, and its number there."""


class UnslicedError(ConformanceError):
    """A case needs something that only a run of pytest has."""


class Piece(NamedTuple):
    """A statement as the program has it."""

    source: Source
    number: int
    text: str
    needs: Tuple[Path, ...]
    """The files of what it refers to."""


class Slice:
    """The parts of the suite that a program needs, under names that are unique in it."""

    def __init__(self) -> None:
        self._names: Dict[Tuple[Path, str], str] = {}
        self._imports: Dict[Tuple[Imported, str], str] = {}
        self._pieces: Dict[Place, Optional[Piece]] = {}
        self._decorators: Dict[Place, str] = {}
        """What stands in the place of pytest's decorators."""
        self._aliases: Dict[Path, Dict[str, str]] = {}
        """More names for what a file defines."""
        self._files: List[Tuple[Source, str]] = []

    def function(self, source: Source, name: str, decorator: str = "", wish: str = "") -> str:
        """Take a function with one decorator in the place of pytest's, or none; its name in the program."""
        self._decorators.setdefault((source.path, source.bound[name][-1]), decorator)
        return self._own(source, name, wish)

    def name(self, source: Source, name: str) -> str:
        """The name in the program of what a file of the suite calls so; it is taken along."""
        home, name_there = origin(source, name)
        imported = home.imported.get(name_there)
        if name_there in home.bound:
            return self._own(home, name_there)
        if imported is not None and name == PYTEST:
            return self.imported(STAND_INS, PYTEST)
        if imported is not None and suite_file(home, imported.module) is None:
            return self.imported(imported, name)
        if imported is None and sources.is_builtin(name):
            return name
        raise UnslicedError(f"{name} of {source.path.name} is nothing that a program can take along.")

    def imported(self, imported: Imported, wish: str) -> str:
        """The name under which the program imports something from outside of the suite: that of the file, if free."""
        key = (imported, wish)
        if key not in self._imports:
            root = imported.module.partition(".")[0]
            # ``import a`` and ``import a.b`` bind one name to one module.
            shared = not imported.name and any(
                not each.name and name == root for (each, _), name in self._imports.items()
            )
            self._imports[key] = wish if shared and wish == root else self._free(wish, root)
        return self._imports[key]

    def _own_of(self, module: Source, attribute: str, alias: str) -> str:
        """The name of what a case calls ``alias.attribute``: a variable of the case may be called ``attribute``."""
        home, name = origin(module, attribute)
        wish = f"{alias}_{name}"
        if name in home.bound:
            return self._own(home, name, wish)
        return self.imported(home.imported[name], wish) if name in home.imported else self.name(home, name)

    def _own(self, source: Source, name: str, wish: str = "") -> str:
        key = (source.path, name)
        if key not in self._names:
            self._names[key] = self._free(wish or name, source.path.stem)
            for number in source.bound[name]:
                self._take(source, number)
        return self._names[key]

    def _alias(self, name: str, source: Source) -> str:
        """Another name for what the program has, where a function has a variable of that name."""
        path = next((path for (path, _), each in self._names.items() if each == name), None)
        if path is None:
            raise UnslicedError(f"{name} is a variable of {source.path.name} as well.")
        words = self._aliases.setdefault(path, {})
        if name not in words:
            words[name] = self._free(f"{path.stem}_{name}", source.path.stem)
        return words[name]

    def _free(self, name: str, prefix: str) -> str:
        aliases = (alias for words in self._aliases.values() for alias in words.values())
        taken = {*self._names.values(), *self._imports.values(), *aliases}
        while name in taken:
            name = f"{prefix}_{name}"
        return name

    def _take(self, source: Source, number: int) -> None:
        place = (source.path, number)
        if place in self._pieces:
            return
        self._pieces[place] = None
        first, last = source.span(number)
        statement, bare = source.statements[number], self._decorators.get(place)
        if bare is not None:
            first = statement.lineno - 1
        text, needs = self._rewritten(source, statement, first, last, bare is not None)
        name = getattr(statement, "name", None)
        if name is not None and self._own(source, name) != name:
            words = rf"(?m)^((?:async )?(?:def|class) ){name}\b"
            text = re.sub(words, rf"\g<1>{self._own(source, name)}", text, count=1)
        self._pieces[place] = Piece(source, number, f"{bare}\n{text}" if bare else text, needs)

    def expression(self, source: Source, node: ast.expr) -> str:
        """An expression of a file of the suite, as the program has it."""
        last = node.end_lineno or node.lineno
        text, _ = self._rewritten(source, node, node.lineno - 1, last, False)
        lines = text.splitlines()
        tail = source.lines[last - 1].encode()[node.end_col_offset or 0 :].decode()
        lines[-1] = lines[-1][: len(lines[-1]) - len(tail)]
        lines[0] = lines[0].encode()[node.col_offset :].decode()
        return "\n".join(lines)

    def _rewritten(
        self, source: Source, node: ast.AST, first: int, last: int, bare: bool
    ) -> Tuple[str, Tuple[Path, ...]]:
        lines = [line.encode() for line in source.lines[first:last]]
        changes = []
        needs: Dict[Path, None] = {}
        for name in sources.annotated(node):
            imported = source.imported.get(name)
            if imported is not None and name != PYTEST and suite_file(source, imported.module) is None:
                self.imported(imported, name)
        for each in _references(node, bare):
            place, new, file = self._resolved(source, each)
            if file is not None:
                needs[file] = None
            old = f"{each.name}.{each.attribute}" if place is each.node and each.attribute else each.name
            if new != old:
                if each.inside and new in source.variables:
                    new = self._alias(new, source)
                changes.append((place.lineno - 1 - first, place.col_offset, old.encode(), new.encode()))
        for line, column, old_name, new_name in sorted(set(changes), reverse=True):
            rest = lines[line][column:]
            if not rest.startswith(old_name):  # inside of f-strings, older releases of Python count otherwise
                raise UnslicedError(f"{old_name.decode()} of {source.path.name} cannot have another name.")
            lines[line] = lines[line][:column] + new_name + rest[len(old_name) :]
        return b"\n".join(lines).decode(), tuple(needs)

    def _resolved(self, source: Source, reference: Reference) -> Tuple[ast.expr, str, Optional[Path]]:
        """The node that is replaced, by what, and the file of the suite in which that is defined."""
        node, name, attribute, inside = reference
        alone = node.value if isinstance(node, ast.Attribute) else node
        if name == FILE and not inside:
            return alone, self._file_of(source), None
        if name == FILE:
            return alone, FILE, None
        module = self._module(source, name)
        if module is not None:
            if not attribute:
                raise UnslicedError(f"{source.path.name} hands a module of the suite on.")
            return node, self._own_of(module, attribute, name), module.path
        if name == PYTEST and not hasattr(stand_ins, attribute):
            raise UnslicedError(f"{source.path.name} needs pytest.{attribute}.")
        return alone, self.name(source, name), origin(source, name)[0].path

    def _module(self, source: Source, name: str) -> Optional[Source]:
        """The file of the suite that a name stands for."""
        imported = None if name in source.bound else source.imported.get(name)
        file = None if imported is None else suite_file(source, imported.module)
        if file is None or imported is None or not imported.name:
            return None
        found = submodule(file, imported.name)
        return None if found is None else sources.read(found)

    def _file_of(self, source: Source) -> str:
        """A constant with the path of a file of the suite, from which it reads others."""
        name = self._free(f"{source.path.stem}_file", "suite")
        place = source.path.relative_to(suite_folder()).as_posix()
        self._files.append((source, f"{name} = str({self.imported(SUITE_FOLDER, 'suite_folder')}() / {place!r})"))
        self._names[(source.path, FILE)] = name
        return name

    def imports(self) -> Iterator[str]:
        """The import statements of the program."""
        plain: Set[str] = set()
        of_modules: Dict[str, List[str]] = {}
        for (imported, _), name in self._imports.items():
            if imported.name:
                alias = "" if name == imported.name else f" as {name}"
                of_modules.setdefault(imported.module, []).append(f"{imported.name}{alias}")
            else:
                alias = "" if name == imported.module.partition(".")[0] else f" as {name}"
                plain.add(f"import {imported.module}{alias}")
        yield from sorted(plain)
        yield from (f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(of_modules.items()))

    def definitions(self) -> Iterator[str]:
        """The statements of the program by the files that they come from, what others build on first."""
        by_file: Dict[Path, List[Piece]] = {}
        for piece in self._pieces.values():
            if piece is not None:
                by_file.setdefault(piece.source.path, []).append(piece)
        done: Set[Path] = set()

        def in_order(path: Path) -> Iterator[str]:
            if path in done or path not in by_file:
                return
            done.add(path)
            pieces = sorted(by_file[path], key=lambda piece: piece.number)
            for piece in pieces:
                for need in piece.needs:
                    yield from in_order(need)
            yield f"# {path.relative_to(suite_folder()).as_posix()}"
            yield from (text for source, text in self._files if source.path == path)
            yield from (piece.text for piece in pieces)
            yield from (f"{alias} = {name}" for name, alias in self._aliases.get(path, {}).items())

        for path in list(by_file):
            yield from in_order(path)


def _references(node: ast.AST, bare: bool) -> Iterator[Reference]:
    """What a statement refers to, apart from its decorators where it goes without them."""
    if bare and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        without = type(node)(**{**{name: getattr(node, name) for name in node._fields}, "decorator_list": []})
        return sources.references(without)
    return sources.references(node)


def suite_file(source: Source, module: str) -> Optional[Path]:
    """The file or the folder of the suite that an import of a file names; None for what is not in the suite."""
    words = module.lstrip(".")
    level = len(module) - len(words)
    if not level:
        return None
    folder = source.path.parents[level - 1]
    return folder if not words else submodule(folder, words.replace(".", "/"))


def submodule(folder: Path, name: str) -> Optional[Path]:
    """The file or the folder of a module inside a folder."""
    if folder.suffix:
        return None
    file = folder / f"{name}.py"
    return file if file.is_file() else (folder / name if (folder / name).is_dir() else None)


def origin(source: Source, name: str) -> Tuple[Source, str]:
    """The file of the suite that defines what a file of it calls so, or imports it from outside; its name there."""
    imported = source.imported.get(name)
    if imported is None and source.everything_of:
        imported = Imported(source.everything_of, name)
    file = None if imported is None or name in source.bound else suite_file(source, imported.module)
    if file is None or imported is None or not imported.name or submodule(file, imported.name) is not None:
        return source, name
    return origin(sources.read(file), imported.name)
