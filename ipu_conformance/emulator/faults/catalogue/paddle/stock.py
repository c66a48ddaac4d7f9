"""Ways for the classes that Paddle itself brings for the IPU to be wrong; the emulator stands behind them.

A build whose Python layer is broken fails its programs as surely as one with a broken device.
"""

from __future__ import annotations

from typing import Any, Callable

from ipu_conformance.emulator.faults.catalogue import Fault, always, patch, register, result

STRATEGY = "stock.paddle.base.compiler:IpuStrategy"
COMPILED = "stock.paddle.base.compiler:IpuCompiledProgram"
Original = Callable[..., Any]


@patch("paddle-recompile-not-asked-for", "plan", f"{STRATEGY}.set_options", "an option that is set asks for no compile")
def _settled(original: Original, strategy: Any, options: Any) -> None:
    before = strategy.need_compile
    original(strategy, options)
    strategy.need_compile = before


@patch("paddle-strategy-born-settled", "plan", f"{STRATEGY}.__init__", "a new strategy asks for no compile")
def _born_settled(original: Original, strategy: Any) -> None:
    original(strategy)
    strategy.need_compile = False


@patch("paddle-custom-ops-backwards", "plan", f"{STRATEGY}.add_custom_op", "custom ops are remembered from the last on")
def _backwards(original: Original, strategy: Any, *arguments: Any, **settings: Any) -> None:
    original(strategy, *arguments, **settings)
    strategy.custom_op_names.insert(0, strategy.custom_op_names.pop())


@patch("paddle-anything-is-a-program", "plan", f"{COMPILED}.__init__", "what is no Program is compiled as the main one")
def _anything(original: Original, compiled: Any, program: Any = None, *arguments: Any, **settings: Any) -> None:
    try:
        original(compiled, program, *arguments, **settings)
    except TypeError:
        original(compiled, None, *arguments, **settings)


@patch("paddle-scope-of-its-own", "plan", f"{COMPILED}.__init__", "a program has a scope of its own by default")
def _own_scope(original: Original, compiled: Any, program: Any = None, scope: Any = None, **settings: Any) -> None:
    from paddle import static

    original(compiled, program, static.Scope() if scope is None else scope, **settings)


@patch("paddle-release-settles", "plan", f"{STRATEGY}.release_patch", "a strategy without patches asks for no compile")
def _released(original: Original, strategy: Any) -> None:
    original(strategy)
    strategy.need_compile = False


@patch(
    "paddle-unknown-names-ignored", "plan", f"{COMPILED}.compile", "feeds and fetches that do not exist are left out"
)
def _known_alone(original: Original, compiled: Any, feed_list: Any, fetch_list: Any) -> Any:
    block = compiled._program.global_block()
    known = [
        [each for each in names if block.has_var(each if isinstance(each, str) else each.name)]
        for names in (feed_list, fetch_list)
    ]
    return original(compiled, *known)


def _compiled(change: Callable[[Any, Any], None]) -> Callable[..., Any]:
    """A compilation after which ``change(given, compiled)`` has been done to the two programs."""

    def wrong(original: Original, compiled: Any, feed_list: Any, fetch_list: Any) -> Any:
        program = original(compiled, feed_list, fetch_list)
        change(compiled._program, program)
        return program

    return wrong


def _of_another(given: Any, program: Any) -> None:
    program.org_program = given.clone()


def _without_its_end(given: Any, program: Any) -> None:
    given.global_block()._remove_op(len(given.global_block().ops) - 1)


def _unstripped(given: Any, program: Any) -> None:
    given.global_block().create_var(name="feed", persistable=True)


def _other_scheduler(given: Any, program: Any) -> None:
    program.lr_scheduler = None


for _name, _what, _change in (
    ("paddle-origin-is-a-copy", "a compiled program says that it was made of another one", _of_another),
    ("paddle-given-program-cut", "compiling takes the last op from the given program", _without_its_end),
    ("paddle-feeds-not-stripped", "the given program keeps the variable of its feeds", _unstripped),
    ("paddle-scheduler-replaced", "a compiled program has a scheduler that is nobody's", _other_scheduler),
):
    register(Fault(_name, "plan", f"{COMPILED}.compile", _what, _compiled(_change)), __name__)

register(
    Fault("paddle-optimizer-in-static-mode", "plan", f"{STRATEGY}.set_optimizer",
          "an optimizer is accepted in static mode, and in no other", always(None)), __name__
)  # fmt: skip


@patch("paddle-any-reduction", "reduce", "stock.paddle.incubate:identity_loss", "an unknown reduction is a sum")
def _any_reduction(original: Original, x: Any, reduction: Any = "none") -> Any:
    known = ("none", "mean", "sum", 0, 1, 2)
    return original(x, reduction if reduction in known else "sum")


register(
    Fault("paddle-loaded-feeds-repeated", "weights", "stock.paddle.static:load_inference_model",
          "a loaded model names its feeds twice",
          result(lambda loaded: [loaded[0], [*loaded[1], *loaded[1]], *loaded[2:]])), __name__
)  # fmt: skip
