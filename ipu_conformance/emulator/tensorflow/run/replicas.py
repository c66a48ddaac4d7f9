"""Runs one Python function once per replica while a graph is built, so that all replicas become one graph.

The replicas are threads that take turns: only one runs at a time, and it hands over nowhere but where replicas meet. At
run time there are no threads: what is left of them is the part of the graph that each has built. The same works in
eager mode, where the operations are executed at once.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ipu_conformance.errors import ConformanceError


class ReplicaError(ConformanceError):
    """Replicas cannot meet where one of them waits for the others."""


class _ThreadState(threading.local):
    """The replica that this thread runs, and whether what it builds has asked for its number."""

    replica: Optional[_Replica] = None
    asked: bool = False


_thread_state = _ThreadState()


def current() -> int:
    """The number of the replica that is being built; 0 outside of replicas, where the host sees replica 0."""
    _thread_state.asked = True
    return holding()


def holding() -> int:
    """The same, to choose among values that replicas hold: what is built may still be alike on all of them."""
    return 0 if _thread_state.replica is None else _thread_state.replica.number


def is_alike(build: Callable[[], Any]) -> Tuple[Any, bool]:
    """What ``build`` returns, and whether it never asked for the number of its replica."""
    before, _thread_state.asked = _thread_state.asked, False
    try:
        return build(), not _thread_state.asked
    finally:
        _thread_state.asked = _thread_state.asked or before


def count() -> int:
    """How many replicas are being built together; 1 outside of replicas."""
    return 1 if _thread_state.replica is None else _thread_state.replica.count


def inside() -> bool:
    """Is this thread building one of several replicas, or the only one that ``run`` was asked for?"""
    return _thread_state.replica is not None


def run(function: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> List[Any]:
    """``function(*arguments[replica])`` of every replica, in one graph; the results by replica.

    The function is called in threads that enter the graph, the scopes and the devices of the caller. An exception in
    one replica ends all, and is raised here.
    """
    if hasattr(function, "python_function"):
        function = _inlined(function)
    context = _BuildContext.of_caller()
    team = [_Replica(number, len(arguments), function, own, context) for number, own in enumerate(arguments)]
    try:
        while True:
            for replica in team:
                replica.take_turn()
            waiting = [replica for replica in team if replica.request is not None]
            if not waiting:
                return [replica.result for replica in team]
            _meet(team, waiting)
    finally:
        for replica in team:
            replica.dismiss()


def by_replica(values: Sequence[Any], lengths: Sequence[int]) -> List[List[Any]]:
    """The values of each replica, from those of all one after the other."""
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    return [list(values[start : start + length]) for start, length in zip(starts, lengths)]


class Request(NamedTuple):
    """What a replica brings to where all meet."""

    what: str
    value: Any
    combine: Callable[[List[Any]], Sequence[Any]]


def exchange(value: Any, combine: Callable[[List[Any]], Sequence[Any]], what: str) -> Any:
    """This replica's part of ``combine([value of every replica])``: the one place where replicas hand over.

    ``combine`` is called once, in the thread and the graph of the caller of ``run``, outside of replicas: it may call
    ``run`` again, for instance inside the body of a loop that all replicas share. Outside of replicas it gets the one
    value. Gradients do not pass: see ``collectives``.
    """
    replica = _thread_state.replica
    if replica is None:
        return combine([value])[0]
    return replica.ask(Request(what, value, combine))


def _meet(team: Sequence[_Replica], waiting: Sequence[_Replica]) -> None:
    """Answer the requests of all replicas, which must be of one kind."""
    requests = [replica.request for replica in team if replica.request is not None]
    if len(waiting) < len(team):
        missing = next(replica.number for replica in team if replica.request is None)
        raise ReplicaError(
            f"replica {waiting[0].number} waits in {requests[0].what} and replica {missing} has ended without it: "
            "every replica must run the same program"
        )
    if len({request.what for request in requests}) > 1:
        names = ", ".join(request.what for request in requests)
        raise ReplicaError(f"replicas meet in different operations ({names}): every replica must run the same program")
    from tensorflow.python.eager import record

    with record.stop_recording():
        answers = requests[0].combine([request.value for request in requests])
    for replica, answer in zip(team, answers):
        replica.answer = answer


class _Dismissed(BaseException):
    """Unwinds the thread of a replica that is no longer needed."""


class _Replica:
    """A thread with a turn: it runs between ``take_turn`` and the next meeting, its end or its error."""

    def __init__(
        self,
        number: int,
        replicas: int,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        context: _BuildContext,
    ) -> None:
        self.number = number
        self.count = replicas
        self.request: Optional[Request] = None
        self.answer: Any = None
        self.result: Any = None
        self._error: Optional[BaseException] = None
        self._dismissed = False
        self._done = False
        self._function, self._arguments, self._context = function, arguments, context
        self._go, self._paused = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._live, name=f"replica-{number}", daemon=True)
        self._thread.start()

    def take_turn(self) -> None:
        """Run the thread to its next meeting or its end; called by the thread that owns the team."""
        if self._done:
            return
        self.request = None
        self._hand_over()
        if self._error is not None:
            raise self._error

    def dismiss(self) -> None:
        """End the thread, wherever it waits."""
        self._dismissed = True
        if not self._done:
            self._hand_over()
        self._thread.join()

    def _hand_over(self) -> None:
        self._paused.clear()
        self._go.set()
        self._paused.wait()

    def ask(self, request: Request) -> Any:
        """Wait until every replica has come; called by the replica's own thread."""
        self._context.check_graph(request.what)
        self.request = request
        self._wait()
        answer, self.answer = self.answer, None
        return answer

    def _wait(self) -> None:
        self._paused.set()
        self._go.wait()
        self._go.clear()
        if self._dismissed:
            raise _Dismissed

    def _live(self) -> None:
        self._go.wait()
        self._go.clear()
        _thread_state.replica = self
        try:
            if not self._dismissed:
                with self._context.entered(self.number):
                    self.result = self._function(*self._arguments)
        except _Dismissed:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._done = True
            self._paused.set()


