"""Runs the tests of tprof under launchers by group. Prints a line for each fact that they test, and counts them."""

import importlib
import re
import sys
import time
import unittest

GROUPS = ("mpi", "slurm", "torchrun", "processes", "workers")


class Lines(unittest.TestResult):
    """Prints a line for each fact as soon as it is known; the output of failures follows at the end."""

    def __init__(self):
        super().__init__()
        self.passed, self.failed, self.began = 0, [], 0.0

    def startTest(self, test):
        super().startTest(test)
        self.began, self.is_bad = time.monotonic(), False

    def stopTest(self, test):
        super().stopTest(test)
        is_skipped = bool(self.skipped) and self.skipped[-1][0] is test
        self.line("FAIL" if self.is_bad else "skip" if is_skipped else "pass", test)
        self.passed += not self.is_bad and not is_skipped

    def line(self, word, test):
        name = re.sub("^test_", "", test._testMethodName).replace("_", " ")
        print(f"{word}  {type(test).__name__}: {name} ({time.monotonic() - self.began:.1f} s)", flush=True)

    def bad(self, test, error):
        if not self.is_bad:
            self.failed.append((test, str(error[1])))
        self.is_bad = True

    def addError(self, test, error):
        super().addError(test, error)
        if not hasattr(test, "_testMethodName"):
            print(f"FAIL  {test}: {error[1]}", flush=True)
            self.failed.append((test, str(error[1])))
            return
        self.bad(test, error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.bad(test, error)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if not hasattr(test, "_testMethodName"):
            print(f"skip  {test}: {reason}", flush=True)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.bad(test, error)


def main(words):
    patterns = [word[1:] for word in words if word.startswith("/")]
    groups = [word for word in words if not word.startswith("/")] or GROUPS
    unknown = [group for group in groups if group not in GROUPS]
    if unknown:
        print(f"error: there is no group `{unknown[0]}`\n  try: {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{pattern}*" for pattern in patterns] or None
    result, began = Lines(), time.monotonic()
    for group in groups:
        loader.loadTestsFromModule(importlib.import_module(group)).run(result)
    for test, text in result.failed:
        name = getattr(test, "_testMethodName", "")
        print(f"\n== {type(test).__name__}: {name}\n{text}", file=sys.stderr)
    skipped = f", {len(result.skipped)} were skipped" if result.skipped else ""
    print(f"{result.passed} facts hold, {len(result.failed)} do not{skipped}, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if result.failed or not (result.passed or result.skipped) else 0


sys.exit(main(sys.argv[1:]))
