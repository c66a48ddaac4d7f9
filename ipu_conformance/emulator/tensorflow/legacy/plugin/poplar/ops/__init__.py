"""Operations of the vendor's part of TensorFlow."""
