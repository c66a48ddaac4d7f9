"""``ipu-conformance ir``: show, diff, draw, convert and run IR graphs."""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ipu_conformance import ir
from ipu_conformance.atomic_write import replacing
from ipu_conformance.ir.tensor import shape_text
from ipu_conformance.ir.writers import dot
from ipu_conformance.text_table import text_table

READABLE = [name for name, row in ir.FORMATS.items() if row.load]
STDIO = "-"
# Both are written here, too: a command that only reads a graph imports neither NumPy nor an engine.
ENGINES = ("oracle", "onnxruntime")
SCHEDULES = ("grouped", "interleaved", "sequential")
SHOWN = 10
"""How many differences of a group are listed."""
GROUPS: Mapping[str, Tuple[str, ...]] = {
    "structure": ("graph", "missing", "extra", "type", "wiring"),
    "placement": ("placement",),
    "attributes": ("attribute", "tensor", "values"),
    "names": ("name",),
}
"""The kinds of differences, by what a reader asks first."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the five subcommands."""
    actions = parser.add_subparsers(metavar="action", required=True)
    show = _action(actions, "show", _show, "count the ops per type, IPU and stage, and list them")
    show.add_argument("file", metavar="FILE", help=f"a graph, one of {', '.join(READABLE)}; - reads standard input")
    show.add_argument("--json", action="store_true", help="print the same as JSON")
    diff = _action(actions, "diff", _diff, "say how FOUND differs from EXPECTED; exit with 1 when it does")
    diff.add_argument("expected", metavar="EXPECTED")
    diff.add_argument("found", metavar="FOUND")
    diff.add_argument("--structural", action="store_true", help="ignore names")
    diff.add_argument(
        "--normal", action="store_true", help="compare what is computed: ignore names, placement and ways of writing"
    )
    diff.add_argument("--all", action="store_true", help=f"list every difference, not {SHOWN} of each group")
    draw = _action(actions, "draw", _draw, "draw the graph with a box around each IPU and stage")
    draw.add_argument("file", metavar="FILE")
    draw.add_argument("-o", "--output", metavar="OUT", required=True, help="a .dot or, with Graphviz, an .svg file")
    draw.add_argument("--stages", action="store_true", help="draw a box a stage, with what passes between them")
    convert = _action(actions, "convert", _convert, "write the graph in another format")
    convert.add_argument("file", metavar="IN")
    convert.add_argument("output", metavar="OUT", help="the extension tells the format; - writes to standard output")
    convert.add_argument("--to", metavar="FORMAT", help=f"one of {', '.join(ir.FORMATS)}")
    execute = _action(actions, "run", _run, "execute the graph on arrays, and print or write what it computes")
    execute.add_argument("file", metavar="DUMP")
    execute.add_argument(
        "--inputs",
        metavar="FILE.npz",
        required=True,
        help="an array for every input, and for every weight whose values the dump lacks; axes in front of the "
        "declared ones count micro-batches: updates, or updates, turns of an update and replicas",
    )
    execute.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="what computes (default: %(default)s)")
    execute.add_argument("--schedule", choices=SCHEDULES, default="grouped", help="how a pipeline is filled")
    execute.add_argument("--fetch", metavar="TENSOR", action="append", default=[], help="a value to return besides")
    execute.add_argument("-o", "--output", metavar="OUT.npz", help="write outputs and, after a training, variables")


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
    expected, found = _read(args, args.expected), _read(args, args.found)
    if args.normal:
        expected, found = (ir.normal(each, turn_inputs=True, unplaced=True) for each in (expected, found))
    differences = ir.diff(expected, found, structural=args.structural or args.normal)
    print("\n".join(_verdict(differences, SHOWN if not args.all else len(differences))))
    return 1 if differences else 0


