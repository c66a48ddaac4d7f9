"""``tensorflow.compiler.plugin``: programs of SDK 1.x import the operation that hands out a trace of events from it."""
