"""Base class of facts about launchers: it runs a launcher alone and under tprof, and reads tprof's reports.

Each command gets a process group of its own and a time limit. Processes that outlast the limit are killed, and the
failure shows their output.
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
# The directory is on a disk that all nodes of the test's Slurm share, because each node has a /tmp of its own.
ROOT = pathlib.Path(os.environ["TPROF_TEST_ROOT"])

IS_SKIP_FORBIDDEN = os.environ.get("TPROF_TEST_SKIP") == "forbid"

# Variables that could make this script itself look like a rank of a launcher.
FOREIGN = re.compile(
    "^(TPROF_|LD_|RANK|WORLD_SIZE|LOCAL_|OMPI_|PMI|PALS_|JSM_|SLURM_|FLUX_|PBS_|LSB_|TORCHELASTIC_|XDG_RUNTIME_DIR)"
)
ENVIRONMENT = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)} | {
    # Settings for two cores, more ranks, and no ssh.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "HWLOC_COMPONENTS": "-gl",
}


class Outcome:
    """The result of a command: its exit status as a shell reports it, and its output."""

    def __init__(self, status, stdout, stderr):
        self.status, self.stdout, self.stderr = status, stdout, stderr

    def lines(self):
        return sorted(self.stdout.splitlines())

    def __str__(self):
        return f"status {self.status}\n--- stdout\n{self.stdout[-2000:]}--- stderr\n{self.stderr[-2000:]}---"


def run(command, directory, environment=None, limit=180, interrupt=None):
    """Runs a command to its end. `interrupt` is (lines, signal): the signal goes to the command only, once it has printed
    so many lines."""
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
                lines, number = interrupt
                until = time.monotonic() + limit
                while os.pread(out.fileno(), 1 << 16, 0).count(b"\n") < lines and child.poll() is None and time.monotonic() < until:
                    time.sleep(0.02)
                child.send_signal(number)
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = f"none: still running after {limit} s"
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        # Ranks that outlive their launcher keep the files open, but the test does not wait for them.
        out.seek(0), err.seek(0)
        if isinstance(status, int) and status < 0:
            status = 128 - status
        return Outcome(status, out.read(), err.read())


class LauncherCase(unittest.TestCase):
    """Facts that share a launcher. `needs` lists programs without which nothing can be tested."""

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

    # Puts `tprof run` before a command. It is quiet, so that stderr contains only the job's output or a warning.
    def traced(self, command, *options, **how):
        words = command.split() if isinstance(command, str) else list(command)
        front = [TPROF, "run", "-q", "-o", self.run_directory, *options, "--"]
        return self.run_command([*front, *words], **how)

    # Returns tprof's part of a command that a launcher starts once per rank.
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

    # Returns the runs that are beside the requested one.
    def other_runs(self):
        found = [path.parent for path in self.directory.glob("*/run.json")]
        return sorted(path for path in found if path != self.run_directory)

    def assert_same(self, bare, traced, status=0):
        """The job behaves as it does alone: same exit status, and same output, in any order."""
        both = f"alone: {bare}\nunder tprof: {traced}"
        if status is not None:
            self.assertEqual(bare.status, status, f"it does not work here: {both}")
        self.assertEqual(bare.status, traced.status, both)
        self.assertEqual(bare.lines(), traced.lines(), both)

    def assert_ranks(self, count, program, run=None, restarts=(), size=None):
        """Every rank is recorded once, in a file of its own, and only processes of the job are recorded."""
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
        """The run is not complete, and the reason contains these words."""
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
    """Returns the program images of a report, one on each line."""
    lines = [f"{image['host']} {image['pid']} rank {image['rank']}: {image['command']} ({image['file']})"
             for image in report["processes"]]
    return "\n".join([*lines, str(sorted(rank["label"] for rank in report["ranks"]))])
