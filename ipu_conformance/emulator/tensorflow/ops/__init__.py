"""Operations that the vendor offers as functions and as Keras layers."""
