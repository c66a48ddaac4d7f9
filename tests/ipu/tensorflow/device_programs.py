"""Runs one program on the device in both ways that TensorFlow has: in a function of a strategy, and in a session.

A program is a Python function on the vendor's API. Variables, feeds and results look the same to a case either way.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, Sequence

import numpy as np

MODES = ("function", "graph")


class Device:
    """A configured device, and one of the two ways to run programs on it."""

    def __init__(self, tf: Any, ipu: Any, configure: Callable[..., Any], mode: str) -> None:
        self.tf, self.ipu, self.mode = tf, ipu, mode
        self._configure = configure
        self._stack = contextlib.ExitStack()
        self._to_initialise: List[Any] = []
        self._variables: Dict[str, Any] = {}
        self._opened = False

    def open(self, ipus: int = 1, **attributes: Any) -> Device:
        """Configure ``ipus`` IPUs, and attributes by their full names, and get ready to build programs."""
        self._configure(ipus, **attributes)
        if self.mode == "graph":
            self._stack.enter_context(self.tf.Graph().as_default())
            self.session = self._stack.enter_context(self.tf.compat.v1.Session())
        else:
            self.strategy = self.ipu.ipu_strategy.IPUStrategy()
        return self

    def close(self) -> None:
        """End the session."""
        self._stack.close()

    def infeed(self, values: Any) -> Any:
        """An infeed of the rows of an array, or of a structure of arrays."""
        queue = self.ipu.ipu_infeed_queue.IPUInfeedQueue(self.tf.data.Dataset.from_tensor_slices(values))
        if self.mode == "graph":
            self._to_initialise.append(queue.initializer)
        return queue

    def outfeed(self, last: bool = False) -> Any:
        """An outfeed of all that is enqueued, or of the last."""
        modes = self.ipu.ipu_outfeed_queue.IPUOutfeedMode
        return self.ipu.ipu_outfeed_queue.IPUOutfeedQueue(modes.LAST if last else modes.ALL)

    def variable(self, name: str, value: Any) -> Any:
        """The variable of that name, created on first use; in a graph it is on the device."""
        v1 = self.tf.compat.v1
        if self.mode == "graph":
            value = np.float32(value)
            with v1.variable_scope("", reuse=v1.AUTO_REUSE, use_resource=True):
                self._variables[name] = v1.get_variable(name, value.shape, initializer=v1.constant_initializer(value))
        elif name not in self._variables:
            with self.tf.init_scope(), self.strategy.scope():
                self._variables[name] = self.tf.Variable(np.float32(value), name=name)
        return self._variables[name]

    def declare(self, **values: Any) -> None:
        """Make variables for a function that uses them; a graph makes its own inside the program."""
        if self.mode == "function":
            for name, value in values.items():
                self.variable(name, value)

    def compile(self, program: Callable[[], Any]) -> Callable[[], List[np.ndarray]]:
        """A function that runs the program on the device and returns the tensors that the program returns."""
        if self.mode == "graph":
            with self.ipu.scopes.ipu_scope("/device:IPU:0"):
                result = self.ipu.ipu_compiler.compile(program)
            self.session.run(self.tf.compat.v1.global_variables_initializer())
            for operation in self._to_initialise:
                self.session.run(operation)
            return lambda: self.session.run(result)

        @self.tf.function
        def function() -> Any:
            returned = program()
            listed = returned if isinstance(returned, (list, tuple)) else [returned]
            return [item for item in listed if self.tf.is_tensor(item)]

        return lambda: [value.numpy() for value in self.strategy.run(function)]

    def run(self, program: Callable[[], Any]) -> List[np.ndarray]:
        """Compile a program and run it once."""
        return self.compile(program)()

    def repeat(self, steps: int, body: Callable[..., Any], queue: Any = None, values: Sequence[Any] = ()) -> Any:
        """Run a loop of ``steps`` iterations on the device; its body gets the values and what an infeed gives."""
        return self.run(lambda: self.ipu.loops.repeat(steps, body, list(values), queue))

    def outfed(self, steps: int, body: Callable[..., Any], fed: Any = None, last: bool = False) -> Any:
        """What a loop of ``steps`` iterations outfeeds whose body's results are enqueued."""
        queue, out = None if fed is None else self.infeed(fed), self.outfeed(last)
        self.repeat(steps, lambda *elements: out.enqueue(body(*elements)), queue)
        return self.dequeue(out)

    def pipe(self, stages: Sequence[Any], count: int, fed: Any, last: bool = False, **settings: Any) -> Any:
        """What a pipeline of so many micro-batches outfeeds."""
        settings.update(infeed_queue=self.infeed(fed), outfeed_queue=self.outfeed(last))
        self.run(lambda: self.ipu.pipelining_ops.pipeline(stages, count, **settings))
        return self.dequeue(settings["outfeed_queue"])

    def dequeue(self, queue: Any) -> Any:
        """What the host gets from an outfeed."""
        taken = queue.dequeue()
        if self.mode == "graph":
            return self.session.run(taken)
        return self.tf.nest.map_structure(lambda value: value.numpy(), taken)

    def read(self, names: Sequence[str]) -> List[np.ndarray]:
        """The values of variables."""
        if self.mode == "graph":
            return list(self.session.run([self._variables[name] for name in names]))
        return [self._variables[name].numpy() for name in names]

    def assign(self, name: str, value: Any) -> None:
        """Write a variable from the host."""
        if self.mode == "graph":
            self.session.run(self._variables[name].assign(value))
        else:
            self._variables[name].assign(value)
