"""Facts that hold for both MPIs."""

import signal

from case import TPROF, ROOT, LauncherCase


class Mpi:
    """Facts that hold for every MPI launcher; `mpirun` starts `job`."""

    def launch(self, count, what="", before=""):
        return f"{self.mpirun} -np {count} {before} {self.job} {what}"

    def with_env(self, script, *options):
        options = " ".join(["-o", str(self.run_directory), *options])
        return f'environment=$({TPROF} env {options}) || exit; eval "$environment"; {script}'

    def test_a_run_around_the_launcher_has_every_rank_once(self):
        bare, traced = self.run_command(self.launch(4)), self.traced(self.launch(4))
        self.assert_same(bare, traced)
        self.assertEqual(traced.stderr, bare.stderr)
        self.assert_complete(self.assert_ranks(4, "ranks"))

    def test_a_rank_that_fails_gives_its_status_to_the_launcher_and_the_run(self):
        bare, traced = self.run_command(self.launch(2, "fail 3")), self.traced(self.launch(2, "fail 3"))
        self.assert_same(bare, traced, status=3)
        self.assertRegex(self.summary(), r"ended +exit status 3")

    def test_tprof_once_a_rank_makes_one_run(self):
        bare = self.run_command(self.launch(4))
        traced = self.run_command(self.launch(4, before=self.per_rank()))
        self.assert_same(bare, traced)
        self.assert_complete(self.assert_ranks(4, "ranks"))
        self.assertEqual(self.other_runs(), [])

    def test_tprof_once_a_rank_reports_the_worst_status_and_whose_it_was(self):
        bare = self.run_command(self.launch(2, "fail 3"))
        traced = self.run_command(self.launch(2, "fail 3", before=self.per_rank()))
        self.assert_same(bare, traced, status=3)
        self.assertRegex(self.summary(), r"ended +exit status 3.*rank 1")

    def test_tprof_once_a_rank_without_a_directory_makes_one_run_or_warns(self):
        front = f"{TPROF} run -q --"
        bare, traced = self.run_command(self.launch(3)), self.run_command(self.launch(3, before=front))
        self.assert_same(bare, traced)
        runs = {path.parent for path in self.directory.rglob("rank-*.tprof")}
        self.assertTrue(len(runs) == 1 or "-o" in traced.stderr, f"{runs}\n{traced}")

    def test_an_environment_by_hand_has_every_rank_once(self):
        bare, traced = self.run_command(self.launch(2)), self.run_command(self.with_env(self.launch(2)))
        self.assert_same(bare, traced)
        self.await_end()
        self.assert_complete(self.assert_ranks(2, "ranks"))

    # An on-demand collector ends half a second after the last process.
    def await_end(self):
        self.run_command(f'for i in $(seq 100); do grep -q \'"finished": true\' {self.run_directory}/run.json && exit; sleep 0.1; done')

    def test_two_launches_in_one_run_are_no_restart(self):
        both = f"{self.launch(2)}; {self.launch(2)}"
        bare, traced = self.run_command(both), self.traced(["sh", "-c", both])
        self.assert_same(bare, traced)
        report = self.report()
        jobs = [image for image in report["processes"] if "/ranks" in image["command"].split()[0]]
        self.assertEqual(sorted(image["rank"] for image in jobs), [0, 0, 1, 1])
        self.assert_complete(report)
        self.assert_no_restart()

    def test_two_launches_at_a_time_are_no_restart(self):
        both = f"{self.launch(2, 'wait 1')} & {self.launch(2, 'wait 1')} & wait"
        bare, traced = self.run_command(both), self.traced(["sh", "-c", both])
        self.assert_same(bare, traced)
        report = self.report()
        jobs = [image for image in report["processes"] if "/ranks" in image["command"].split()[0]]
        self.assertEqual(sorted(image["rank"] for image in jobs), [0, 0, 1, 1])
        self.assert_complete(report)
        self.assert_no_restart()

    def test_programs_of_one_job_are_ranks_of_it(self):
        line = f"{self.mpirun} -np 1 {self.job} : -np 2 {self.job} wait 0"
        bare, traced = self.run_command(line), self.traced(line)
        self.assert_same(bare, traced)
        self.assert_complete(self.assert_ranks(3, "ranks"))

    def test_a_job_without_a_launcher_is_rank_0(self):
        bare, traced = self.run_command([self.job]), self.traced([self.job])
        self.assert_same(bare, traced)
        self.assertEqual([path.name for path in self.run_directory.glob("*.tprof")], ["rank-0.tprof"])

    def test_tprof_inside_the_ranks_of_a_run_changes_nothing(self):
        inner = f"{TPROF} run -q -o {self.directory}/inner --"
        bare, traced = self.run_command(self.launch(2)), self.traced(self.launch(2, before=inner))
        self.assert_same(bare, traced)
        self.assert_complete(self.assert_ranks(2, "ranks", self.directory / "inner"))

    def test_signals_reach_the_job(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number.name):
                self.run_directory = self.directory / number.name
                long = self.launch(2, "wait 60")
                bare = self.run_command(long.split(), interrupt=(2, number))
                traced = self.traced(long, interrupt=(2, number))
                if self.ends_alike:
                    self.assert_same(bare, traced, status=None)
                self.assertIsInstance(traced.status, int, traced)
                self.assert_ranks(2, "ranks")

    def test_a_batch_script_of_slurm_gives_no_rank_to_a_launcher(self):
        # Variables that Slurm sets in a batch script, and that its ranks inherit.
        batch = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
        script = self.directory / "batch"
        script.write_text("#!/bin/sh\nexec \"$@\"\n")
        script.chmod(0o755)
        traced = self.traced(f"{script} {self.launch(2)}", environment=batch)
        self.assertEqual(traced.status, 0, traced)
        self.assert_complete(self.assert_ranks(2, "ranks"))

    def test_a_rank_that_was_not_recorded_is_named(self):
        # Rank 1 is a program that can't load the library.
        blind = self.directory / "blind"
        blind.write_text(
            "#!/bin/sh\nrank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\n"
            f'[ "$rank" = 0 ] || exec "$@"\nexec {self.per_rank()} "$@"\n'
        )
        blind.chmod(0o755)
        bare = self.run_command(self.launch(3))
        traced = self.run_command(self.launch(3, before=str(blind)))
        self.assert_same(bare, traced)
        self.assert_missing(self.run_directory, "ranks 1 and 2 of 3")

    def test_force_replaces_the_ranks_that_the_new_job_lacks(self):
        self.run_command(self.launch(4, before=self.per_rank()))
        traced = self.run_command(self.launch(2, before=self.per_rank("--force")))
        self.assertEqual((traced.status, len(traced.lines())), (0, 2), traced)
        report = self.assert_ranks(2, "ranks")
        self.assertEqual(report["process_count"], 2)
        self.assert_complete(report)

    def test_force_replaces_what_an_environment_by_hand_recorded(self):
        self.run_command(self.with_env(self.launch(3)))
        self.await_end()
        traced = self.run_command(self.with_env(self.launch(2), "--force"))
        self.assertEqual((traced.status, len(traced.lines())), (0, 2), traced)
        self.await_end()
        self.assertEqual({image["rank"] for image in self.assert_ranks(2, "ranks")["processes"]}, {None, 0, 1})

    def test_a_second_job_runs_and_its_run_lies_beside_the_first(self):
        first = self.run_command(self.launch(2, before=self.per_rank()))
        self.assertEqual(first.status, 0, first)
        was = sorted(path.name for path in self.run_directory.iterdir())
        bare = self.run_command(self.launch(3))
        second = self.run_command(self.launch(3, before=self.per_rank()))
        self.assert_same(bare, second)
        self.assertEqual(sorted(path.name for path in self.run_directory.iterdir()), was)
        self.assertEqual(len(self.other_runs()), 1, second)
        self.assert_complete(self.assert_ranks(3, "ranks", self.other_runs()[0]))
        self.assertIn(self.other_runs()[0].name, second.stderr)

    def test_a_directory_may_be_refused_renamed_forced_or_joined(self):
        self.run_command(self.launch(2, before=self.per_rank()))
        refused = self.run_command(self.launch(2, before=self.per_rank("--if-exists fail")))
        self.assertNotEqual(refused.status, 0, refused)
        self.assertEqual(refused.lines(), [])
        renamed = self.run_command(self.launch(2, before=self.per_rank("--if-exists rename")))
        self.assertEqual((renamed.status, len(self.other_runs())), (0, 1), renamed)
        forced = self.run_command(self.launch(3, before=self.per_rank("--if-exists force")))
        self.assertEqual((forced.status, len(self.other_runs())), (0, 1), forced)
        self.assert_ranks(3, "ranks")
        joined = self.run_command(self.launch(2, before=self.per_rank("--if-exists join")))
        self.assertEqual((joined.status, len(self.other_runs())), (0, 1), joined)
        ranks = [image["rank"] for image in self.report()["processes"] if image["rank"] is not None]
        self.assertEqual(sorted(ranks), [0, 0, 1, 1, 2])


class OpenMpi(Mpi, LauncherCase):
    needs = ("mpirun.openmpi",)
    mpirun = "mpirun.openmpi"
    ends_alike = True
    job = str(ROOT / "openmpi" / "ranks")

    # Debian's MPICH refuses to spawn under its own launcher.
    def test_spawned_children_are_in_the_run(self):
        bare, traced = self.run_command(self.launch(2, "spawn 2")), self.traced(self.launch(2, "spawn 2"))
        self.assert_same(bare, traced)
        report = self.report()
        jobs = [image for image in report["processes"] if image["command"].split()[0].endswith("/ranks")]
        self.assertEqual(len({image["pid"] for image in jobs}), 4)
        self.assert_complete(report)
        self.assert_no_restart()


class Mpich(Mpi, LauncherCase):
    needs = ("mpiexec.hydra",)
    mpirun = "mpiexec.hydra"
    # After a signal this launcher ends with 0 or the signal's number at random, without tprof too.
    ends_alike = False
    job = str(ROOT / "mpich" / "ranks")
