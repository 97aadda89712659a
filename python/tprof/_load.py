"""``tprof.load``: the reports of a run, from Python."""

from __future__ import annotations

import os

from . import _session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Union

    PathLike = Union[str, "os.PathLike[str]"]
    Row = Dict[str, Any]


class Run:
    """The reports of a run, in the form that ``tprof report --json`` prints. docs/metrics.md defines each key and
    its unit, which is the last word of the key. A value that was not measured is None, and ``KEY_missing`` holds
    the reason."""

    def __init__(self, path: PathLike) -> None:
        self.path = os.path.abspath(os.fspath(path))
        if not os.path.exists(self.path):
            raise FileNotFoundError("there is no run at %r" % self.path)
        self._reports: Dict[str, Dict[str, Any]] = {}

    def report(self, kind: str = "summary", *options: str) -> Dict[str, Any]:
        """Returns a report by its kind (``tprof report --help`` lists them). Each report is read once. ``options``
        are those of ``tprof report``, such as ``"--rank", "0"``. Raises TprofError with the program's own words."""
        key = "\0".join((kind, *options))
        if key not in self._reports:
            self._reports[key] = _session.document("report", kind, self.path, "--json", *options)
        return self._reports[key]

    def tables(self, kind: str) -> Dict[str, List[Row]]:
        """Returns all tables of a report by name. A table is a list of rows, which are dictionaries."""
        made: Dict[str, List[Row]] = self.report(kind).get("tables", {})
        return made

    def table(self, kind: str, name: Optional[str] = None) -> List[Row]:
        """Returns the rows of the table with this name, by default of the report's first table. Raises KeyError, which
        lists the names of all tables."""
        tables = self.tables(kind)
        if name is None:
            name = next(iter(tables), "")
        if name not in tables:
            raise KeyError("report %s has no table %r; it has %s" % (kind, name, ", ".join(tables)))
        return tables[name]

    def _columns(self, kind: str, name: Optional[str]) -> Dict[str, List[Any]]:
        """Returns a table by columns: the columns of all rows, in the order in which they first occur."""
        rows = self.table(kind, name)
        names = list(dict.fromkeys(key for row in rows for key in row))
        return {key: [row.get(key) for row in rows] for key in names}

    def findings(self) -> List[Row]:
        """Returns the causes of lost time, the largest gain first: ``rule``, ``severity``, ``gain_ns``,
        ``function``, …"""
        return self.table("findings", "findings")

    def pandas(self, kind: str, name: Optional[str] = None) -> Any:
        """Returns a table as a ``pandas.DataFrame``. Raises ImportError if pandas isn't installed."""
        import pandas  # type: ignore[import-untyped,unused-ignore]

        return pandas.DataFrame(self._columns(kind, name))

    def polars(self, kind: str, name: Optional[str] = None) -> Any:
        """Returns a table as a ``polars.DataFrame``. Raises ImportError if polars isn't installed."""
        import polars

        return polars.DataFrame(self._columns(kind, name), strict=False)

    def arrow(self, kind: str, name: Optional[str] = None) -> Any:
        """Returns a table as a ``pyarrow.Table``. Raises ImportError if pyarrow isn't installed."""
        import pyarrow  # type: ignore[import-untyped,unused-ignore]

        return pyarrow.Table.from_pydict(self._columns(kind, name))

    def diff(self, other: Union["Run", PathLike]) -> Dict[str, Any]:
        """Returns the changes from this run to another one, with their uncertainty, as ``tprof diff --json`` prints
        them. Raises TprofError."""
        path = other.path if isinstance(other, Run) else os.fspath(other)
        return _session.document("diff", self.path, path, "--json")

    def export(self, to: str, path: Optional[PathLike] = None, *options: str) -> List[str]:
        """Writes the run in a format (``tprof export --help`` lists them) and returns the paths of the files.
        ``options`` are those of ``tprof export``. Raises TprofError."""
        words = ["export", self.path, "--to", to, *options]
        if path is not None:
            words += ["-o", os.fspath(path)]
        return _session.tprof(*words).splitlines()

    def __repr__(self) -> str:
        return "tprof.load(%r)" % self.path


def load(run: PathLike) -> Run:
    """Returns the reports of a run directory, a rank's file, or a trace of torch.profiler. No report is read
    before it is asked for. Raises FileNotFoundError if the path doesn't exist."""
    return Run(run)
