"""Reads the content of a bundle, and collects findings."""

import gzip
import json
import os

import raw


class Row(dict):
    """A row of a table, with its columns as attributes."""

    __getattr__ = dict.__getitem__


class Folder:
    """One folder of a bundle. A file that is missing, or that can't be parsed, reads as None or
    empty."""

    def __init__(self, path):
        self.path = path
        self._tables = None

    def file(self, name):
        return os.path.join(self.path, name)

    def has(self, name):
        return os.path.exists(self.file(name))

    def json(self, name):
        try:
            opener = gzip.open if name.endswith(".gz") else open
            with opener(self.file(name), "rt", encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError, EOFError):
            return None

    def folders(self, beginning=""):
        """Returns the folders inside, in the order of their names."""
        try:
            names = sorted(os.listdir(self.path))
        except OSError:
            return []
        return [name for name in names if name.startswith(beginning) and os.path.isdir(self.file(name))]

    def folder(self, name):
        return Folder(self.file(name))

    def table(self, name):
        """Returns the rows of one of tprof's tables, over all ranks."""
        if self._tables is None:
            self._tables = self.json("tables.json.gz") or {"ranks": []}
        rows = []
        for rank in self._tables["ranks"]:
            table = rank["tables"].get(name) or {"columns": [], "rows": []}
            rows += [Row(zip(table["columns"], row)) for row in table["rows"]]
        return rows

    def raw(self):
        """Returns the raw records of the process with most buffers, or None."""
        try:
            processes = raw.read(self.file("raw.cupti")).values()
        except (OSError, raw.Unreadable):
            return None
        return max(processes, key=lambda one: len(one.buffers), default=None)


class Findings:
    """The results of the checks: passed (True), failed (False), or not checked (None) and why."""

    def __init__(self):
        self.list = []
        # Lines to print beside the findings.
        self.tables = []

    def add(self, check, passed, **facts):
        self.list.append({"check": check, "passed": passed, **facts})

    def not_checked(self, check, why):
        self.add(check, None, why=why)

    def compare(self, check, wrong, compared, **facts):
        """Adds a pass if something was compared and nothing is wrong; `wrong` lists differences."""
        if not compared:
            return self.not_checked(check, "there is nothing to compare")
        return self.add(check, not wrong, compared=compared, wrong=len(wrong), first=wrong[:3], **facts)
