"""The collector's CPU time on a PyTorch job with a DataLoader, by thread. See docs/notes/overhead-history.md.

The table compares two measurements: the time that the run reports (`collector_cpu_ns`), and the time that the kernel
counts for each thread. This script reads the latter from `/proc/PID/task/*/schedstat` ten times a second and adds it up
by thread name. With `--against PATH`, each round also runs another tprof at the same time, and so under the same load.
"""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
from collections import Counter
from pathlib import Path

import table

JOB = Path(__file__).resolve().parent / "programs" / "train_mlp.py"
ROUNDS = 5
PAUSE_S = 0.1


class Recording:
    """A run by one tprof. Until it ends, a thread reads the CPU time of the collector's threads."""

    def __init__(self, tprof, argv):
        self.folder = Path(tempfile.mkdtemp(prefix="bench-"))
        argv = [tprof, "run", "--quiet", "-o", self.folder / "run", "--", *argv]
        self.child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder)
        self.threads = {}
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def watch(self):
        while True:
            for task in Path(f"/proc/{self.child.pid}/task").glob("*"):
                try:
                    name, ran_ns = (task / "comm").read_text().strip(), (task / "schedstat").read_text().split()[0]
                except (OSError, IndexError):
                    continue
                # The name is read each time, because a new thread has its parent's name until it sets its own.
                self.threads[task.name] = (name, int(ran_ns))
            try:
                self.child.wait(PAUSE_S)
                return
            except subprocess.TimeoutExpired:
                pass

    def finish(self):
        self.watcher.join()
        info = json.loads((self.folder / "run" / "run.json").read_text())
        shutil.rmtree(self.folder)
        if self.child.returncode != 0:
            raise RuntimeError(f"train_mlp.py ended with status {self.child.returncode}")
        self.seconds = Counter()
        for name, ran_ns in self.threads.values():
            self.seconds[name if name.startswith("tprof-") else "main"] += ran_ns / 1e9
        stated = info["overhead"]
        self.stated, self.job, self.waited = (stated[key] / 1e9 for key in ("collector_cpu_ns", "job_cpu_ns", "wait_ns"))


def measure(bench):
    python = bench.torch("the collector's CPU time is")
    if not python:
        return
    contenders = {"tprof": bench.tprof}
    if bench.args.against:
        contenders["against"] = bench.args.against
    found = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        running = {name: Recording(tprof, [python, JOB, str(bench.rounds(300, 100))]) for name, tprof in contenders.items()}
        for name, recording in running.items():
            recording.finish()
            found[name].append(recording)
    lines = []

    def line(what, of):
        lines.append([what, *(f"{statistics.median(of(recording) for recording in recordings):.2f}" for recordings in found.values())])

    line("collector, as the run states", lambda recording: recording.stated)
    line("collector, from outside", lambda recording: sum(recording.seconds.values()))
    names = sorted({name for recordings in found.values() for recording in recordings for name in recording.seconds})
    for name in names:
        line(f"  {name}", lambda recording, name=name: recording.seconds[name])
    line("job", lambda recording: recording.job)
    line("waits of the job for the collector, wall", lambda recording: recording.waited)
    head = f"CPU seconds on train_mlp.py, medians of {ROUNDS}, load {os.getloadavg()[0]:.1f} at the end:"
    bench.tables.append(f"{head}\n\n" + "\n".join(table.grid(["what", *contenders], lines)))