def _verdict(differences: Sequence[ir.Difference], shown: int) -> List[str]:
    """What two graphs differ in: the verdict, then structure, placement, attributes and names, some of each."""
    if not differences:
        return ["The graphs are the same."]
    groups = {group: [str(each) for each in differences if each.kind in kinds] for group, kinds in GROUPS.items()}
    counted = ", ".join(f"{len(found)} in {group}" for group, found in groups.items() if found)
    lines = [f"The graphs differ: {counted}."]
    for group, found in groups.items():
        lines += [f"{group}:"] * bool(found) + [f"  {sentence}" for sentence in found[:shown]]
        if len(found) > shown:
            lines.append(f"  and {len(found) - shown} more; --all lists them")
    return lines


def _draw(args: argparse.Namespace) -> int:
    drawn = [name for name, row in ir.FORMATS.items() if row.load is None]
    if ir.format_of(args.output) not in drawn:
        raise ir.IRError(f"{args.output} is not a drawing; give a .dot or .svg file, or use convert")
    graph = _read(args, args.file)
    if not args.stages:
        ir.write(graph, args.output)
        return 0
    drawing = dot.dump_stages(graph)
    picture = dot.svg(drawing) if ir.format_of(args.output) == "svg" else drawing
    try:
        with replacing(args.output) as part:
            part.write_bytes(picture)
    except OSError as error:
        raise ir.IRError(f"{args.output} cannot be written: {error.strerror or error}") from None
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


def _run(args: argparse.Namespace) -> int:
    import numpy as np

    from ipu_conformance import interpreter

    target = _archive(args.output) if args.output is not None else None
    inputs = _arrays(args.inputs)
    graph = _read(args, args.file)
    with np.errstate(all="ignore"):  # NaN and infinity are results, which the table shows
        outcome = interpreter.execute(graph, inputs, engine=args.engine, schedule=args.schedule, fetches=args.fetch)
    changed = {name: outcome.variables[0][name] for name in outcome.changed}
    if target is not None:
        _save(target, {**changed, **outcome.outputs})
    rows: List[Tuple[str, ...]] = [("what", "tensor", "shape", "mean", "smallest", "largest")]
    for what, values in (("output", outcome.outputs), ("variable", changed)):
        for name, value in values.items():
            statistics = (np.mean, np.min, np.max)
            numbers = [f"{float(each(value)):.9g}" if np.size(value) else "-" for each in statistics]
            rows.append((what, _plain(name), shape_text(np.shape(value)), *numbers))
    print("\n".join(text_table(rows)))
    return 0


def _arrays(path: str) -> Dict[str, Any]:
    """The arrays of an archive of NumPy's, by name."""
    import numpy as np

    try:
        with open(path, "rb") as stream:  # numpy leaves a file open that turns out to be no archive
            held = np.load(stream, allow_pickle=False)
            if not hasattr(held, "files"):
                raise ir.IRError(f"{path} holds one array without a name; write an archive with numpy.savez")
            return {name: held[name] for name in held.files}
    except OSError as error:
        raise ir.IRError(f"{path} cannot be read as arrays: {error.strerror or error}") from error
    except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ir.IRError(f"{path} cannot be read as arrays: {error}; write it with numpy.savez") from error


def _archive(path: str) -> Path:
    """The file that an archive goes to: as NumPy does, ``.npz`` is added where it is missing."""
    target = Path(path if path.endswith(".npz") else path + ".npz")
    if path in ("", STDIO) or Path(path).is_dir() or not target.parent.is_dir():
        raise ir.IRError(f"{path!r} cannot be written; -o takes a file, OUT.npz, in a folder that exists")
    return target


def _save(target: Path, values: Mapping[str, Any]) -> None:
    """Write the whole archive or nothing; numpy.savez cannot, and has no place for a tensor named ``file``."""
    import numpy as np

    try:
        with replacing(target) as part, zipfile.ZipFile(part, "w") as archive:
            for name, value in values.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asanyarray(value), allow_pickle=False)
    except OSError as error:
        raise ir.IRError(f"{target} cannot be written: {error.strerror or error}") from None


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
