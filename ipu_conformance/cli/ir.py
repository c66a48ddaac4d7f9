"""``ipu-conformance ir``: show, diff, draw and convert IR graphs."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from typing import Any, Callable, Dict, Iterable, List, Optional

from ipu_conformance import ir
from ipu_conformance.ir.tensor import shape_text
from ipu_conformance.text_table import text_table

READABLE = [name for name, row in ir.FORMATS.items() if row.load]
STDIO = "-"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the four subcommands."""
    actions = parser.add_subparsers(metavar="action", required=True)
    show = _action(actions, "show", _show, "count the ops per type, IPU and stage, and list them")
    show.add_argument("file", metavar="FILE", help=f"a graph, one of {', '.join(READABLE)}; - reads standard input")
    show.add_argument("--json", action="store_true", help="print the same as JSON")
    diff = _action(actions, "diff", _diff, "say how FOUND differs from EXPECTED; exit with 1 when it does")
    diff.add_argument("expected", metavar="EXPECTED")
    diff.add_argument("found", metavar="FOUND")
    diff.add_argument("--structural", action="store_true", help="ignore names")
    draw = _action(actions, "draw", _draw, "draw the graph with a box around each IPU and stage")
    draw.add_argument("file", metavar="FILE")
    draw.add_argument("-o", "--output", metavar="OUT", required=True, help="a .dot or, with Graphviz, an .svg file")
    convert = _action(actions, "convert", _convert, "write the graph in another format")
    convert.add_argument("file", metavar="IN")
    convert.add_argument("output", metavar="OUT", help="the extension tells the format; - writes to standard output")
    convert.add_argument("--to", metavar="FORMAT", help=f"one of {', '.join(ir.FORMATS)}")


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    code: int = args.action(args)
    return code


def _action(
    actions: Any, name: str, function: Callable[[argparse.Namespace], int], help_text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=help_text, description=help_text[0].upper() + help_text[1:] + "."
    )
    parser.add_argument("--from", dest="source_format", metavar="FORMAT", help=f"one of {', '.join(READABLE)}")
    parser.add_argument(
        "--limit", type=int, metavar="BYTES", default=ir.DEFAULT_LIMIT, help="the largest file (default: %(default)s)"
    )
    parser.set_defaults(action=function)
    return parser


def _read(args: argparse.Namespace, path: str) -> ir.Graph:
    source = sys.stdin.buffer.read(args.limit + 1) if path == STDIO else path
    return ir.read(source, args.source_format, limit=args.limit)


def _show(args: argparse.Namespace) -> int:
    graph = _read(args, args.file)
    if args.json:
        print(json.dumps(_summary(graph), indent=1))
    else:
        print("\n".join(_table(graph)))
    return 0


def _diff(args: argparse.Namespace) -> int:
    if args.expected == args.found == STDIO:
        raise ir.IRError("both graphs are to be read from standard input; give one of them as a file")
    differences = ir.diff(_read(args, args.expected), _read(args, args.found), structural=args.structural)
    for difference in differences:
        print(difference)
    return 1 if differences else 0


def _draw(args: argparse.Namespace) -> int:
    drawn = [name for name, row in ir.FORMATS.items() if row.load is None]
    if ir.format_of(args.output) not in drawn:
        raise ir.IRError(f"{args.output} is not a drawing; give a .dot or .svg file, or use convert")
    ir.write(_read(args, args.file), args.output)
    return 0


def _convert(args: argparse.Namespace) -> int:
    if args.output != STDIO:
        target = args.to or ir.format_of(args.output)
        ir.write(_read(args, args.file), args.output, target)
        return 0
    if args.to is None:
        raise ir.IRError(f"standard output has no extension; name the format with --to, one of {', '.join(ir.FORMATS)}")
    sys.stdout.buffer.write(ir.dumps(_read(args, args.file), args.to))
    return 0


def _summary(graph: ir.Graph) -> Dict[str, Any]:
    sizes = [tensor.nbytes for tensor in graph.weights]
    return {
        "name": graph.name,
        "opset": graph.opset,
        "inputs": [_tensor(graph, name) for name in graph.inputs],
        "outputs": [_tensor(graph, name) for name in graph.outputs],
        "weights": len(sizes),
        "weight_bytes": None if None in sizes else sum(size or 0 for size in sizes),
        "ops": len(graph.ops),
        "types": _counts(op.type for op in graph.ops),
        "ipus": _counts(op.ipu for op in graph.ops),
        "stages": _counts(op.stage for op in graph.ops),
        "op_list": [
            {
                "type": op.type,
                "name": op.name,
                "ipu": op.ipu,
                "stage": op.stage,
                "inputs": op.inputs,
                "outputs": [_tensor(graph, name) for name in op.outputs if name],
            }
            for op in graph.ops
        ],
    }


def _tensor(graph: ir.Graph, name: str) -> Dict[str, Any]:
    tensor = graph.tensors[name]
    return {"name": name, "dtype": tensor.dtype, "shape": tensor.shape}


def _counts(keys: Iterable[Optional[object]]) -> Dict[str, int]:
    """How often each key occurs, the most frequent type or the lowest number first; "none" stands for no placement."""
    counted = Counter(keys)
    order = sorted(
        counted.items(),
        key=lambda item: (item[0] is None, item[0] if isinstance(item[0], int) else -item[1], str(item[0])),
    )
    return {"none" if key is None else str(key): count for key, count in order}


def _table(graph: ir.Graph) -> List[str]:
    summary = _summary(graph)
    size = "unknown size" if summary["weight_bytes"] is None else f"{summary['weight_bytes']:,} bytes"
    lines = [f"graph {_plain(graph.name)}: {len(graph.ops)} ops, opset {graph.opset}"]
    for what, names in (("input", graph.inputs), ("output", graph.outputs)):
        lines += [f"{what:<8}{_plain(name)}  {_described(graph, name)}" for name in names]
    lines.append(f"weights {summary['weights']}, {size}")
    for what in ("types", "ipus", "stages"):
        lines.append(f"{what:<8}" + (", ".join(f"{_plain(k)} {count}" for k, count in summary[what].items()) or "none"))
    rows = [("IPU", "stage", "type", "name", "outputs")]
    for op in graph.ops:
        outputs = ", ".join(f"{_plain(name)} {_described(graph, name)}" for name in op.outputs if name)
        rows.append((_index(op.ipu), _index(op.stage), _plain(op.type), _plain(op.name), outputs))
    return [*lines, "", *text_table(rows)]


def _described(graph: ir.Graph, name: str) -> str:
    return f"{graph.tensors[name].dtype} {shape_text(graph.tensors[name].shape)}"


def _index(value: Optional[int]) -> str:
    return "-" if value is None else str(value)


def _plain(text: str) -> str:
    """Text that cannot move the cursor or break the table: what is not printable is shown escaped."""
    return text if text.isprintable() else repr(text)
