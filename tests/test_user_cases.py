"""What went wrong for people who use software of this kind, and the tests that it does not here.

Each entry is one such report: what a user did and what the right product does. `CASES` is the
index; the tests that no other file has are below it.
"""

import ast
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from xclp_crypto import secure_hamming
from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.params import INSECURE_TEST_128
from xclp_crypto.protocols.hamming import BACKENDS
from xclp_crypto.protocols.hamming.paillier import Paillier
from xclp_crypto.protocols.hamming.paillier_packed import PaillierPacked
from xclp_crypto.rng import SeededRng
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.memory import require_memory

TESTS = Path(__file__).parent

CASES = {
    # Encoding and overflow
    "ten clients summed in 32-bit masked arithmetic and the total wrapped": [
        "crypto/test_fixed_point.py::test_user_case_10_clients_of_2_to_the_29_in_a_ring_of_2_to_the_32_are_refused",
        "crypto/test_fixed_point.py::test_an_overflow_names_client_place_limit_and_bits_but_not_the_value",
        "crypto/test_secure_sum.py::test_user_case_10_clients_of_2_to_the_29_modulo_2_to_the_32_are_refused_unsent",
    ],
    "decoding was right for two clients, wrong for more and after a drop": [
        "crypto/test_fixed_point.py::test_user_case_decoding_is_right_for_2_to_50_clients_and_after_a_drop",
        "crypto/test_secure_sum.py::test_user_case_decoding_is_right_for_2_to_50_clients_and_after_a_drop",
    ],
    "a clipping range of 0, -1, nan or inf failed late": [
        "crypto/test_fixed_point.py::test_user_case_a_bad_range_is_rejected_when_the_object_is_made_naming_the_value"
    ],
    "plain floats were shared as integers": [
        "crypto/test_fixed_point.py::test_user_case_plain_floats_0_0_and_5_1_survive_encoding_and_are_refused_without"
    ],
    "a sum of int32 inputs overflowed inside": [
        "crypto/test_fixed_point.py::test_user_case_a_sum_of_int32_inputs_10_000_times_700_000_does_not_overflow_inside",
        "crypto/test_secure_sum.py::test_user_case_a_sum_of_int32_inputs_10_000_times_700_000_does_not_overflow",
    ],
    "a value beyond the type's range was accepted silently": [
        "crypto/test_fixed_point.py::test_user_case_2_to_the_40_in_a_ring_of_2_to_the_32_is_refused"
    ],
    "overflow gave NaN for one value and a plausible number for its neighbour": [
        "crypto/test_fixed_point.py::test_user_case_overflow_is_always_the_same_typed_error_also_for_neighbours"
    ],
    "results became wrong above a certain precision": [
        "crypto/test_fixed_point.py::test_user_case_results_above_a_certain_precision_stay_within_the_documented_bound",
        "crypto/test_fixed_point.py::test_every_number_of_fraction_bits_from_8_to_40_up_to_the_largest_value",
    ],
    # Paillier
    "numpy integers and booleans were refused": [
        "crypto/test_paillier.py::test_user_case_numpy_integers_booleans_and_arrays_of_any_shape_are_accepted"
    ],
    "an exact integer was turned into a float on the way": [
        "crypto/test_paillier.py::test_user_case_an_integer_stays_exact_to_the_end"
    ],
    "a default key of 1024 bits shipped for years": [
        "crypto/test_paillier.py::test_user_case_the_default_is_3072_bits_and_smaller_keys_need_a_name_that_says_insecure",
        "crypto/test_hamming_paillier.py::test_user_case_keys_are_3072_bits_unless_a_set_that_says_insecure_is_named",
    ],
    "adding and multiplying ciphertexts does not re-randomise them": [
        "crypto/test_paillier.py::test_user_case_equal_inputs_never_give_equal_bytes",
        "crypto/test_coalitions.py::test_clients_together_see_the_same_whatever_the_distances_are",
    ],
    "public keys travelled as pickles": [
        "crypto/test_paillier.py::test_user_case_public_keys_are_bytes_with_a_version_and_never_pickles"
    ],
    "a key file could not be told apart, secret from public": [
        "crypto/test_paillier.py::test_user_case_secret_and_public_keys_cannot_be_confused"
    ],
    "5,000 numbers grew to 1.7 GB of ciphertext without warning": [
        "crypto/test_hamming_paillier.py::test_user_case_sizes_are_known_before_the_run_starts",
        "lp/test_cli_run.py::test_a_plan_of_sizes_alone",
    ],
    # Oblivious transfer
    "the hash left out the choice index, and with PK0 = PK1 both pads were equal": [
        "crypto/test_ot.py::test_equal_points_give_two_different_pads",
        "crypto/test_ot.py::test_what_is_bound_into_constant_and_pads",
    ],
    "points of small order, infinity, off-curve": [
        "crypto/test_group.py::test_user_case_points_off_the_curve_rfc_9496_invalid_encodings_are_refused",
        "crypto/test_group.py::test_user_case_the_point_at_infinity_is_refused_at_decode",
        "crypto/test_group.py::test_user_case_points_of_small_order_are_refused_at_decode",
    ],
    "an extension with an unproven consistency check was called malicious-secure": [
        "test_user_cases.py::test_user_case_claims_name_the_model_and_the_source",
        "crypto/test_ot_extension.py::test_every_single_inconsistent_column_is_caught_or_harmless",
    ],
    "a batch size just short of a multiple of 1024 failed now and then": [
        "crypto/contracts/transfers.py::test_the_receiver_gets_the_chosen_messages",
        "crypto/test_ot_extension.py::test_correlated_transfers_of_all_batch_sizes",
    ],
    "base transfers were reused by a second extension with the same tweaks": [
        "crypto/test_ot_extension.py::test_two_extensions_over_one_set_of_base_transfers_give_unrelated_bytes",
        "crypto/test_ot_extension.py::test_one_identifier_twice_over_one_set_of_base_transfers_is_refused",
    ],
    "messages that are not a whole block": [
        "crypto/contracts/transfers.py::test_messages_of_any_length",
        "crypto/contracts/transfers.py::test_messages_of_one_bit",
        "crypto/contracts/transfers.py::test_messages_of_a_wrong_shape_or_type_are_refused_before_anything_is_sent",
    ],
    # Secure sums
    "masks came from a generator seeded with 32 bits": [
        "crypto/test_prg.py::test_user_case_masks_are_uniform_chi_square_for_l_3_over_1e6_draws",
        "crypto/test_prg.py::test_weak_secrets_and_impossible_lengths_are_refused",
    ],
    "dropouts: below the threshold nothing, at or above it the exact sum": [
        "crypto/test_front.py::test_user_case_drop_each_client_at_each_stage_of_a_sum",
        "crypto/test_front.py::test_user_case_drop_each_client_at_each_stage_of_row_sums_the_result_names_it_and_when",
        "crypto/test_secure_sum.py::test_user_case_below_the_threshold_the_protocol_stops_and_reveals_nothing",
        "crypto/test_row_sums.py::test_user_case_a_client_cut_off_anywhere_gets_exactly_its_rows_when_it_comes_back",
    ],
    "a threshold was accepted and then ignored": [
        "crypto/test_front.py::test_user_case_a_threshold_is_enforced_and_nothing_is_revealed_below_it",
        "crypto/test_shamir.py::test_user_case_the_threshold_is_stored_with_the_shares_and_enforced",
        "crypto/test_shamir.py::test_user_case_t_above_n_and_duplicate_or_zero_indices_are_refused",
        "crypto/test_mask_graph.py::test_user_case_graphs_that_cannot_be_are_refused_t_above_n_among_them",
        "crypto/test_secure_sum.py::test_user_case_a_client_that_deals_a_wrong_share_is_named_by_its_holder",
        "crypto/test_secure_sum.py::test_user_case_a_client_that_reveals_a_wrong_share_is_named_by_the_server",
    ],
    "the server waited forever for a straggler": [
        "crypto/test_front.py::test_user_case_nobody_waits_for_a_straggler_and_the_result_names_it_and_when",
        "crypto/test_stream.py::test_a_silent_program_is_given_up_after_the_timeout",
    ],
    "one client only, or two": [
        "crypto/test_front.py::test_user_case_fewer_than_two_clients_are_refused",
        "crypto/test_front.py::test_user_case_two_clients_are_warned_and_three_are_not",
        "lp/test_estimator.py::test_fewer_than_two_clients_are_refused",
        "lp/test_estimator.py::test_two_clients_are_warned",
    ],
    "NaN or infinity poisoned the total": [
        "crypto/test_fixed_point.py::test_user_case_nan_or_infinity_is_refused_at_the_client_naming_row_and_column",
        "crypto/test_secure_sum.py::test_user_case_nan_infinity_and_overflow_are_refused_unsent_naming_row_and_column",
    ],
    "forked workers drew the same randomness": [
        "crypto/test_rng.py::test_user_case_a_pool_of_3_under_fork_draws_different_randomness"
    ],
    "a message above the transport's limit failed after minutes of work": [
        "crypto/test_secure_sum.py::test_user_case_messages_of_6_5_mb_are_summed",
        "crypto/test_secure_sum.py::test_user_case_a_3_gb_message_is_refused_early_with_advice",
        "crypto/test_secure_sum.py::test_user_case_a_message_too_long_is_refused_by_all_before_anything_is_sent",
        "crypto/test_row_sums.py::test_user_case_uploads_that_are_too_long_are_refused_by_all_early",
    ],
    # Label propagation
    "a component without labels came out as class 0, or NaN": [
        "test_user_cases.py::test_user_case_two_far_pairs_of_which_one_is_labelled",
        "lp/test_propagation.py::test_a_component_without_labels_has_no_prediction",
        "lp/test_estimator.py::test_a_component_without_labels_stays_unlabelled",
    ],
    "700,000 rows froze the machine": [
        "test_user_cases.py::test_user_case_700_000_rows_are_refused_with_advice",
        "lp/test_estimator.py::test_a_run_larger_than_the_memory_is_refused",
        "lp/test_columns.py::test_whatever_can_take_long_says_how_far_it_is",
    ],
    "self-loops differed from the paper": [
        "lp/test_graph.py::test_graph_is_that_of_the_definition",
        "lp/test_graph.py::test_self_takes_one_of_the_k_places",
    ],
    'string labels, and "-1" taken as a class': [
        "lp/test_label_types.py::test_marked_rows",
        "lp/test_estimator.py::test_labels_of_other_types",
    ],
    "labels beyond 2^53 became one class, and integers floats": [
        "lp/test_label_types.py::test_labels_keep_their_identity_whatever_holds_them",
        "lp/test_label_types.py::test_floats_that_could_be_several_of_the_integers_are_refused",
        "lp/test_dataframes.py::test_a_dtype_is_kept_where_it_holds_what_came_out",
    ],
    "the class -1 vanished, and classes that look alike were two": [
        "lp/test_estimator.py::test_numbers_that_may_mean_something_else_are_warned_of",
        "lp/test_estimator.py::test_a_single_class_is_certain",
        "lp/test_estimator.py::test_odd_classes_are_warned_of",
    ],
    "a column of booleans or of pandas' own numbers was refused without its name": [
        "lp/test_dataframes.py::test_booleans_numbers_and_nullable_numbers_are_features",
        "lp/test_dataframes.py::test_cells_that_are_not_numbers_are_named_by_row_and_column",
    ],
    "a client with no rows, no labels, or only labels": [
        "test_user_cases.py::test_user_case_clients_with_no_rows_no_labels_or_only_labels",
        "lp/test_estimator.py::test_a_client_without_rows",
        "lp/test_label_types.py::test_no_label_anywhere",
    ],
    "zero vectors have no angle": [
        "lp/test_estimator.py::test_zero_rows_are_named_and_stay_unlabelled",
        "lp/test_session.py::test_zero_rows_are_as_if_they_were_not_there",
    ],
    "the same seed gave other projections on another architecture": [
        "lp/test_lsh.py::test_projection_never_changes",
        "lp/test_lsh.py::test_bits_are_those_of_exact_arithmetic",
        "lp/test_session.py::test_other_projections_name_both_clients",
    ],
    "the order of rows changed the result through ties": [
        "lp/test_session.py::test_permuting_clients_and_rows_only_permutes_the_results",
        "lp/test_graph.py::test_permuting_points_only_permutes_the_graph",
    ],
    "XOR with a common mask leaves distances unchanged": [
        "test_user_cases.py::test_user_case_a_common_mask_leaves_the_distances_of_every_back_end_unchanged",
        "crypto/test_hamming.py::test_a_common_mask_leaves_distances_unchanged",
    ],
    # Primitives that were imported
    "a NumPy generator, which repeats itself, made the keys": [
        "crypto/test_rng.py::test_user_case_no_primitive_takes_a_generator_that_repeats_itself",
    ],
    "a randomiser of 0 or a multiple of p hid nothing": [
        "crypto/test_paillier.py::test_user_case_without_h_no_randomiser_is_0_or_a_multiple_of_p",
    ],
    "products of arrays of ciphertexts were wrong without an error": [
        "crypto/test_paillier.py::test_user_case_products_and_sums_of_numpy_are_right",
        "crypto/test_paillier.py::test_user_case_whatever_else_numpy_does_with_numbers_is_refused",
    ],
    "transfers, triples or batches of another sid gave garbage": [
        "crypto/test_ot_extension.py::test_user_case_an_extension_of_another_sid_or_another_batch_is_a_typed_error",
        "crypto/test_boolean.py::test_user_case_triples_dealt_under_another_sid_or_number_are_refused",
        "crypto/test_stream.py::test_user_case_transfers_of_another_sid_are_an_error_in_both_programs",
    ],
    "a bit plane was read as numbers, or shares of another type were computed with": [
        "crypto/test_boolean.py::test_user_case_arguments_that_would_give_garbage_are_refused",
    ],
    "one side alone learned which parameters differ, or 1 differed from NumPy's 1": [
        "crypto/test_stream.py::test_user_case_both_programs_learn_which_parameters_differ",
        "crypto/test_setup.py::test_user_case_numbers_of_numpy_are_those_of_python_to_agree_on",
    ],
    "row sums of large integers were rounded to floats": [
        "crypto/test_front.py::test_user_case_row_sums_without_fraction_bits_are_exact_integers",
    ],
    "layers, state dicts and packed bits were refused without saying what to do": [
        "crypto/test_front.py::test_user_case_layers_and_state_dicts_are_refused_with_advice",
        "crypto/test_front.py::test_user_case_packed_bits_are_refused_with_advice_that_works",
    ],
    "a message could not be defined again in a notebook": [
        "crypto/test_wire.py::test_user_case_a_message_can_be_defined_again_but_no_other_one_takes_its_tag",
    ],
}
"""By what went wrong, the tests that it cannot happen here, as pytest names them below `tests`."""


