"""Replays recordings of CUPTI on the stand-ins for CUDA: `replay.py TPROF STAND_INS BUNDLE`.

For each raw.cupti in the bundle (an archive or its folder), tprof records a job in which the stand-in for CUPTI repeats
the recording. The agent must get the same records in the same buffers, and make the same rows of them.
"""

import collections
import glob
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import checks.journal
import checks.rows
import checks.truth
import raw
from evidence import Findings, Folder
from judge import report, unpacked
from tables import export


def facts(one, record):
    """Returns a record's fields, with texts in place of their addresses."""
    fields = [(name, getattr(record, name)) for name, _ in record._fields_ if not name.startswith("_") and name != "name"]
    return (*fields, one.name(record.name) if hasattr(record, "name") else None)


def contents(one):
    """Returns buffers as lists of records, as a multiset, because threads decide their order."""
    return collections.Counter(
        tuple(facts(one, record) for _, record in buffer.records) for buffer in one.buffers)


def compare(original, folder, findings):
    replayed = folder.raw()
    if replayed is None:
        return findings.add("the replay is recorded", False, why="there are no raw buffers")
    before, after = contents(original), contents(replayed)
    wrong = [f"only once: {buffer[:1]}" for buffer in ((before - after) + (after - before))]
    findings.compare("the same records come in the same buffers", wrong, sum(before.values()))
    results = lambda one: {entry.one: entry.two for entry in one.entries("enabled")}
    both = [results(original), results(replayed)]
    wrong = [kind for kind in set(both[0]) & set(both[1]) if both[0][kind] != both[1][kind]]
    findings.compare("the same kinds are accepted", wrong, len(both[0]))
    asked = lambda one: len({entry.thread for entry in one.entries("requested")})
    findings.add("as many threads ask for buffers", asked(original) == asked(replayed), threads=asked(original))
    checks.truth.judge_losses("replay: nothing of the device is lost", folder.json("run.json"), findings)
    checks.rows.judge("replay", folder, findings)
    checks.journal.judge("replay", folder, None, findings)
    return None


def replayed(tprof, stand_ins, path, work):
    """Returns a run in which the recording was repeated."""
    original = max(raw.read(path).values(), key=lambda one: len(one.buffers))
    major = 12 if original.version < 130000 else 13
    env = {**os.environ, "LD_LIBRARY_PATH": f"{stand_ins}/{major}", "FAKE_CUPTI_REPLAY": path,
           "TPROF_CUPTI_RECORD": f"{work}/raw.cupti"}
    command = [tprof, "run", "--quiet", "-o", f"{work}/run", "--", f"{stand_ins}/replay-{major}"]
    subprocess.run(command, env=env, check=True, stdin=subprocess.DEVNULL, timeout=120)
    export(tprof, f"{work}/run", work)
    return original, Folder(work)


def main():
    tprof, stand_ins, bundle = (os.path.abspath(argument) for argument in sys.argv[1:4])
    status = 2
    with tempfile.TemporaryDirectory() as work:
        folder = bundle if os.path.isdir(bundle) else unpacked(bundle, f"{work}/bundle")
        for number, path in enumerate(sorted(glob.glob(f"{folder}/**/raw.cupti", recursive=True))):
            print(f"== {os.path.relpath(path, folder)}")
            findings = Findings()
            os.mkdir(f"{work}/{number}")
            compare(*replayed(tprof, stand_ins, path, f"{work}/{number}"), findings)
            status = max(report(findings), 0 if status == 2 else status)
    return status


if __name__ == "__main__":
    sys.exit(main())
