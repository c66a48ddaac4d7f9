"""The vendor's part of TensorFlow's compiler, as far as programs name it."""
