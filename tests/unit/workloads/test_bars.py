"""Bars are drawn on a terminal and stay out of logs."""

import io
import sys

import pytest

from ipu_conformance.workloads.bars import bar, say


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "title", "drawn"), [
    (Terminal, "Epoch 1/3", True),
    (io.StringIO, "Epoch 1/3", False),
    (Terminal, "", False),
], ids=["terminal", "log", "untitled"])  # fmt: skip
def test_a_bar_is_drawn_for_who_looks(monkeypatch, stream, title, drawn):
    """What it goes over comes through all the same."""
    said = stream()
    monkeypatch.setattr(sys, "stderr", said)

    assert list(bar(iter([5, 7, 9]), title=title, total=3, unit="batch")) == [5, 7, 9]
    assert ("Epoch 1/3: 100%" in said.getvalue()) == drawn
    assert bool(said.getvalue()) == drawn


def test_a_bar_is_moved_on_by_hand(monkeypatch):
    """Up to its total."""
    said = Terminal()
    monkeypatch.setattr(sys, "stderr", said)
    with bar(title="Training", total=4, unit="step") as progress:
        progress.update(4)

    assert "4/4" in said.getvalue()


def test_a_line_stands_alone_above_the_bar(monkeypatch):
    """On a terminal, which stdout and stderr share; the bar is drawn again below it."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    with bar(title="Training", total=4, unit="step") as progress:
        progress.update(2)
        say("Step 2/4, loss 2.5")
        progress.update(2)

    shown = [line.rpartition("\r")[2] for line in terminal.getvalue().split("\n")]
    assert "Step 2/4, loss 2.5" in shown


def test_in_a_log_a_line_is_a_line(monkeypatch, capsys):
    """Nothing is added to it."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with bar(title="Training", total=4, unit="step"):
        say("Step 2/4, loss 2.5")

    assert capsys.readouterr().out == "Step 2/4, loss 2.5\n"