@cache
def names_of(path):
    """Return the names of the tests of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_tests_and_they_exist(case):
    assert CASES[case]
    for test in CASES[case]:
        file, name = test.split("::")
        assert name in names_of(TESTS / file), test


def test_every_test_of_a_user_case_is_in_the_index():
    indexed = {test for tests in CASES.values() for test in tests}
    found = {
        f"{path.relative_to(TESTS)}::{name}"
        for path in TESTS.rglob("test_*.py")
        for name in names_of(path)
        if name.startswith("test_user_case_")
    }
    assert found <= indexed


# Those that belong to no other file


def test_user_case_claims_name_the_model_and_the_source():
    """Nothing is called malicious-secure; where a module speaks of malice it names its source."""
    root = TESTS.parent
    texts = {
        path: path.read_text(encoding="utf-8")
        for pattern in ("README.md", "docs/**/*.md", "xclp_*/**/*.py")
        for path in root.glob(pattern)
    }
    assert len(texts) > 60
    for path, text in texts.items():
        assert not re.search(r"malicious(ly)?[- ]secur", text, re.IGNORECASE), path
    for family in ("ot", "hamming"):
        for path in (root / "xclp_crypto" / "protocols" / family).glob("*.py"):
            doc = ast.get_docstring(ast.parse(texts[path])) or ""
            if "malicious" in doc.lower():
                assert re.search(r"ePrint \d{4}/\d+", doc), path
                assert "semi-honest" in doc, path
    for name, backend in BACKENDS.items():
        assert backend.trust in ("2pc", "non-colluding", "none"), name


def test_user_case_two_far_pairs_of_which_one_is_labelled():
    near, far = [[1.0, 0.0], [1.0, 0.0]], [[-1.0, 0.0], [-1.0, 0.0]]
    xclp = CrossClientLabelPropagation(n_bits=64, k=1, random_state=0, hamming="masked")
    with pytest.warns(UserWarning, match="all labels are of one class, 5"):
        xclp.fit([near[:1] + far[:1], near[1:] + far[1:], near[:1]], [[5, -1], [-1, -1], [-1]])
    assert [labels.tolist() for labels in xclp.transduction_] == [[5, -1], [5, -1], [5]]
    for j, confidence in enumerate(xclp.confidence_[:2]):
        assert confidence[1] == 0
        assert np.isfinite(xclp.label_distributions_[j]).all()


def test_user_case_700_000_rows_are_refused_with_advice():
    sizes = {"a": 350_000, "b": 350_000}
    with pytest.raises(ParameterError, match=r"700,000 rows .* GB.* fewer rows, or split the cl"):
        require_memory(sizes, 4096, "masked")


def test_user_case_clients_with_no_rows_no_labels_or_only_labels():
    rng = np.random.default_rng(0)
    centres = np.eye(3)[:2] * 9
    codes = [np.array([0, 1]), np.array([], int), np.array([0, 0, 1]), np.array([1, 0, 1, 0])]
    Xs = [centres[c] + rng.normal(size=(len(c), 3)) for c in codes]
    ys = [codes[0], codes[1], np.full(3, -1), np.array([1, -1, -1, -1])]
    settings = {"n_bits": 512, "k": 3, "random_state": 0, "hamming": "masked"}
    found = CrossClientLabelPropagation(**settings).fit(Xs, ys)
    assert [t.tolist() for t in found.transduction_] == [c.tolist() for c in codes]
    with pytest.raises(DataError, match="label"):
        CrossClientLabelPropagation(**settings).fit(Xs, [np.full(len(c), -1) for c in codes])


@pytest.mark.parametrize("name", BACKENDS)
def test_user_case_a_common_mask_leaves_the_distances_of_every_back_end_unchanged(name):
    short = {"paillier": Paillier, "paillier-packed": PaillierPacked}
    backend = short[name](INSECURE_TEST_128) if name in short else BACKENDS[name]
    rng = np.random.default_rng(3)
    bits = [rng.integers(0, 2, (n, 9)) for n in (2, 1, 3)]
    mask = rng.integers(0, 2, 9)
    one, _ = secure_hamming(bits, backend=backend, rng=SeededRng(1))
    other, _ = secure_hamming([b ^ mask for b in bits], backend=backend, rng=SeededRng(2))
    assert np.array_equal(one, other)
    assert one.max() > 0
