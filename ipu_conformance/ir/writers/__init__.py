"""Writers of graphs: ONNX, and drawings."""
