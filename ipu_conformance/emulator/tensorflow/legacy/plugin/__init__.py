"""``tensorflow.compiler.plugin``: what programs import of the modules that the vendor's build generates."""
