"""Facts about other ways to start processes: shell tools, daemons, other users, clean environments."""

import os
import shutil

from case import ROOT, TPROF, LauncherCase

TASK = str(ROOT / "plain" / "task")


class Processes(LauncherCase):
    # Asserts how many images of the task were recorded.
    def assert_seen(self, command, count=1, complete=True):
        bare, traced = self.run_command(command), self.traced(command)
        self.assert_same(bare, traced)
        report = self.report()
        tasks = [image for image in report["processes"] if image["command"].startswith(TASK)]
        self.assertEqual(len(tasks), count, report["processes"])
        if complete:
            self.assert_complete(report)

    def wants(self, program):
        if not shutil.which(program):
            self.fail(f"{program} is missing: scripts/test-deps.sh launchers installs it")

    def test_tools_that_start_programs_are_followed(self):
        many = self.directory / "Makefile"
        many.write_text("all: a b c\na b c:\n\t@" + TASK + "\n")
        for program, line, count in [
            ("make", f"make -s -j3 -f {many}", 3),
            ("xargs", ["sh", "-c", f"seq 4 | xargs -P 2 -n 1 {TASK}"], 4),
            ("setsid", f"setsid -w {TASK}", 1),
            ("nohup", f"nohup {TASK}", 1),
            ("timeout", f"timeout 20 {TASK}", 1),
            ("nice", f"nice {TASK}", 1),
            ("taskset", f"taskset 1 {TASK}", 1),
            ("stdbuf", f"stdbuf -oL {TASK}", 1),
            ("flock", f"flock {self.directory}/lock {TASK}", 1),
            ("unshare", f"unshare -pfm {TASK}", 1),
            ("unshare", f"unshare -rU {TASK}", 1),
            ("setpriv", f"setpriv --no-new-privs {TASK}", 1),
        ]:
            with self.subTest(line):
                self.run_directory = self.directory / f"run-{abs(hash(str(line)))}"
                self.wants(program)
                self.assert_seen(line.split() if isinstance(line, str) else line, count)

    def test_a_process_that_lost_the_environment_is_named(self):
        for program, line in [
            ("env", f"env -i {TASK}"),
            ("sudo", f"sudo -u nobody {TASK}"),
            ("su", ["su", "nobody", "-s", "/bin/sh", "-c", TASK]),
            ("runuser", f"runuser -u nobody -- {TASK}"),
            ("setpriv", f"setpriv --reuid nobody --clear-groups {TASK}"),
            ("bwrap", f"bwrap --bind / / --clearenv {TASK}"),
            ("bwrap", f"bwrap --bind / / --dev /dev --tmpfs /tmp {TASK}"),
        ]:
            with self.subTest(line):
                self.run_directory = self.directory / f"run-{abs(hash(str(line)))}"
                self.wants(program)
                words = line.split() if isinstance(line, str) else line
                bare, traced = self.run_command(words), self.traced(words)
                self.assert_same(bare, traced)
                self.assertEqual(traced.stderr, bare.stderr)
                self.assert_missing(self.run_directory, "task")

    def test_another_user_is_recorded_by_tprof_inside(self):
        self.wants("sudo")
        os.chmod(self.directory, 0o777)
        outcome = self.run_command(f"sudo -u nobody env HOME={self.directory} {self.per_rank()} {TASK}")
        self.assertEqual((outcome.status, outcome.stdout), (0, "task 0\n"), outcome)
        # The run is complete only if that user may use perf events.
        tasks = [image["command"] for image in self.report()["processes"]]
        self.assertEqual(tasks, [TASK])

    def test_daemons_that_outlive_the_command_are_named(self):
        for name, line in [
            ("background", f"nohup {TASK} wait 4 >/dev/null 2>&1 &"),
            ("session", f"setsid {TASK} wait 4 >/dev/null 2>&1 &"),
            ("screen", f"screen -dm {TASK} wait 4"),
            ("daemonize", f"daemonize {TASK} wait 4"),
        ]:
            with self.subTest(name):
                if name in ("screen", "daemonize"):
                    self.wants(name)
                self.run_directory = self.directory / name
                traced = self.traced(["sh", "-c", line])
                self.assertEqual(traced.status, 0, traced)
                self.assert_missing(self.run_directory, "task", "still running")

    def test_follow_records_a_daemon_to_its_end(self):
        traced = self.traced(["sh", "-c", f"nohup {TASK} wait 2 >/dev/null 2>&1 &"], "--follow")
        self.assertEqual(traced.status, 0, traced)
        report = self.report()
        self.assert_complete(report)
        self.assertGreater(report["run"]["wall_ns"], 2e9)

    def test_ranks_that_a_shell_starts_twice_are_no_restart(self):
        # A shell that repeatedly starts ranks is not an elastic launcher.
        script = f"for i in 1 2; do for r in 0 1; do RANK=$r WORLD_SIZE=2 {TASK} & done; wait; done"
        traced = self.traced(["sh", "-c", script])
        self.assertEqual(traced.status, 0, traced)
        self.assert_complete(self.report())
        self.assertRegex(self.summary(), "in 2 ranks")
        self.assert_no_restart()
