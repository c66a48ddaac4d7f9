"""What a device refuses, as rows: the check, the fault that leaves it out and the table in the documents are one."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Set, Type, Union

Error = Union[Type[BaseException], str, Callable[[str], BaseException]]
"""A class of errors, its import path for one that only a framework has, or a function that makes one of a sentence."""

off: Set[str] = set()
"""The rules that the device does not follow; empty when it is right."""
watch: Optional[Callable[[str], None]] = None
"""Told the rule of every check that is passed, while someone records which these are."""

_ROWS: Dict[str, Refusal] = {}


@dataclass(frozen=True)
class Refusal:
    """A row: where ``when`` holds of the facts, the device raises ``error`` with the sentence."""

    rule: str
    """``<front end>.<what>``; the fault that leaves the check out is called ``off:<rule>``."""
    when: Callable[..., Any]
    error: Error
    sentence: Union[str, Callable[..., str]]
    """A format string over the facts, or a function of them."""

    def __call__(self, **facts: Any) -> None:
        """Raise the error where the rule refuses these facts."""
        if watch is not None:
            watch(self.rule)
        if self.when(**facts) and self.rule not in off:
            raise self.exception(**facts)

    def exception(self, **facts: Any) -> BaseException:
        """The error that tells of these facts."""
        sentence = self.sentence.format(**facts) if isinstance(self.sentence, str) else self.sentence(**facts)
        return self._kind()(sentence)

    def _kind(self) -> Callable[[str], BaseException]:
        if not isinstance(self.error, str):
            return self.error
        module, _, name = self.error.rpartition(".")
        kind: Callable[[str], BaseException] = getattr(importlib.import_module(module), name)
        return kind


def refuse(rule: str, *, when: Callable[..., Any], error: Error, sentence: Union[str, Callable[..., str]]) -> Refusal:
    """Add a row; a rule has one."""
    if rule in _ROWS:
        raise ValueError(f"the refusal {rule!r} is declared already; choose another name")
    _ROWS[rule] = Refusal(rule, when, error, sentence)
    return _ROWS[rule]


def rows(front_end: str) -> Dict[str, Refusal]:
    """The rows of a front end by rule, as far as they are imported."""
    return {rule: row for rule, row in _ROWS.items() if rule.startswith(f"{front_end}.")}
