#!/usr/bin/env python3
"""Runs a job of very many short steps under `--keep`, as a job runs that is always recorded, and judges whether anything
grows with it: memory of the job and of the collector, the directory of the run, dumps that nobody asked for.

    scripts/soak.py [--steps 1000000] [--keep 20s,4MiB] [--dumps 1000] [--ranks 1] [--tprof PATH] [-- OPTIONS OF tprof run]
    scripts/soak.py --week [--speed 168]

The steps are as short as the machine makes them, so that a million of them take minutes. The history has a row for each
second, so the time of the run counts there, not its steps. At the end it asks for so many dumps at once.

`--week` runs a job of 2,016 steps of five minutes, of which one on each day takes fifteen, in an hour: libfaketime makes
the clocks of the job and of tprof run 168 times as fast. Each of the seven slow steps must have its dump, and no other step.
CPU samples are left out, because the kernel's clock runs as ever.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Samples before this share of the steps show how memory fills that stays in use from then on.
WARM = 0.2
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def status_kib(pid):
    """Returns the memory of a process that is its own, KiB: without files and shared memory. None once it has ended."""
    try:
        found = re.search(r"^RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    except OSError:
        return None
    return int(found[1]) if found else None


def children(pid):
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def size(folder):
    """Returns the bytes of what is kept, and of all else of a run without its dumps."""
    kept = rest = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                length = os.stat(Path(path) / name).st_size
            except OSError:
                continue
            of = Path(path).relative_to(folder).parts
            if of and of[0].startswith("kept-"):
                kept += length
            elif not (of and of[0].startswith("dump-")):
                rest += length
    return kept, rest


class Soak:
    def __init__(self, args):
        self.args = args
        self.folder = Path(tempfile.mkdtemp(prefix="soak-"))
        self.run = self.folder / "run"
        self.tprof = shutil.copy2(args.tprof, self.folder / "tprof")
        self.job = self.folder / "steps_on"
        subprocess.run(["cc", "-O2", ROOT / "tests/programs/steps_on.c", "-o", self.job, "-ldl"], check=True)
        self.samples = []
        self.steps = 0

    def count_steps(self, lines):
        for line in lines:
            self.steps += line.startswith(b"step ")

    def watch(self, traced):
        """Samples until the job has made its steps."""
        whole = self.args.steps * self.args.ranks
        while traced.poll() is None and self.steps < whole:
            own = status_kib(traced.pid)
            of_job = [status_kib(pid) for shell in children(traced.pid) for pid in children(shell)]
            if own and of_job and all(of_job):
                self.samples.append({"steps": self.steps, "seconds": time.monotonic() - self.begun, "collector": own, "job": sum(of_job), "size": size(self.run)})
            time.sleep(self.args.every)

    def ask_for_dumps(self):
        """Asks for many dumps at once, and returns how many were written, and in how many seconds."""
        begun = time.monotonic()
        command = [self.tprof, "ctl", "dump", "--why", "soak", self.run]
        asked = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(self.args.dumps)]
        errors = [one.communicate()[1].decode().strip() for one in asked]
        refused = {error for one, error in zip(asked, errors, strict=True) if one.returncode != 0}
        return sum(one.returncode == 0 for one in asked), time.monotonic() - begun, refused

    def measure(self):
        options = ["run", "--quiet", "-o", self.run, "--keep", self.args.keep, "--on", self.args.on, *self.args.options]
        each = f'"{self.job}" {self.args.steps} "{self.args.how}" {self.args.pause_us}'
        ranks = "".join(f"RANK={rank} WORLD_SIZE={self.args.ranks} {each} & " for rank in range(self.args.ranks))
        # The job goes on until its input is closed, so that dumps can be asked for once the steps are over.
        job = ["sh", "-c", f"{ranks}wait; echo over; cat"]
        self.begun = time.monotonic()
        environment = {**os.environ, **faketime(self.args.speed)} if self.args.speed != 1 else None
        command = [self.tprof, *map(str, options), "--", *job]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as traced:
            reader = threading.Thread(target=self.count_steps, args=(traced.stdout,))
            reader.start()
            self.watch(traced)
            seconds = time.monotonic() - self.begun
            self.of_events = len(list(self.run.glob("dump-*")))
            dumps = self.ask_for_dumps() if self.args.dumps else None
            traced.stdin.close()
            code = traced.wait()
            reader.join()
        return self.judge(seconds, dumps, code)

    def judge(self, seconds, dumps, code):
        info = json.loads((self.run / "run.json").read_text())
        made = subprocess.run([self.tprof, "report", "history", "--json", self.run], capture_output=True, text=True, check=True)
        ranks = json.loads(made.stdout)["tables"]["history"]
        warm = [one for one in self.samples if one["steps"] >= WARM * self.args.steps * self.args.ranks]
        limit = re.search(r"(\d+)(KiB|MiB|GiB)", self.args.keep)
        asked = int(limit[1]) * UNITS[limit[2]] if limit else None
        kept = max(one["size"][0] for one in self.samples)
        rows = [
            ("steps in the history", sum(rank["steps"] for rank in ranks), (self.args.steps - 1) * self.args.ranks, "is"),
            ("seconds", seconds, None, None),
            ("collector's memory (RssAnon), KiB: after a fifth", warm[0]["collector"], None, None),
            ("  at the end", warm[-1]["collector"], warm[0]["collector"] * 1.1 + 2048, "most"),
            ("job's memory (RssAnon), KiB: after a fifth", warm[0]["job"], None, None),
            ("  at the end", warm[-1]["job"], warm[0]["job"] * 1.05 + 512, "most"),
            ("kept at any moment, bytes", kept, asked and asked * 1.1, "most"),
            ("rest of the run, bytes: after a fifth", warm[0]["size"][1], None, None),
            ("  at the end", warm[-1]["size"][1], None, None),
            ("  growth for a week at this pace, MB", self.a_week(warm) / self.args.speed, None, None),
            (f"dumps by --on {self.args.on}", self.of_events, 7 if self.args.how == "pauses" else 0, "is"),
            ("  of these with SlowStep as their first finding", self.of_slow_steps(), self.of_events, "is"),
            ("records that were lost", info["completeness"]["lost"], 0, "is"),
            ("status of the job", code, 0, "is"),
        ]
        if dumps:
            rows += [(f"dumps of {self.args.dumps} asked for at once", dumps[0], self.args.dumps, "is"), ("  seconds", dumps[1], None, None)]
        bad = 0
        for what, value, target, how in rows:
            missed = target is not None and (value > target if how == "most" else value != target)
            bad += missed
            said = "" if target is None else f"{'at most ' if how == 'most' else ''}{target:,.0f}{': MISSED' if missed else ''}"
            print(f"{what:<55} {value:>15,.{0 if isinstance(value, int) else 1}f}  {said}")
        for error in dumps[2] if dumps else ():
            print(f"  refused: {error}")
        if self.args.json:
            Path(self.args.json).write_text(json.dumps(self.samples))
        return 1 if bad else 0

    def of_slow_steps(self):
        """Returns how many dumps have SlowStep as their first finding."""
        firsts = []
        for dump in sorted(self.run.glob("dump-*"))[: self.of_events]:
            made = subprocess.run([self.tprof, "findings", "--json", dump], capture_output=True, text=True, check=True)
            firsts += json.loads(made.stdout)["tables"]["findings"][:1]
        return sum(first["rule"] == "SlowStep" for first in firsts)

    @staticmethod
    def a_week(warm):
        grown, seconds = warm[-1]["size"][1] - warm[0]["size"][1], warm[-1]["seconds"] - warm[0]["seconds"]
        return grown / seconds * 7 * 86400 / 1e6 if seconds else 0.0


def faketime(speed):
    """Returns the variables by which libfaketime (Debian's package of this name) makes clocks run so fast."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        sys.exit("error: libfaketime is missing\n  try: apt-get install faketime")
    return {"LD_PRELOAD": str(found[0]), "FAKETIME": f"+0 x{speed}"}


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--steps", type=int, default=1_000_000)
    parse.add_argument("--ranks", type=int, default=1)
    parse.add_argument("--pause-us", type=int, default=100, help="how long each step sleeps")
    parse.add_argument("--keep", default="20s,4MiB")
    parse.add_argument("--on", default="slow-step=1000x,error,oom,signal=USR2")
    parse.add_argument("--dumps", type=int, default=1000, help="how many to ask for at once at the end; 0 for none")
    parse.add_argument("--every", type=float, default=1.0, help="seconds between two samples")
    parse.add_argument("--speed", type=int, help="how fast clocks run, by libfaketime; 168 for a week in an hour")
    parse.add_argument("--how", default="", help="what happens in the job (tests/programs/steps_on.c)")
    parse.add_argument("--week", action="store_true", help="2,016 steps of five minutes, seven of them slow")
    parse.add_argument("--json", metavar="FILE", help="write all samples there")
    parse.add_argument("--tprof", default=ROOT / "target/release/tprof")
    parse.add_argument("options", nargs="*", metavar="OPTION", help="more options of `tprof run`, after --")
    args = parse.parse_args()
    if args.week:
        args.steps, args.pause_us, args.how, args.dumps, args.every = 2016, 300_000_000, "pauses", 0, 5
        args.speed = args.speed or 168
        args.keep, args.on = "1h,4MiB", "slow-step=2x,error,oom,hang=1h,signal=USR2"
        args.options = ["--activities", "mem", *args.options]
    args.speed = args.speed or 1
    soak = Soak(args)
    try:
        return soak.measure()
    finally:
        shutil.rmtree(soak.folder)


if __name__ == "__main__":
    sys.exit(main())
