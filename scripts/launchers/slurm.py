"""Facts about Slurm: steps, batch scripts, launchers inside them, requeue, cancel."""

import time

from case import TPROF, ROOT, LauncherCase, Outcome, run
from cluster import Cluster

TASK = str(ROOT / "plain" / "task")


class Slurm(LauncherCase):
    needs = ("slurmctld", "slurmd", "munged", "mpirun.openmpi", "mpiexec.hydra")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = Cluster()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def run_command(self, command, environment=None, **how):
        return run(command, self.directory, self.cluster.environment | (environment or {}), **how)

    # Runs a batch job to its end, and returns its status and what the script printed.
    def batch(self, script, *options):
        for name in ("out", "err"):
            (self.directory / name).unlink(missing_ok=True)
        job = self.cluster.submit(script, self.directory, *options)
        state = self.cluster.await_end(job)
        status = int(state["ExitCode"].split(":")[0])
        outcome = Outcome(status, (self.directory / "out").read_text(), (self.directory / "err").read_text())
        return outcome

    def hosts(self):
        return set(self.report()["run"]["hosts"])

    # A collector on another node ends half a second after its last process.
    def await_end(self):
        unfinished = f"grep -L '\"finished\": true' {self.run_directory}/run*.json"
        self.run_command(f'for i in $(seq 100); do [ -n "$({unfinished})" ] || exit; sleep 0.1; done')

    def test_tprof_once_a_task_makes_one_run_of_two_hosts(self):
        bare = self.run_command(f"srun -N2 -n4 {TASK}")
        traced = self.run_command(f"srun -N2 -n4 {self.per_rank()} {TASK}")
        self.assert_same(bare, traced)
        self.assert_complete(self.assert_ranks(4, "task"))
        self.assertEqual(len(self.hosts()), 2)

    def test_a_run_around_srun_has_the_ranks_of_both_hosts(self):
        bare, traced = self.run_command(f"srun -N2 -n4 {TASK}"), self.traced(f"srun -N2 -n4 {TASK}")
        self.assert_same(bare, traced)
        self.assertEqual(traced.stderr, bare.stderr)
        self.await_end()
        self.assert_complete(self.assert_ranks(4, "task"))
        self.assertEqual(len(self.hosts()), 2)

    def test_a_host_without_the_cache_of_libraries_is_recorded_and_undisturbed(self):
        line = f"srun -p bare -N2 -n4 {TASK}"
        bare, traced = self.run_command(line), self.traced(line)
        self.assert_same(bare, traced)
        self.assertEqual(traced.stderr, bare.stderr)
        self.await_end()
        self.assert_complete(self.assert_ranks(4, "task"))
        self.assertEqual(len(self.hosts()), 2)

    def test_ranks_of_a_step_that_were_not_recorded_are_named(self):
        # The second host's tasks lose tprof's variables.
        script = self.directory / "blind"
        script.write_text(f'#!/bin/sh\n[ $SLURM_PROCID -lt 2 ] || unset LD_PRELOAD TPROF_SESSION\nexec {TASK}\n')
        script.chmod(0o755)
        traced = self.run_command(f"srun -N2 -n4 {self.per_rank()} {script}")
        self.assertEqual((traced.status, traced.lines()), (0, [f"task {rank}" for rank in range(4)]), traced)
        self.await_end()
        self.assertFalse(self.report()["completeness"]["complete"], self.summary())
        bare = self.directory / "bare"
        bare.write_text(f'#!/bin/sh\n[ $SLURM_PROCID -ge 2 ] || exec {self.per_rank("--force")} {TASK}\nexec {TASK}\n')
        bare.chmod(0o755)
        traced = self.run_command(f"srun -N2 -n4 {bare}")
        self.assertEqual(traced.status, 0, traced)
        self.assert_missing(self.run_directory, "rank", "of 4")

    def test_a_step_in_an_allocation_is_recorded_from_in_and_outside(self):
        bare = self.run_command(f"salloc -Q -N2 -n4 srun {TASK}")
        inside = self.run_command(f"salloc -Q -N2 -n4 {self.per_rank()} srun {TASK}")
        self.assert_same(bare, inside)
        self.await_end()
        self.assert_complete(self.assert_ranks(4, "task"))
        self.run_directory = self.directory / "outside"
        outside = self.traced(f"salloc -Q -N2 -n4 srun {TASK}")
        self.assert_same(bare, outside)
        self.await_end()
        self.assert_complete(self.assert_ranks(4, "task"))

    def test_two_steps_of_an_allocation_are_two_runs(self):
        step = f"srun -n2 {self.per_rank()} {TASK}"
        traced = self.run_command(["salloc", "-Q", "-n2", "sh", "-c", f"{step}; {step}"])
        self.assertEqual((traced.status, len(traced.lines())), (0, 4), traced)
        self.assert_complete(self.assert_ranks(2, "task"))
        self.assertEqual(len(self.other_runs()), 1)
        self.assert_complete(self.assert_ranks(2, "task", self.other_runs()[0]))

    def test_two_steps_at_a_time_are_two_runs(self):
        step = f"srun -n2 --overlap {self.per_rank()} {TASK} wait 2"
        traced = self.run_command(["salloc", "-Q", "-n4", "sh", "-c", f"{step} & {step} & wait"])
        self.assertEqual((traced.status, len(traced.lines())), (0, 4), traced)
        self.assertEqual(len(self.other_runs()), 1, traced)
        for found in [self.run_directory, self.other_runs()[0]]:
            self.assert_complete(self.assert_ranks(2, "task", found))

    def test_a_step_in_a_batch_script_has_no_launcher_among_its_ranks(self):
        bare = self.batch(f"srun {TASK}\n", "-N2", "-n4")
        traced = self.batch(f"{self.per_rank()} srun {TASK}\n", "-N2", "-n4")
        self.assert_same(bare, traced)
        self.await_end()
        self.assert_complete(self.assert_ranks(4, "task"))

    def assert_mpi_in_batch(self, launch, setup=""):
        # Slurm's variables may lead mpirun to use srun for the helpers on other nodes.
        line = f"export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 {setup}\n"
        bare = self.batch(f"{line}{launch}\n", "-N2", "-n4", "--ntasks-per-node=2")
        traced = self.batch(f"{line}{self.per_rank()} {launch}\n", "-N2", "-n4", "--ntasks-per-node=2")
        self.assert_same(bare, traced)
        self.await_end()
        self.assert_complete(self.assert_ranks(4, "ranks"))
        self.assertEqual(len(self.hosts()), 2)

    def test_open_mpi_in_a_batch_script_of_two_hosts_has_no_helper_among_its_ranks(self):
        self.assert_mpi_in_batch(f"mpirun.openmpi -np 4 {ROOT}/openmpi/ranks")

    def test_mpich_in_a_batch_script_of_two_hosts_has_no_helper_among_its_ranks(self):
        self.assert_mpi_in_batch(f"mpiexec.hydra -np 4 {ROOT}/mpich/ranks")

    def test_tasks_that_know_their_rank_by_pmi_are_ranks_of_both_hosts(self):
        line = f"srun --mpi=pmi2 -N2 -n4 {TASK}"
        bare, traced = self.run_command(line), self.traced(line)
        self.assert_same(bare, traced)
        self.await_end()
        self.assert_complete(self.assert_ranks(4, "task"))

    def test_mpich_has_no_helper_among_its_ranks_where_srun_gives_ranks_by_pmi(self):
        # The proxies on the nodes are tasks of srun, with a PMI_RANK of their own.
        self.assert_mpi_in_batch(f"mpiexec.hydra -np 4 {ROOT}/mpich/ranks", "SLURM_MPI_TYPE=pmi2")

    def test_a_queued_again_job_runs_again_and_is_recorded_beside(self):
        self.run_directory = self.directory / "run"
        script = f"srun -n2 {TPROF} run -q -o {self.directory}/RQ-$SLURM_JOB_ID -- {TASK} wait $((6 - 6 * ${{SLURM_RESTART_COUNT:-0}}))\n"
        job = self.cluster.submit(script, self.directory, "-n2", "--requeue")
        out = self.directory / "out"
        self.await_line(out, "task 1")
        self.run_command(["scontrol", "requeue", job])
        self.cluster.await_state(job, ["PENDING"])
        self.run_command(["scontrol", "update", f"JobId={job}", "StartTime=now"])
        state = self.cluster.await_end(job, 200)
        text = out.read_text()
        self.assertEqual(state["JobState"], "COMPLETED", text + (self.directory / "err").read_text())
        self.assertEqual(text.count("task"), 4, text)
        runs = sorted(path.parent for path in self.directory.glob("RQ-*/run.json"))
        self.assertEqual(len(runs), 2, text)
        self.assert_complete(self.report(runs[1]))
        for found in runs:
            self.assert_ranks(2, "task", found)

    def await_line(self, path, line, seconds=60):
        end = time.monotonic() + seconds
        while line not in (path.read_text() if path.exists() else ""):
            self.assertLess(time.monotonic(), end, f"`{line}` did not come in {path}")
            time.sleep(0.1)

    def assert_cancelled(self, script, *options):
        job = self.cluster.submit(script, self.directory, *options)
        self.await_line(self.directory / "out", "task 1")
        time.sleep(1)
        self.run_command(["scancel", *self.cancel, job])
        self.cluster.await_end(job)
        time.sleep(1.5)
        return self.summary()

    cancel = ()

    def test_a_cancelled_job_has_its_signal(self):
        text = self.assert_cancelled(f"srun -n2 {self.per_rank()} {TASK} wait 60\n", "-n2")
        self.assertRegex(text, "SIGTERM")
        self.assert_ranks(2, "task")

    def test_a_cancelled_job_with_a_run_around_srun_has_its_signal(self):
        text = self.assert_cancelled(f"exec {self.per_rank()} srun -n2 {TASK} wait 60\n", "-n2")
        self.assertRegex(text, "SIGTERM")
        self.assert_ranks(2, "task")

    def test_a_signal_before_the_time_limit_leaves_whole_ranks(self):
        # The job waits for long, because Slurm sends the signal up to a minute earlier than requested.
        script = f"srun -n2 {self.per_rank()} {TASK} wait 200\n"
        job = self.cluster.submit(script, self.directory, "-n2", "-t", "1", "--signal=TERM@30")
        self.cluster.await_end(job, 200)
        self.assertRegex(self.summary(), "SIGTERM")
        self.assert_complete(self.assert_ranks(2, "task"))

    def test_a_time_limit_is_named(self):
        job = self.cluster.submit(f"srun -n2 {self.per_rank()} {TASK} wait 200\n", self.directory, "-n2", "-t", "1")
        self.assertEqual(self.cluster.await_end(job, 200)["JobState"], "TIMEOUT")
        time.sleep(1.5)
        self.assertRegex(self.summary(), "SIGTERM")
        self.assert_ranks(2, "task")
