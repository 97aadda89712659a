"""Measures how long `tprof where` takes for a job of many ranks on one host. The ranks are cheap: each sleeps between
steps."""

import json
import os
import statistics
import subprocess
import time

# The steps of all ranks must fit into the processors of the machine.
STEP_MS = 4000
READY_S = 300


def asked(bench, run):
    """Returns the seconds that an answer takes, and the answer; None if there is none yet."""
    began = time.monotonic()
    done = subprocess.run([bench.tprof, "where", "--json", run], capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    return seconds, json.loads(done.stdout) if done.returncode == 0 else None


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        words = stat.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def measure(bench):
    ranks = bench.rounds(1024, 256)
    job = ["abi", "0", str(STEP_MS), str(ranks)]
    run = str(bench.built / "where")
    command = [bench.tprof, "run", "--quiet", "-o", run, "--mem", "off", "--activities", "mem", "--", *bench.program("scheduled", *job)]
    # The ranks end when their input is closed.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as traced:
        until = time.monotonic() + READY_S
        answer = None
        while not answer or sum(rank["step"] is not None for rank in answer["ranks"]) < ranks:
            if time.monotonic() > until or traced.poll() is not None:
                bench.notes.append(f"{ranks} ranks could not be started: where was not measured")
                break
            time.sleep(1)
            _, answer = asked(bench, run)
        else:
            walls, cpus = [], []
            for _ in range(bench.rounds(15, 5)):
                before = cpu_seconds(traced.pid)
                seconds, answer = asked(bench, run)
                cpus.append(cpu_seconds(traced.pid) - before)
                walls.append(seconds)
            named = sum(bool(rank["stack"]) for rank in answer["ranks"])
            bench.row(f"tprof where, {ranks} ranks on one host", statistics.median(walls), "s", 2, basis="wall")
            bench.row("  least", min(walls), "s", None, basis="wall")
            bench.row("  collector CPU", statistics.median(cpus), "s", None, basis="cpu")
            bench.row("  ranks with a stack", named, "", ranks, at_least=True)
        traced.stdin.close()
