"""Every op of the table on every framework that has it, with its edges."""
