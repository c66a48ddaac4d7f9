"""What a program gets that imports gradients to register them: here operations have theirs from the beginning."""
