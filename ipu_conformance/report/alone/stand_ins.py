"""What pytest gives to a case, for programs that run without it. In them this module bears the name of pytest."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import sys
import tempfile
import types
from pathlib import Path
from typing import Any, Callable, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Tuple, Type, Union
from unittest import mock


class Skipped(SystemExit):
    """The case cannot be executed on this target."""


def skip(reason: str) -> NoReturn:
    """End the program with the reason why the case is not executed."""
    raise Skipped(f"skipped: {reason}")


def fail(reason: str = "", pytrace: bool = True) -> NoReturn:
    """Fail the case."""
    raise AssertionError(reason)


def importorskip(name: str, reason: Optional[str] = None) -> Any:
    """A module; without it the case is not executed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        skip(reason or str(error))


@contextlib.contextmanager
def raises(error: Union[Type[BaseException], Tuple[Type[BaseException], ...]], match: str = "") -> Iterator[None]:
    """The block raises such an error."""
    try:
        yield
    except error as raised:
        if not re.search(match, str(raised)):
            raise AssertionError(f"the error says {str(raised)!r}, which does not match {match!r}") from raised
    else:
        raise AssertionError(f"the block did not raise {error}")


class _Rows(NamedTuple):
    values: Tuple[Any, ...]


def param(*values: Any, **how: Any) -> _Rows:
    """A row of parameters."""
    return _Rows(values)


class _Mark:
    """A mark, with arguments or without: what it stands before stays as it is."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        alone = len(arguments) == 1 and not options and callable(arguments[0])
        return arguments[0] if alone else self


class _Marks:
    def __getattr__(self, name: str) -> _Mark:
        return _Mark()


mark = _Marks()


def parameters(rows: Any, count: int) -> List[Tuple[Any, ...]]:
    """The rows of a parametrisation with so many names, each as a tuple."""
    return [row.values if isinstance(row, _Rows) else (row,) if count == 1 else tuple(row) for row in rows]


class MonkeyPatch:
    """Changes that are taken back at the end."""

    def __init__(self) -> None:
        self._undone = contextlib.ExitStack()

    def setenv(self, name: str, value: str) -> None:
        """Set a variable of the environment."""
        self._undone.enter_context(mock.patch.dict(os.environ, {name: value}))

    def delenv(self, name: str, raising: bool = True) -> None:
        """Take a variable out of the environment."""
        if raising and name not in os.environ:
            raise KeyError(name)
        self._undone.enter_context(mock.patch.dict(os.environ))
        os.environ.pop(name, None)

    def chdir(self, folder: Union[str, Path]) -> None:
        """Go to a folder."""
        self._undone.callback(os.chdir, os.getcwd())
        os.chdir(folder)

    def setattr(self, target: Any, name: Any, *value: Any, raising: bool = True) -> None:
        """Change an attribute of an object, or what a dotted name stands for."""
        if value:
            self._undone.enter_context(mock.patch.object(target, name, value[0], create=not raising))
        else:
            self._undone.enter_context(mock.patch(target, name, create=not raising))

    def setitem(self, mapping: Any, key: Any, value: Any) -> None:
        """Change an entry of a dictionary."""
        self._undone.enter_context(mock.patch.dict(mapping, {key: value}))

    def delitem(self, mapping: Any, key: Any, raising: bool = True) -> None:
        """Take an entry out of a dictionary."""
        if raising and key not in mapping:
            raise KeyError(key)
        self._undone.enter_context(mock.patch.dict(mapping))
        mapping.pop(key, None)

    def syspath_prepend(self, folder: Any) -> None:
        """Look for modules in a folder first."""
        self._undone.enter_context(mock.patch.object(sys, "path", [str(folder), *sys.path]))

    def undo(self) -> None:
        """Take the changes back, the last one first."""
        self._undone.close()

    @classmethod
    @contextlib.contextmanager
    def context(cls) -> Iterator[MonkeyPatch]:
        """Changes inside a block."""
        patch = cls()
        try:
            yield patch
        finally:
            patch.undo()


@contextlib.contextmanager
def _tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder).resolve()


class _Folders:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def mktemp(self, basename: str, numbered: bool = True) -> Path:
        return Path(tempfile.mkdtemp(prefix=basename, dir=self._folder))

    def getbasetemp(self) -> Path:
        return self._folder


@contextlib.contextmanager
def _tmp_path_factory() -> Iterator[_Folders]:
    with _tmp_path() as folder:
        yield _Folders(folder)


class Printed(NamedTuple):
    """What was printed."""

    out: str
    err: str


class _Descriptors:
    """What is written to the standard output and error, by native code too."""

    def __init__(self) -> None:
        self._files = [tempfile.TemporaryFile("w+b") for _ in range(2)]  # noqa: SIM115  closed with the capture
        self._before = [os.dup(number) for number in (1, 2)]
        for number, file in zip((1, 2), self._files):
            os.dup2(file.fileno(), number)

    def readouterr(self) -> Printed:
        texts = []
        for stream, file in zip((sys.stdout, sys.stderr), self._files):
            stream.flush()
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
            file.seek(0)
            file.truncate()
        return Printed(*texts)

    def close(self) -> None:
        rest = self.readouterr()
        for number, kept in zip((1, 2), self._before):
            os.dup2(kept, number)
            os.close(kept)
        for file in self._files:
            file.close()
        sys.stdout.write(rest.out)
        sys.stderr.write(rest.err)


@contextlib.contextmanager
def _capfd() -> Iterator[_Descriptors]:
    with contextlib.closing(_Descriptors()) as captured:
        yield captured


class _Log(logging.Handler):
    """The records of the root logger."""

    def __init__(self) -> None:
        super().__init__()
        self.records: List[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def text(self) -> str:
        return "".join(f"{record.levelname} {record.getMessage()}\n" for record in self.records)

    @property
    def messages(self) -> List[str]:
        return [record.getMessage() for record in self.records]

    def set_level(self, level: Union[int, str], logger: Optional[str] = None) -> None:
        logging.getLogger(logger).setLevel(level)

    @contextlib.contextmanager
    def at_level(self, level: Union[int, str], logger: Optional[str] = None) -> Iterator[None]:
        chosen = logging.getLogger(logger)
        before = chosen.level
        chosen.setLevel(level)
        try:
            yield
        finally:
            chosen.setLevel(before)


@contextlib.contextmanager
def _caplog() -> Iterator[_Log]:
    log = _Log()
    logging.getLogger().addHandler(log)
    try:
        yield log
    finally:
        logging.getLogger().removeHandler(log)


FIXTURES: Mapping[str, Callable[[], Any]] = {
    "tmp_path": _tmp_path,
    "tmp_path_factory": _tmp_path_factory,
    "monkeypatch": MonkeyPatch.context,
    "capfd": _capfd,
    "capsys": _capfd,
    "caplog": _caplog,
}
"""Pytest's own fixtures, by name."""


class Request:
    """What a fixture may ask of the case that it is made for."""

    def __init__(self, case: str, params: Mapping[str, Any], param: Any = None) -> None:
        self.path = Path(case.partition("::")[0])
        self.module = sys.modules["__main__"]
        self.node = types.SimpleNamespace(callspec=types.SimpleNamespace(params=dict(params)), user_properties=[])
        self.param = param
