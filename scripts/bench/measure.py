"""Runs commands, measures them from outside, and computes medians over pairs of runs.

Other work on the machine disturbs wall time. Each run therefore knows how much processor time others used (from
/proc/stat), and medians are taken over the quieter half of the pairs.
"""

import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

MEMORY_LIMIT = 4_000_000 << 10
TIMEOUT_S = 90
FEWEST = 3


class Run:
    """One command from start to end."""

    def __init__(self, argv, env=None, limit=False, watch=False, timeout=TIMEOUT_S):
        self.folder = Path(tempfile.mkdtemp(prefix="bench-"))
        argv = [str(a).replace("{folder}", str(self.folder)) for a in argv]
        err = self.folder / "stderr"
        before = busy_seconds()
        began = time.monotonic()
        with open(err, "wb") as talk:
            child = subprocess.Popen(
                argv,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=talk,
                cwd=self.folder,
                start_new_session=limit,
                preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT,) * 2)) if limit else None,
            )
            watcher = Watcher(child.pid) if watch else None
            killer = threading.Timer(timeout, stop, (child.pid, limit))
            killer.start()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            killer.cancel()
        self.wall = time.monotonic() - began
        self.cpu = usage.ru_utime + usage.ru_stime
        self.peak_kib = usage.ru_maxrss
        self.others = max(0.0, (busy_seconds() - before - self.cpu) / self.wall)
        self.status = child.returncode
        self.peaks = watcher.finish() if watcher else []
        text = err.read_text(errors="replace")
        err.unlink()
        self.printed = {name: float(value) for name, value in re.findall(r"^(\w+)=([\d.]+)$", text, re.M)}
        self.output = text
        info = self.folder / "run" / "run.json"
        self.info = json.loads(info.read_text()) if info.exists() else {}
        self.file_bytes = sum(f.stat().st_size for f in self.folder.rglob("*") if f.is_file() and f.name != "run.json")
        shutil.rmtree(self.folder)

    @property
    def events(self):
        return self.printed.get("events")

    def loop_ns(self, clock):
        """Returns the nanoseconds per event of the timed loop by the clock "wall", "cpu" or "slice"."""
        return self.printed[f"loop_{clock}_ns"] / self.printed["events"]

    @property
    def bytes_per_event(self):
        return self.file_bytes / self.printed.get("all_events", self.events)

    @property
    def recorded(self):
        return self.info["completeness"]["recorded"]

    @property
    def collector_ns(self):
        return self.info["overhead"]["collector_cpu_ns"]

    @property
    def wait_ns(self):
        return self.info["overhead"]["wait_ns"]


def stop(pid, group):
    try:
        (os.killpg if group else os.kill)(pid, 9)
    except ProcessLookupError:
        pass


class Watcher(threading.Thread):
    """Reads the peak resident memory of a process, in KiB, while the process runs."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.status = f"/proc/{pid}/status"
        self.over = threading.Event()
        self.seen = []
        self.start()

    def run(self):
        while not self.over.wait(0.02):
            try:
                with open(self.status) as status:
                    found = re.search(r"VmHWM:\s+(\d+)", status.read())
            except OSError:
                return
            if found:
                self.seen.append(int(found[1]))

    def finish(self):
        self.over.set()
        self.join()
        return self.seen


def busy_seconds():
    """Returns the processor time used on the whole machine, stolen time included."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, irq, soft, steal, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


class Pairs:
    """Interleaved pairs of a plain run and a run of a contender."""

    def __init__(self):
        self.all = []

    def add(self, plain, contender):
        self.all.append((plain, contender))

    def died(self):
        """Returns how the contender ended, if it ever ended badly."""
        bad = [run.status for _, run in self.all if run.status != 0]
        return f"died ({bad[0]})" if bad else None

    def quiet(self):
        """Returns the half of the pairs during which other programs used least."""
        good = [pair for pair in self.all if pair[1].status == 0]
        good.sort(key=lambda pair: max(run.others for run in pair))
        return good[: max(FEWEST, (len(good) + 1) // 2)]

    def median(self, figure):
        """Returns the median of a figure over the quiet pairs."""
        values = [figure(plain, contender) for plain, contender in self.quiet()]
        return statistics.median(values) if values else None

    def least(self, figure):
        """Returns the least of a figure of runs with the contender minus the least of plain runs."""
        good = [pair for pair in self.all if pair[1].status == 0]
        if not good:
            return None
        return min(figure(run) for _, run in good) - min(figure(run) for run, _ in good)

    def others(self):
        """Returns how many processors other programs took during the quiet pairs."""
        return self.median(lambda plain, run: max(plain.others, run.others))
