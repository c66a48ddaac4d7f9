"""What exports for serving are refused for."""

from __future__ import annotations

from ipu_conformance.emulator.faults import refuse

FOLDER = refuse(
    "tensorflow.export-folder",
    when=lambda folder, held: held,
    error=ValueError,
    sentence='Directory "{folder}" is not empty. Please specify an empty directory, or set purge_export_dir.',
)
TWO_SIGNATURES = refuse(
    "tensorflow.export-two-signatures",
    when=lambda name, signature, dataset: signature is not None and dataset is not None,
    error=ValueError,
    sentence="Both `{name}_signature` and `input_dataset` cannot be provided: pass only one of them.",
)
DATASET = refuse(
    "tensorflow.export-dataset",
    when=lambda dataset, kind: dataset is not None and not isinstance(dataset, kind),
    error=TypeError,
    sentence="`input_dataset` is {dataset!r}: if it is provided, it should be an instance of tf.Dataset.",
)
SIGNATURE_KIND = refuse(
    "tensorflow.export-signature-kind",
    when=lambda name, signature, kind: not isinstance(signature, (list, tuple))
    or not all(isinstance(spec, kind) for spec in signature),
    error=TypeError,
    sentence="`{name}` must be a tuple or list of instances of TensorSpec, but it is {signature!r}.",
)
NO_SIGNATURE = refuse(
    "tensorflow.export-no-signature",
    when=lambda step, signature: signature is None,
    error=ValueError,
    sentence="The input signature of {step} is not known: make it a tf.function with `input_signature`, or give its "
    "signature or an `input_dataset`.",
)
SIGNATURE_LENGTH = refuse(
    "tensorflow.export-signature-length",
    when=lambda step, signature, names: len(signature) != len(names),
    error=ValueError,
    sentence="Length of input_signature does not match the number of {step} arguments: {signature!r} for {names}.",
)
STEPS_MISMATCH = refuse(
    "tensorflow.export-steps-mismatch",
    when=lambda name, reader, made, wanted: made != wanted,
    error=ValueError,
    sentence="What `{name}` returns does not match the signature of `{reader}`: {made} where {wanted} is needed.",
)
NAMES_KIND = refuse(
    "tensorflow.export-names-kind",
    when=lambda names: names is not None and not isinstance(names, list),
    error=TypeError,
    sentence="output_names must be either a string or a list, but it is {names!r}.",
)
OUTPUT_NAMES = refuse(
    "tensorflow.export-output-names",
    when=lambda names, outputs: names and len(names) != outputs,
    error=ValueError,
    sentence="Length of output_names does not match the number of results: {names} for {outputs}.",
)
NOT_OF_A_STRATEGY = refuse(
    "tensorflow.export-model-of-the-host",
    when=lambda model: not hasattr(model, "export_for_ipu_serving"),
    error=ValueError,
    sentence="Provided model was not created inside an IPU strategy: build it in the scope of one.",
)
BATCH_SIZE = refuse(
    "tensorflow.export-batch-size",
    when=lambda batch, sizes: batch is None and None in sizes,
    error=ValueError,
    sentence="The model has no batch size: give `batch_size`, or build the model with one.",
)
NOT_BUILT = refuse(
    "tensorflow.export-not-built",
    when=lambda inputs: not inputs,
    error=ValueError,
    sentence="The inputs of the model are not known: build it, or call it, before it is exported.",
)
