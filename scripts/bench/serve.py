#!/usr/bin/env python3
"""Measures `tprof serve`: lists, reports, heat maps, memory, CPU with a live page open.

    scripts/bench/serve.py [--tprof PATH] [--make-traces PATH] [--trace FILE.json] [--json FILE]

`--trace` is a Kineto trace to import for the report; without it one is made. `make-traces` is built with
`cargo build --release -p tprof-tests --bin make-traces`.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RUNS = 1000
RANKS = 1024
TIMES = 5
# Seconds over which CPU time is counted, without and with a live page.
SECONDS = 15
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
RANK = "import time\nwhile True:\n    kept = [bytes(100) for _ in range(20000)]\n    time.sleep(0.01)\n"


class Served:
    """A server and its client."""

    def __init__(self, tprof, directory):
        command = [tprof, "serve", "--no-browser", directory]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        _, _, self.address, self.token, _ = self.child.stdout.readline().split("/")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait()

    def open(self, path):
        to = http.client.HTTPConnection(self.address, timeout=300)
        to.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        answer = to.getresponse()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {answer.read().decode()}")
        return answer

    def get(self, path):
        """Returns the answer, and the seconds that it took."""
        began = time.monotonic()
        text = self.open(path).read()
        return text, time.monotonic() - began

    def ids(self):
        return {run["name"]: run["id"] for run in json.loads(self.get("/api/v1/runs")[0])["runs"]}

    def resident_mib(self, key="VmRSS"):
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(status.split(f"{key}:")[1].split()[0]) / 1024


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def median(served, path):
    return statistics.median(served.get(path)[1] for _ in range(TIMES))


def linked(source, directory):
    """Makes a run that links the files of another."""
    directory.mkdir(parents=True)
    for file in source.iterdir():
        if file.is_file():
            os.link(file, directory / file.name)


def lists(bench, folder, small):
    for number in range(RUNS):
        linked(small, folder / f"run-{number}")
    with Served(bench.tprof, folder) as served:
        _, cold = served.get("/api/v1/runs")
        return {f"list of {RUNS} runs, first, s": cold, f"list of {RUNS} runs, again, s": median(served, "/api/v1/runs")}


def reports(bench, folder, large):
    for number in range(10):
        linked(large, folder / f"run-{number}")
    found = {}
    with Served(bench.tprof, folder) as served:
        path = "/api/v1/runs/1/report/"
        for kind in ("summary", "kernels", "breakdown"):
            _, found[f"report {kind}, first, s"] = served.get(path + kind)
            found[f"report {kind}, again, s"] = median(served, path + kind)
        for run in served.ids().values():
            for kind in ("summary", "kernels", "breakdown", "steps"):
                served.get(f"/api/v1/runs/{run}/report/{kind}")
            served.get(f"/api/v1/runs/{run}/page/timeline")
        found["ten runs open, MiB"] = served.resident_mib()
        found["ten runs open, at most, MiB"] = served.resident_mib("VmHWM")
    return found


def heat(bench, folder, ranks):
    folder.mkdir()
    subprocess.run([bench.make_traces, "ranks", ranks, str(RANKS), folder / "many"], check=True)
    found = {}
    with Served(bench.tprof, folder) as served:
        for over, metric in (("step", "step_ns"), ("step", "late_ns"), ("time", "steps_per_second")):
            path = f"/api/v1/runs/1/heat?metric={metric}&over={over}"
            for when in ("first", "again"):
                _, found[f"heat of {RANKS} ranks by {over} ({metric}), {when}, s"] = served.get(path)
        found[f"{RANKS} ranks, at most, MiB"] = served.resident_mib("VmHWM")
    return found


def live(bench, folder):
    folder.mkdir()
    script = f"RANK=0 WORLD_SIZE=2 python3 -c '{RANK}' & RANK=1 WORLD_SIZE=2 python3 -c '{RANK}' & wait"
    run = [bench.tprof, "run", "--quiet", "-o", folder / "live", "--", "sh", "-c", script]
    job = subprocess.Popen(run, start_new_session=True)
    try:
        time.sleep(3)
        with Served(bench.tprof, folder) as served:
            (live_id,) = served.ids().values()
            def used():
                before, began = (cpu_s(served.child.pid), cpu_s(job.pid)), time.monotonic()
                time.sleep(SECONDS)
                after, took = (cpu_s(served.child.pid), cpu_s(job.pid)), time.monotonic() - began
                return [100 * (b - a) / took for a, b in zip(before, after)]
            alone = used()
            stream = served.open(f"/api/v1/runs/{live_id}/events")
            stream.read1()
            watched = used()
            stream.close()
        return {
            "server without a page, % of a core": alone[0],
            "server with a live page, % of a core": watched[0],
            "collector without a page, % of a core": alone[1],
            "collector with a live page, % of a core": watched[1],
        }
    finally:
        os.killpg(job.pid, 15)
        job.wait()


def imported(bench, trace, run):
    subprocess.run([bench.tprof, "import", trace, "-o", run], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tprof", default=ROOT / "target/release/tprof")
    parser.add_argument("--make-traces", default=ROOT / "target/release/make-traces")
    parser.add_argument("--trace")
    parser.add_argument("--json", type=Path)
    bench = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        made = {}
        for steps, rank in ((20, 0), (20, 1), (1000, 0)):
            made[steps, rank] = folder / f"{steps}-{rank}.json"
            subprocess.run([bench.make_traces, "kineto", str(steps), made[steps, rank], str(rank), "2"], check=True)
        small = imported(bench, made[20, 0], folder / "small")
        both = folder / "both"
        both.mkdir()
        for rank in (0, 1):
            made[20, rank].rename(both / f"{rank}.json")
        found = {
            **lists(bench, folder / "a", small),
            **reports(bench, folder / "b", imported(bench, bench.trace or made[1000, 0], folder / "large")),
            **heat(bench, folder / "c", imported(bench, both, folder / "ranks")),
            **live(bench, folder / "d"),
        }
    for what, value in found.items():
        print(f"{value:10.4f}  {what}")
    if bench.json:
        bench.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
