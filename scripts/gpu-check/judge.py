"""Judges the evidence that gpu-check.sh gathered, on any machine and without a GPU: `judge.py BUNDLE [--json FILE]`.

BUNDLE is the archive or its folder. Prints a line for each check: ok, FAILED, or not checked and why. A check that was
not checked has not passed. Exits with 1 if a check failed, with 2 if nothing was checked.
"""

import argparse
import functools
import json
import os
import sys
import tarfile
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import checks.cost
import checks.ends
import checks.journal
import checks.machine
import checks.older
import checks.pytorch
import checks.recording
import checks.rows
import checks.stalls
import checks.truth
from evidence import Findings, Folder

WORD = {True: "ok", False: "FAILED", None: "not checked"}


def judge_program(what, folder, simulated, edition, findings):
    """Judges a program with a known truth by its rows and its journal."""
    if checks.truth.judge(what, folder, simulated, edition, findings):
        checks.rows.judge(what, folder, findings)
        checks.journal.judge(what, folder, folder.json("traced.json"), findings)


def program_in(name, simulated, bundle, findings):
    judge_program(name, bundle.folder(name), simulated, checks.older.edition(bundle), findings)


def judge(path, only=None):
    """Returns the findings of a bundle's folder; if a subject is named, only those of that subject."""
    bundle, findings = Folder(path), Findings()
    subjects = [("machine", checks.machine.judge)]
    simulated = bool((bundle.json("facts.json") or {}).get("simulated"))
    for name in bundle.folders("truth-"):
        subjects.append((name, functools.partial(program_in, name, simulated)))
    subjects += [("ends", checks.ends.judge), ("cost", checks.cost.judge), ("stalls", checks.stalls.judge), ("PyTorch", checks.pytorch.judge),
                 ("recording", checks.recording.judge)]
    if not bundle.folders("truth-"):
        findings.not_checked("programs of known truth", "none ran")
    for name, subject in subjects:
        if only not in (None, name):
            continue
        try:
            subject(bundle, findings)
        except (KeyError, TypeError, ValueError, StopIteration, AttributeError) as error:
            # Evidence in an unexpected form is a failure, not an exception.
            findings.add(f"{name}: the evidence is readable", False, why=f"{type(error).__name__}: {error}")
    return findings


def unpacked(path, into):
    """Returns the folder with an archive's contents. Refuses paths that lead out of the folder."""
    with tarfile.open(path) as tar:
        for member in tar.getmembers():
            if not (member.isfile() or member.isdir()) or os.path.isabs(member.name) or ".." in member.name.split("/"):
                raise SystemExit(f"error: {path} holds {member.name}, which does not belong into a bundle")
        tar.extractall(into)
    inside = [os.path.join(into, name) for name in os.listdir(into)]
    return inside[0] if len(inside) == 1 else into


def report(findings):
    for one in findings.list:
        facts = {key: value for key, value in one.items() if key not in ("check", "passed")}
        if one["passed"] is None:
            print(f"not checked  {one['check']}: {one['why']}")
        else:
            print(f"{WORD[one['passed']]:13}{one['check']}  {json.dumps(facts)[:300]}")
    for table in findings.tables:
        print("", *table, "", sep="\n")
    counts = [sum(one["passed"] is passed for one in findings.list) for passed in (True, False, None)]
    print("{} ok, {} failed, {} not checked".format(*counts))
    return 1 if counts[1] else 0 if counts[0] else 2


def main():
    parser = argparse.ArgumentParser(description="Judges a bundle of gpu-check.sh.")
    parser.add_argument("bundle")
    parser.add_argument("--json", help="write the findings to this file, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = args.bundle if os.path.isdir(args.bundle) else unpacked(args.bundle, work)
        findings = judge(folder)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"format": 2, "checks": findings.list}, file, indent=1)
            file.write("\n")
    sys.exit(report(findings))


if __name__ == "__main__":
    main()
