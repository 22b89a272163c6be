"""The 76 known pitfalls of batch scripts for multi-node training, and the tests that hold jobgen to each of them.

What a pitfall needs is in the test it names. One that only a cluster can show names a test of tests/cluster as well.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT, SITE, PARTITION, READ = "targets/test_slurm_pitfalls.py", "schedulers/test_slurm.py", "schedulers/test_slurm_partition.py", "spec/test_read.py"
RUN, SUBMIT = "cluster/test_slurm_run.py", "cluster/test_slurm_submit.py"

ELSEWHERE: dict[int, tuple[tuple[str, str], ...]] = {
    5: ((READ, "test_a_trap_is_explained_at_its_line"),),
    6: ((READ, "test_a_trap_is_explained_at_its_line"),),
    7: ((SITE, "test_slurms_variables_of_the_shell_reach_no_client"), (SUBMIT, "test_the_submitters_slurm_variables_change_nothing")),
    9: ((SITE, "test_the_log_folder_is_made_and_the_receipt_says_all_that_is_needed"), (SUBMIT, "test_the_log_folder_is_made")),
    12: ((SITE, "test_sbatchs_remarks_are_passed_on"), (SUBMIT, "test_what_sbatch_refuses_is_refused_in_its_own_words_and_leaves_nothing")),
    13: (
        (PARTITION, "test_a_job_that_would_wait_for_ever_is_refused_with_the_numbers_and_the_smallest_change"),
        (SUBMIT, "test_what_sbatch_takes_and_no_partition_starts_is_refused_before"),
    ),
    18: ((RUN, "test_every_launcher_joins_two_nodes_in_one_world"),),
    22: ((RUN, "test_every_rank_knows_its_place"),),
    23: ((RUN, "test_every_rank_knows_its_place"),),
    24: ((RUN, "test_every_rank_knows_its_place"),),
    26: ((RUN, "test_two_jobs_on_one_node_have_ports_of_their_own"),),
    27: ((RUN, "test_a_killed_rank_ends_the_job_which_goes_on_from_the_last_checkpoint"), (RUN, "test_a_rank_that_hangs_at_its_end_does_not_hold_the_job")),
    28: ((RUN, "test_preparation_once_copies_everywhere_and_finish_after_success_only"),),
    31: ((SITE, "test_slurms_variables_of_the_shell_reach_no_client"), (SUBMIT, "test_submission_from_inside_a_job")),
    32: ((RUN, "test_the_submitters_shell_decides_nothing"),),
    33: ((RUN, "test_the_submitters_shell_decides_nothing"),),
    34: ((RUN, "test_hostile_arguments_and_variables_arrive_unchanged_on_every_rank"),),
    39: ((RUN, "test_every_launcher_joins_two_nodes_in_one_world"),),
    40: ((RUN, "test_every_launcher_joins_two_nodes_in_one_world"),),
    44: ((RUN, "test_a_small_limit_of_locked_memory_is_raised_and_warned_of"),),
    49: ((RUN, "test_apptainer_on_two_nodes_gets_binds_and_variables"),),
    52: ((RUN, "test_pyxis_gets_the_image_the_mounts_and_the_variables"),),
    55: ((RUN, "test_apptainer_on_two_nodes_gets_binds_and_variables"),),
    56: ((RUN, "test_a_preempted_job_saves_leaves_and_goes_on_where_it_was"),),
    57: ((RUN, "test_a_preempted_job_saves_leaves_and_goes_on_where_it_was"),),
    58: ((RUN, "test_a_late_signal_does_not_undo_success"),),
    59: ((RUN, "test_preemption_of_which_the_batch_shell_is_not_told"),),
    60: ((RUN, "test_a_preempted_job_saves_leaves_and_goes_on_where_it_was"),),
    61: ((RUN, "test_torchrun_training_outlives_its_time_limit"), (RUN, "test_a_program_that_hears_nothing_is_ended_in_time_and_goes_on")),
    62: (
        (PARTITION, "test_restarts_where_preemption_cancels_are_a_warning_with_the_follow_up"),
        (SUBMIT, "test_a_follow_up_goes_on_where_a_cancelled_job_was_preempted"),
    ),
    63: ((RUN, "test_restarts_are_capped"), (RUN, "test_a_job_that_fails_at_once_is_not_started_again")),
    65: ((RUN, "test_torchrun_training_outlives_its_time_limit"),),
    66: ((RUN, "test_the_chosen_signal_arrives_before_the_limit_and_the_job_goes_on"),),
    67: ((RUN, "test_what_waits_for_a_failed_job_does_not_wait_for_ever"),),
    69: (
        (SITE, "test_the_log_folder_is_made_and_the_receipt_says_all_that_is_needed"),
        (SUBMIT, "test_render_piped_into_sbatch_and_submit_run_the_same_thing_on_every_rank"),
    ),
    70: ((SITE, "test_the_log_folder_is_made_and_the_receipt_says_all_that_is_needed"), (SCRIPT, "test_57_the_batch_shell_gets_the_signal_and_the_launcher_ignores_it")),
    71: ((RUN, "test_torchrun_training_outlives_its_time_limit"),),
    73: ((SITE, "test_the_log_folder_is_made_and_the_receipt_says_all_that_is_needed"),),
    74: ((SITE, "test_without_accounting_a_jobs_log_tells_its_end"), (SITE, "test_an_accounting_that_is_away_decides_nothing")),
    75: ((SITE, "test_a_job_id_that_comes_again_brings_nothing_of_the_old_run"),),
}
"""Beside ``test_NN_...`` of tests/targets/test_slurm_pitfalls.py, which shows pitfall NN."""


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


def numbers(name: str) -> list[int]:
    """``test_60_61_a_signalled`` shows 60 and 61."""
    found = []
    for part in name.split("_")[1:]:
        if not part.isdigit():
            break
        found.append(int(part))
    return found


@pytest.mark.parametrize("number", range(1, 77))
def test_every_pitfall_has_a_test(number):
    named = [(SCRIPT, name) for name in functions_of(SCRIPT) if number in numbers(name)]
    found = [*named, *ELSEWHERE.get(number, ())]
    assert found
    for file, name in found:
        assert name in functions_of(file), f"{file} has no {name}"


def test_no_other_number_is_claimed():
    claimed = {number for name in functions_of(SCRIPT) for number in numbers(name)} | set(ELSEWHERE)
    assert claimed == set(range(1, 77))
