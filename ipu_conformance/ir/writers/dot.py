"""DOT and SVG: a drawing of the graph with a box around each IPU and each stage on it, or of its stages alone."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from typing import Dict, List, Optional, Tuple

from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import IRError, Tensor, shape_text

DOT_SECONDS = 120
"""Graphviz takes very long for graphs of many thousand ops; then the DOT file is the better thing to have."""

MAX_PASSED, MAX_TYPES = 6, 8
"""How many tensors an arrow between stages names, and how many types of ops a stage lists."""

_COPY = "IpuCopy"
_Place = Tuple[Optional[int], Optional[int]]


def dump(graph: Graph) -> bytes:
    """The graph in the DOT language."""
    lines = [
        f"digraph {quoted(graph.name)} {{",
        '  graph [rankdir=TB, fontname="Helvetica", labeljust=l];',
        '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="Helvetica", fontsize=11];',
        '  edge [fontname="Helvetica", fontsize=9];',
    ]
    lines += _ops(graph)
    sources: Dict[str, str] = {}
    for index, name in enumerate(graph.inputs):
        sources[name] = f"in{index}"
        lines.append(f"  in{index} [shape=ellipse, label={_tensor_label('input', graph.tensors[name])}];")
    for index, name in enumerate(sorted(graph.initializers)):
        sources[name] = f"w{index}"
        lines.append(f"  w{index} [shape=note, style=filled, label={_tensor_label('weight', graph.tensors[name])}];")
    for index, op in enumerate(graph.ops):
        sources.update((name, f"op{index}") for name in op.outputs if name)
    for index, op in enumerate(graph.ops):
        lines += [_edge(sources[name], f"op{index}", graph.tensors[name]) for name in op.inputs if name]
    for index, name in enumerate(graph.outputs):
        lines.append(f"  out{index} [shape=ellipse, label={quoted(f'output{chr(10)}{name}')}];")
        lines.append(_edge(sources[name], f"out{index}", graph.tensors[name]))
    return "\n".join([*lines, "}", ""]).encode("utf-8")


def dump_stages(graph: Graph) -> bytes:
    """A box for each stage, by IPU, with its ops counted, and arrows for what passes from one to another.

    A solid arrow is a copy to another IPU and names what is copied; a dashed one counts what an IPU keeps for a later
    stage of its own.
    """
    counts: Dict[_Place, Counter[str]] = {}
    made: Dict[str, _Place] = {}
    copies: Dict[str, _Place] = {}
    passed: Dict[Tuple[_Place, _Place], List[str]] = {}
    for op in graph.ops:
        place = (op.ipu, op.stage)
        counts.setdefault(place, Counter())[op.type] += 1
        for name in dict.fromkeys(op.inputs):
            if made.get(name, place) != place:
                passed.setdefault((made[name], place), []).append(name)
            if name in copies:  # from its first reader on, a copy is on the reader's IPU
                made[name] = place
                del copies[name]
        made.update(dict.fromkeys(filter(None, op.outputs), place))
        if op.type == _COPY:
            copies.update(dict.fromkeys(op.outputs, place))
    numbers = {place: f"box{number}" for number, place in enumerate(sorted(counts, key=_by_stage))}
    lines = [
        f"digraph {quoted(graph.name)} {{",
        '  graph [rankdir=LR, newrank=true, fontname="Helvetica", labeljust=l, nodesep=0.6, ranksep=1.2];',
        '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="Helvetica", fontsize=11];',
        '  edge [fontname="Helvetica", fontsize=9];',
    ]
    for ipu in sorted({ipu for ipu, _ in counts}, key=_none_first):
        inside = [
            f"{numbers[place]} [label={_stage_label(place, counts[place])}];" for place in numbers if place[0] == ipu
        ]
        if ipu is not None:
            inside.insert(0, 'margin=24; style="rounded,filled"; fillcolor="gray95";')
        lines += ["  " + line for line in _cluster(f"ipu{ipu}", f"IPU {ipu}", ipu is not None, inside)]
    for (source, target), names in passed.items():
        each = [f"{name} {shape_text(graph.tensors[name].shape)}" for name in dict.fromkeys(names)]
        if source[0] == target[0]:
            label, look = f"{len(each)} kept", ", style=dashed, color=gray40, fontcolor=gray40"
        else:
            shown, rest = each[:MAX_PASSED], len(each) - MAX_PASSED
            label, look = "\n".join([*shown, *([f"and {rest} more"] if rest > 0 else [])]), ""
        lines.append(f"  {numbers[source]} -> {numbers[target]} [label={quoted(label)}{look}];")
    return "\n".join([*lines, "}", ""]).encode("utf-8")


def dump_svg(graph: Graph) -> bytes:
    """The drawing as SVG, made by Graphviz."""
    return svg(dump(graph))


def svg(drawing: bytes) -> bytes:
    """What Graphviz makes of a drawing in the DOT language."""
    program = shutil.which("dot")
    if program is None:
        raise IRError(
            "drawing SVG needs the program dot of Graphviz on the PATH; install graphviz with the system's package "
            "manager, or draw to a .dot file"
        )
    try:
        done = subprocess.run([program, "-Tsvg"], input=drawing, capture_output=True, timeout=DOT_SECONDS)
    except subprocess.TimeoutExpired:
        raise IRError(f"{program} took more than {DOT_SECONDS} seconds; draw to a .dot file instead") from None
    except OSError as error:
        raise IRError(f"{program} cannot be run: {error.strerror}") from None
    if done.returncode != 0 or not done.stdout:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[:200]
        raise IRError(f"{program} failed with exit code {done.returncode}: {said or 'it said nothing'}")
    return done.stdout


def quoted(text: str) -> str:
    """Text as a DOT string that is drawn exactly as it is given; what cannot be drawn is shown as its code."""
    out = []
    for character in text:
        if character in '"\\':
            out.append("\\" + character)
        elif character == "&":
            out.append("&amp;")  # Graphviz reads HTML entities in every label
        elif character == "\n":
            out.append("\\n")
        elif character.isprintable():
            out.append(character)
        else:
            out.append(f"U+{ord(character):04X}")
    return f'"{"".join(out)}"'


def _ops(graph: Graph) -> List[str]:
    places: Dict[_Place, List[str]] = {}
    for index, op in enumerate(graph.ops):
        places.setdefault((op.ipu, op.stage), []).append(f"op{index} [label={_op_label(op)}];")
    lines: List[str] = []
    for ipu in sorted({ipu for ipu, _ in places}, key=_none_first):
        stages = sorted((stage for where, stage in places if where == ipu), key=_none_first)
        inside: List[str] = []
        for stage in stages:
            inside += _cluster(f"ipu{ipu}_stage{stage}", f"stage {stage}", stage is not None, places[ipu, stage])
        lines += _cluster(f"ipu{ipu}", f"IPU {ipu}", ipu is not None, inside)
    return ["  " + line for line in lines]


def _cluster(name: str, label: str, boxed: bool, lines: List[str]) -> List[str]:
    if not boxed:
        return lines
    return [f"subgraph cluster_{name} {{", f'  label="{label}";', *("  " + line for line in lines), "}"]


def _by_stage(place: _Place) -> Tuple[int, int]:
    return _none_first(place[1]), _none_first(place[0])


def _stage_label(place: _Place, counts: Counter[str]) -> str:
    """The number of a stage, and its ops by type, the most frequent first."""
    _, stage = place
    title = f"stage {stage}" if stage is not None else "in no stage"
    ranked = counts.most_common()
    rest = sum(count for _, count in ranked[MAX_TYPES:])
    rows = [f"{count} {type}" for type, count in ranked[:MAX_TYPES]] + [f"{rest} others"] * bool(rest)
    return quoted("\n".join([f"{title}, {sum(counts.values())} ops", *rows]))


def _none_first(index: Optional[int]) -> int:
    return -1 if index is None else index


def _op_label(op: Op) -> str:
    return quoted(f"{op.type}\n{op.name}" if op.name else op.type)


def _tensor_label(what: str, tensor: Tensor) -> str:
    return quoted(f"{what}\n{tensor.name}\n{tensor.dtype} {shape_text(tensor.shape)}")


def _edge(source: str, target: str, tensor: Tensor) -> str:
    return f"  {source} -> {target} [label={quoted(f'{tensor.dtype} {shape_text(tensor.shape)}')}];"
