"""Facts about torchrun: workers, restarts, several launchers of one job, with and without Slurm."""

import os
import secrets
import shutil

from case import HERE, TPROF, LauncherCase
from cluster import Cluster

# The facts use options with underscores, which every version of torchrun accepts.
PYTHON = os.environ.get("TPROF_TEST_PYTHON") or shutil.which("python3")
TORCHRUN = f"{PYTHON} -m torch.distributed.run"
TRAIN = f"{HERE}/train.py"


class Torchrun(LauncherCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if os.system(f"{PYTHON} -c 'import torch.distributed' 2>/dev/null") != 0:
            raise RuntimeError(f"{PYTHON} has no torch: set TPROF_TEST_PYTHON")

    # Much code is loaded at once, so on a busy machine some stacks are cut and counted as losses.
    def assert_complete(self, report):
        # A CUDA build of torch starts it with an empty environment.
        blind = [one["process"] for one in report["completeness"]["blind"]]
        self.assertEqual([process for process in blind if not process.endswith(" ldconfig")], [])

    # `restarts` lists (rank, number of restarts).
    def assert_workers(self, count, restarts=()):
        report = self.report()
        labels = sorted(rank["label"] for rank in report["ranks"] if rank["rank"] is not None)
        self.assertEqual(labels, sorted([f"rank {rank}" for rank in range(count)] + list(restarts)), labels)
        launchers = [image for image in report["processes"] if "torch.distributed.run" in image["command"]]
        # A forked worker has the launcher's command until it calls exec.
        ranked = [image for image in launchers if image["rank"] is not None and image["exit_status"] is not None]
        self.assertEqual(ranked, [])
        return report

    def launch(self, nodes, node, port, options=""):
        where = f"--nnodes {nodes} --node_rank {node} --master_addr 127.0.0.1 --master_port {port}"
        return f"{TORCHRUN} {where} --nproc_per_node 2 {options} {TRAIN}"

    def port(self):
        return 20000 + secrets.randbelow(20000)

    def test_a_run_around_torchrun_has_every_worker_once(self):
        line = f"{TORCHRUN} --standalone --nproc_per_node 2 {TRAIN}"
        bare, traced = self.run_command(line), self.traced(line)
        self.assert_same(bare, traced)
        self.assert_complete(self.assert_workers(2))

    def test_workers_that_were_started_anew_are_restarts_of_their_rank(self):
        line = f"{TORCHRUN} --standalone --nproc_per_node 2 --max_restarts 1 {TRAIN} fail"
        bare, traced = self.run_command(line), self.traced(line)
        self.assert_same(bare, traced)
        self.assertEqual(traced.status, 0, traced)
        self.assert_workers(2, ["rank 0, restart 1", "rank 1, restart 1"])
        self.assertRegex(self.summary(), "in 2 ranks")

    def test_tprof_once_a_worker_makes_one_run(self):
        line = f"{TORCHRUN} --standalone --nproc_per_node 2 --no_python"
        bare = self.run_command(f"{line} {PYTHON} {TRAIN}")
        traced = self.run_command(f"{line} {self.per_rank()} {PYTHON} {TRAIN}")
        self.assert_same(bare, traced)
        self.assert_complete(self.assert_workers(2))
        self.assertEqual(self.other_runs(), [])

    def both(self, first, second):
        return ["sh", "-c", f"{first} & {second}; status=$?; wait $! || exit; exit $status"]

    def test_a_launcher_for_each_node_shares_a_run_that_it_is_to_join(self):
        port = self.port()
        bare = self.run_command(self.both(self.launch(2, 0, port), self.launch(2, 1, port)))
        port = self.port()
        traced = self.run_command(
            self.both(*(f"{self.per_rank('--if-exists join')} {self.launch(2, node, port)}" for node in (0, 1)))
        )
        self.assert_same(bare, traced)
        self.assert_complete(self.assert_workers(4))

    def test_launchers_of_one_environment_by_hand_share_a_run(self):
        port = self.port()
        line = " ".join(self.both(self.launch(2, 0, port), self.launch(2, 1, port))[2:])
        traced = self.run_command(f'eval "$({TPROF} env -o {self.run_directory})"; {line}')
        self.assertEqual((traced.status, len(traced.lines())), (0, 4), traced)
        self.run_command(f'for i in $(seq 100); do grep -q \'"finished": true\' {self.run_directory}/run.json && exit; sleep 0.1; done')
        self.assert_complete(self.assert_workers(4))

    def test_launchers_of_two_runs_both_run(self):
        port = self.port()
        first, second = (f"{self.per_rank()} {self.launch(2, node, port)}" for node in (0, 1))
        traced = self.run_command(self.both(first, second))
        self.assertEqual((traced.status, len(traced.lines())), (0, 4), traced)
        self.assertEqual(len(self.other_runs()), 1, traced)
        self.assertIn(self.other_runs()[0].name, traced.stderr)


class TorchrunUnderSlurm(Torchrun):
    needs = ("slurmctld", "slurmd", "munged")

    # Removes the facts that hold without Slurm, because they were tested above.
    for _name in [name for name in dir(Torchrun) if name.startswith("test_")]:
        locals()[_name] = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = Cluster()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def run_command(self, command, environment=None, **how):
        return super().run_command(command, environment=self.cluster.environment | (environment or {}), **how)

    def agents(self):
        end = f"--rdzv_backend c10d --rdzv_endpoint 127.0.0.1:{self.port()} --rdzv_id {self.port()}"
        return f"{TORCHRUN} --nnodes 2 --nproc_per_node 2 {end} {TRAIN}"

    def test_a_run_around_srun_has_no_agent_among_its_ranks(self):
        traced = self.traced(f"srun -N2 -n2 {self.agents()}")
        self.assertEqual((traced.status, len(traced.lines())), (0, 4), traced)
        self.run_command(f'for i in $(seq 100); do [ -n "$(grep -L \'"finished": true\' {self.run_directory}/run*.json)" ] || exit; sleep 0.1; done')
        self.assert_complete(self.assert_workers(4))

    def test_tprof_once_an_agent_has_no_agent_among_its_ranks(self):
        traced = self.run_command(f"srun -N2 -n2 {self.per_rank()} {self.agents()}")
        self.assertEqual((traced.status, len(traced.lines())), (0, 4), traced)
        self.assert_complete(self.assert_workers(4))
        self.assertEqual(self.other_runs(), [])
