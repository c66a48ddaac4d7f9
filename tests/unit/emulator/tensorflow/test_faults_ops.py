"""Each fault of feeds, loops, compilation, collectives, optimizers and pipelines is noticed by a case."""

from __future__ import annotations

from ipu_conformance.emulator.faults.tensorflow import ops
from tests.unit.emulator.killing import assert_all_killed, registered

INFEED, OUTFEED, LOOPS, COMPILER = (f"test_{name}_ipu.py" for name in ("infeed", "outfeed", "loops", "compiler"))
SCOPES, COLLECTIVES, OPTIMIZERS = (f"test_{name}_ipu.py" for name in ("scopes", "collectives", "optimizers"))
PIPELINES, GRAPH = "test_pipelining_ops_ipu.py", "test_graph_mode_ipu.py"
NEIGHBOURS = f"{INFEED}::test_replicas_take_neighbouring_elements[function-1-2]"
KILLING = {
    "infeed-shapes-unchecked": f"{INFEED}::test_a_batch_that_may_be_smaller_is_refused[2]",
    "infeed-initialised-again": f"{INFEED}::test_the_initialiser_is_given_once",
    "infeed-reversed": NEIGHBOURS,
    "infeed-shared": NEIGHBOURS,
    "outfeed-enqueued-twice": f"{OUTFEED}::test_an_outfeed_is_enqueued_once[function]",
    "outfeed-keeps-all": f"{OUTFEED}::test_last_gives_the_last_enqueue[function-3-1]",
    "outfeed-halved": f"{OUTFEED}::test_all_gives_every_enqueue[function-1-1]",
    "outfeed-replicas-reversed": f"{OUTFEED}::test_all_gives_every_enqueue[function-1-2]",
    "outfeed-not-drained": f"{OUTFEED}::test_dequeue_drains[function-1]",
    "loop-one-less": f"{LOOPS}::test_repeat_runs_so_many_times[function-5]",
    "loop-partial-accumulation": f"{OPTIMIZERS}::test_a_loop_holds_whole_accumulations[function-4]",
    "graph-one-replica": f"{GRAPH}::test_replicas_keep_their_own_values",
    "graph-last-result": f"{LOOPS}::test_while_loop_is_fed[graph-2]",
    "graph-host-ignored": f"{GRAPH}::test_the_host_writes_to_all_replicas",
    "graph-variables-again": f"{GRAPH}::test_layers_that_a_program_makes_are_made_once[2]",
    "compiled-for-the-host": f"{COMPILER}::test_what_is_not_for_an_ipu_is_refused",
    "shards-on-one-ipu": f"{SCOPES}::test_shards_take_ipus_from_replicas[function-4-shards1-2]",
    "collective-mean-for-sum": f"{COLLECTIVES}::test_replicas_reduce[function-cross_replica_sum-sum-2-None]",
    "collective-sum-for-mean": f"{COLLECTIVES}::test_replicas_reduce[function-cross_replica_mean-mean-2-None]",
    "collective-groups-ignored": f"{COLLECTIVES}::test_replicas_reduce[function-cross_replica_sum-sum-4-2]",
    "collective-gathered-backwards": f"{COLLECTIVES}::test_all_gather_stacks[function-2]",
    "collective-received-backwards": f"{COLLECTIVES}::test_all_to_all_transposes[function]",
    "collective-any-number": f"{COLLECTIVES}::test_another_number_of_replicas_is_refused[function-all_gather]",
    "collective-first-piece": f"{COLLECTIVES}::test_reduce_scatter_leaves_pieces[function-COLLECTIVE_OP_LOCAL-None]",
    "collective-piece-backwards": f"{COLLECTIVES}::test_reduce_scatter_leaves_pieces[function-COLLECTIVE_OP_ADD-sum]",
    "replicas-all-first": f"{COLLECTIVES}::test_replicas_are_numbered[function]",
    "optimizer-sums-replicas": f"{OPTIMIZERS}::test_cross_replica_takes_the_mean[function-2]",
    "optimizer-replicas-alone": f"{OPTIMIZERS}::test_cross_replica_takes_the_mean[function-2]",
    "accumulation-skipped": f"{OPTIMIZERS}::test_a_loop_holds_whole_accumulations[function-4]",
    "accumulation-last-only": f"{OPTIMIZERS}::test_gradients_are_accumulated[function-2-SUM]",
    "accumulation-always-sum": f"{OPTIMIZERS}::test_gradients_are_accumulated[function-2-MEAN]",
    "accumulation-always-mean": f"{OPTIMIZERS}::test_gradients_are_accumulated[function-2-SUM]",
    "gradients-not-mapped": f"{OPTIMIZERS}::test_gradients_are_mapped[function-MapGradientOptimizer]",
    "pipeline-any-count": f"{PIPELINES}::test_a_count_that_does_not_fit_fails_when_it_runs[function-Grouped-True-6-4]",
    "pipeline-gradient-doubled": f"{PIPELINES}::test_a_run_updates_once[function-1-Grouped]",
    "pipeline-runs-once-less": f"{PIPELINES}::test_a_run_updates_once[function-1-Grouped]",
    "pipeline-outfeed-not-summed": f"{PIPELINES}::test_an_accumulated_outfeed_holds_sums[function-1]",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each of these faults."""
    own = {fault.name for fault in registered("tensorflow") if fault.wrong.__module__ == ops.__name__}

    assert own == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    assert_all_killed(KILLING, "tensorflow")
