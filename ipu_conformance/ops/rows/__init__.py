"""The rows of the op table, a module a family."""
