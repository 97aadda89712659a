"""A fact about a launcher: runs it alone and under tprof, and reads what tprof reports.

What runs gets a process group of its own and a limit; who stays beyond it is killed, with
what it printed in the failure.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TPROF = os.environ["TPROF_TEST_BIN"]
# On a disk that all nodes of the test's Slurm share: each has a /tmp of its own.
ROOT = pathlib.Path(os.environ["TPROF_TEST_ROOT"])

IS_SKIP_FORBIDDEN = os.environ.get("TPROF_TEST_SKIP") == "forbid"

# Variables that could make something look like a launcher of this script itself.
FOREIGN = re.compile(
    "^(TPROF_|LD_|RANK|WORLD_SIZE|LOCAL_|OMPI_|PMI|PALS_|JSM_|SLURM_|FLUX_|PBS_|LSB_|TORCHELASTIC_|XDG_RUNTIME_DIR)"
)
ENVIRONMENT = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)} | {
    # Two cores, more ranks, and no ssh.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "HWLOC_COMPONENTS": "-gl",
}


class Outcome:
    """How a command ended: its status as a shell would give it, and what it printed."""

    def __init__(self, status, stdout, stderr):
        self.status, self.stdout, self.stderr = status, stdout, stderr

    def lines(self):
        return sorted(self.stdout.splitlines())

    def __str__(self):
        return f"status {self.status}\n--- stdout\n{self.stdout[-2000:]}--- stderr\n{self.stderr[-2000:]}---"


def run(command, directory, environment=None, limit=180, interrupt=None):
    """Runs a command to its end; `interrupt` is (seconds, signal), sent to the command only."""
    words = ["sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(
            words,
            cwd=directory,
            env=ENVIRONMENT | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            if interrupt:
                time.sleep(interrupt[0])
                child.send_signal(interrupt[1])
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = f"none: still running after {limit} s"
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        # Ranks that outlived their launcher hold the files, not the test.
        out.seek(0), err.seek(0)
        if isinstance(status, int) and status < 0:
            status = 128 - status
        return Outcome(status, out.read(), err.read())


class LauncherCase(unittest.TestCase):
    """Facts that share a launcher. `needs`: programs without which there is nothing to test."""

    needs = ()

    @classmethod
    def setUpClass(cls):
        for program in cls.needs:
            if not shutil.which(program):
                missing = f"{program} is missing: scripts/test-deps.sh launchers installs it"
                raise RuntimeError(missing) if IS_SKIP_FORBIDDEN else unittest.SkipTest(missing)

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(dir=ROOT))
        self.run_directory = self.directory / "run"

    def tearDown(self):
        failed = self._outcome.errors and self._outcome.errors[-1][1] if hasattr(self._outcome, "errors") else False
        if not failed and not os.environ.get("TPROF_TEST_KEEP"):
            shutil.rmtree(self.directory, ignore_errors=True)

    def run_command(self, command, **how):
        return run(command, self.directory, **how)

    # `tprof run` in front of a command; quiet, so that what is on stderr is the job's or a warning.
    def traced(self, command, *options, **how):
        words = command.split() if isinstance(command, str) else list(command)
        front = [TPROF, "run", "-q", "-o", self.run_directory, *options, "--"]
        return self.run_command([*front, *words], **how)

    # tprof's part of a command that a launcher starts once a rank.
    def per_rank(self, *options):
        return " ".join([TPROF, "run -q -o", str(self.run_directory), *options, "--"])

    def report(self, run=None):
        run = run or self.run_directory
        report = self.run_command([TPROF, "report", "memory", run, "--json"])
        self.assertEqual(report.status, 0, report)
        return json.loads(report.stdout)

    def summary(self, run=None):
        report = self.run_command([TPROF, "report", run or self.run_directory], environment={"COLUMNS": "200"})
        self.assertEqual(report.status, 0, report)
        return report.stdout

    # Runs beside the one that was asked for.
    def other_runs(self):
        found = [path.parent for path in self.directory.glob("*/run.json")]
        return sorted(path for path in found if path != self.run_directory)

    def assert_same(self, bare, traced, status=0):
        """The job is as it is alone: its status, and what it prints, in any order."""
        both = f"alone: {bare}\nunder tprof: {traced}"
        if status is not None:
            self.assertEqual(bare.status, status, f"it does not work here: {both}")
        self.assertEqual(bare.status, traced.status, both)
        self.assertEqual(bare.lines(), traced.lines(), both)

    def assert_ranks(self, count, program, run=None, restarts=(), size=None):
        """Every rank once, in a file of its own, and nobody but the job in it."""
        report = self.report(run)
        labels = sorted(rank["label"] for rank in report["ranks"] if rank["rank"] is not None)
        wanted = sorted([f"rank {rank}" for rank in range(count)] + list(restarts))
        self.assertEqual(labels, wanted, images(report))
        for image in report["processes"]:
            is_job = pathlib.Path((image["command"].split() or [""])[0]).name == program
            if image["rank"] is not None and not is_job:
                self.fail(f"rank {image['rank']} holds another program:\n{images(report)}")
            if image["rank"] is None and is_job:
                self.fail(f"a rank is counted as none:\n{images(report)}")
        return report

    def assert_complete(self, report):
        self.assertTrue(report["completeness"]["complete"], json.dumps(report["completeness"], indent=1))

    def assert_missing(self, run, *words):
        """Not complete, and the reason has these words."""
        report = self.report(run)
        text = self.summary(run)
        self.assertFalse(report["completeness"]["complete"], text)
        for word in words:
            self.assertRegex(text, word)

    def assert_no_restart(self, run=None):
        report = self.report(run)
        restarted = [rank["label"] for rank in report["ranks"] if "restart" in rank["label"]]
        self.assertEqual(restarted, [], images(report))


def images(report):
    """Program images of a report, a line each."""
    lines = [f"{image['host']} {image['pid']} rank {image['rank']}: {image['command']} ({image['file']})"
             for image in report["processes"]]
    return "\n".join([*lines, str(sorted(rank["label"] for rank in report["ranks"]))])