class _BuildContext:
    """What a thread of its own must enter to stand where the caller stands: graph, scopes, devices, conversion."""

    def __init__(self) -> None:
        from tensorflow.python.autograph.core import ag_ctx
        from tensorflow.python.eager import context
        from tensorflow.python.framework import ops
        from tensorflow.python.ops import variable_scope

        self.eager = context.executing_eagerly()
        self.graph = ops.get_default_graph()
        with ops.init_scope():
            self.outer_eager = context.executing_eagerly()
            self.outer_graph = ops.get_default_graph()
            self.outer_creators = list(self.outer_graph._variable_creator_stack)
        self.device = context.context().device_name if self.eager else None
        self.creators = list(self.graph._variable_creator_stack)
        self.strategies = list(self.graph._distribution_strategy_stack)
        self.name_scope = self.graph.get_name_scope()
        self.conversion = ag_ctx.control_status_ctx()
        self.variable_scope = None if self.eager else variable_scope.get_variable_scope()
        self.names = dict(variable_scope.get_variable_scope_store().variable_scopes_count)
        if not self.eager:
            # A graph of TensorFlow 1 shares its stacks among threads until it is told otherwise.
            self.graph.switch_to_thread_local()
            self.devices = self.graph._device_function_stack.copy()
            self.dependencies = list(self.graph._control_dependencies_stack)

    @classmethod
    def of_caller(cls) -> _BuildContext:
        """Those of the thread that calls."""
        return cls()

    def check_graph(self, what: str) -> None:
        """Replicas meet in the graph that all of them are built in, and in no inner one."""
        from tensorflow.python.framework import ops

        if not self.eager and ops.get_default_graph() is not self.graph:
            raise ReplicaError(
                f"{what} was called inside a loop, a condition or a tf.function of one replica, where the others "
                "cannot be met: call it outside, or repeat with loops.repeat"
            )

    @contextlib.contextmanager
    def entered(self, replica: int) -> Iterator[None]:
        """The thread builds where the caller was building; names of later replicas end in their number."""
        from tensorflow.python.autograph.core import ag_ctx
        from tensorflow.python.framework import ops
        from tensorflow.python.ops import variable_scope

        from ipu_conformance.emulator.tensorflow.run import variables  # it needs this module

        with contextlib.ExitStack() as stack:
            stack.enter_context(_graph_entered(self.outer_graph, self.outer_eager, self.outer_creators))
            stack.enter_context(variables.scope())
            stack.enter_context(_graph_entered(self.graph, self.eager, self.creators))
            stack.enter_context(variables.scope())
            self.graph._distribution_strategy_stack = list(self.strategies)
            status = self.conversion
            stack.enter_context(ag_ctx.ControlStatusCtx(status=status.status, options=status.options))
            if self.eager:
                if self.device:
                    stack.enter_context(ops.device(self.device))
            else:
                self.graph._device_function_stack = self.devices.copy()
                self.graph._control_dependencies_stack = list(self.dependencies)
                name = f"{self.name_scope}/" if self.name_scope else ""
                stack.enter_context(ops.name_scope_v1(f"{name}replica_{replica}/" if replica else name or None))
                stack.enter_context(variable_scope.variable_scope(self.variable_scope, reuse=True if replica else None))
                # A thread of its own counts the names of layers on from where the caller is.
                variable_scope.get_variable_scope_store().variable_scopes_count = dict(self.names)
            yield


@contextlib.contextmanager
def _graph_entered(graph: Any, eager: bool, creators: List[Any]) -> Iterator[None]:
    from tensorflow.python.eager import context

    with context.eager_mode() if eager else graph.as_default():
        before = graph._variable_creator_stack
        graph._variable_creator_stack = list(creators)
        try:
            yield
        finally:
            graph._variable_creator_stack = before


def _inlined(function: Any) -> Callable[..., Any]:
    """The Python function of a ``tf.function``: replicas could not meet inside a graph of its own."""
    from tensorflow.python.autograph.core import ag_ctx
    from tensorflow.python.autograph.impl import api

    converted: Callable[..., Any] = api.tf_convert(function.python_function, ag_ctx.control_status_ctx(), True)
    return converted
