"""Each fault of the numerical operations and the Keras layers is noticed by a case."""

from __future__ import annotations

from ..killing import assert_all_killed, registered

NORM, NN = "test_normalization_ops_ipu.py::test_", "test_nn_ops_ipu.py::test_"
DROPOUT, RNN = "test_dropout_ops_ipu.py::test_", "test_rnn_ops_ipu.py::test_"
IMAGE, LAYERS = "test_image_ops_ipu.py::test_", "test_layers_ops_ipu.py::test_"

KILLING = {
    "numerical-grouping-otherwise": NORM + "group_norm_is_as_specified[NHWC-strided-float16]",
    "numerical-groups-of-any-size": NORM + "groups_divide_the_channels[5]",
    "numerical-instances-together": NORM + "instance_norm_is_as_specified[NCHW-float16]",
    "numerical-layers-in-two": NORM + "layer_norm_is_as_specified[rows-float16]",
    "numerical-epsilon-lost": NORM + "group_norm_is_as_specified[rows-neighbouring-float32]",
    "numerical-variance-for-deviation": LAYERS + "norms_are_as_specified[strided-float16]",
    "numerical-always-trained": NORM + "parameters_need_not_be_trained",
    "numerical-gelu-otherwise": NN + "activations_are_as_specified[gelu-float32]",
    "numerical-swish-steeper": NN + "activations_are_as_specified[swish-float16]",
    "numerical-hard-sigmoid-of-a-sixth": NN + "activations_are_as_specified[hard_sigmoid-float16]",
    "numerical-softmax-overflows": NN + "a_stable_softmax_does_not_overflow[stable]",
    "numerical-pieces-reversed": LAYERS + "a_dense_layer_in_pieces_is_as_specified[rows-kernel_rows]",
    "numerical-piece-lost": NN + "a_product_in_pieces_is_the_product[transposed-a_rows_b_columns]",
    "numerical-segment-added": NN + "segments_are_summed",
    "numerical-ctc-all-steps": NN + "the_loss_of_logits_is_as_specified[0]",
    "numerical-ctc-other-blank": NN + "the_loss_of_logits_is_as_specified[2]",
    "numerical-ctc-softmax-twice": NN + "the_loss_of_log_probabilities_is_as_specified[1]",
    "numerical-beam-last-blank": NN + "a_wide_beam_finds_the_best_paths[0]",
    "numerical-worst-path": LAYERS + "the_best_path_is_predicted",
    "numerical-half-dropped": DROPOUT + "dropout_drops_at_its_rate[0.5-float32]",
    "numerical-kept-not-scaled": DROPOUT + "the_gradient_has_the_same_mask",
    "numerical-pair-ignored": DROPOUT + "a_seed_decides_what_is_dropped",
    "numerical-noise-everywhere": DROPOUT + "noise_of_size_one_drops_a_whole_axis[noise0]",
    "numerical-dropout-in-inference": LAYERS + "dropout_is_for_training[False]",
    "numerical-lstm-gates-swapped": RNN + "lstm_is_as_specified[PopnnLSTM-float16]",
    "numerical-gru-keeps-the-candidate": RNN + "gru_is_as_specified[before-float16]",
    "numerical-attention-reversed": RNN + "attention_weakens_the_update_gate",
    "numerical-padding-kept": RNN + "a_dynamic_gru_ends_at_its_lengths[batch]",
    "numerical-image-not-scaled": IMAGE + "an_image_is_normalised_and_padded[image-float16]",
    "numerical-image-not-moved": IMAGE + "an_image_is_normalised_and_padded[image-uint8]",
    "numerical-image-not-padded": IMAGE + "an_image_is_normalised_and_padded[batch-float32]",
    "numerical-histogram-signed": IMAGE + "values_are_counted_between_levels[True-expected1]",
    "numerical-histogram-below": IMAGE + "values_are_counted_between_levels[False-expected0]",
    "numerical-histogram-begun-anew": IMAGE + "a_histogram_is_added_to",
    "numerical-unused-rows-otherwise": IMAGE + "sequences_are_copied[kept]",
    "numerical-mark-doubles": LAYERS + "marks_change_no_value[RecomputationCheckpoint]",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of the numerical operations."""
    own = {fault.name for fault in registered("tensorflow") if fault.name.startswith("numerical-")}

    assert own == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    assert_all_killed(KILLING, "tensorflow")
