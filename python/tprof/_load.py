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
    """The reports of a run, as ``tprof report --json`` has them: docs/metrics.md defines each key and its
    unit, which is the last word of its name. What was not measured is None, with its reason under
    ``KEY_missing``."""

    def __init__(self, path: PathLike) -> None:
        self.path = os.path.abspath(os.fspath(path))
        if not os.path.exists(self.path):
            raise FileNotFoundError("there is no run at %r" % self.path)
        self._reports: Dict[str, Dict[str, Any]] = {}

    def report(self, kind: str = "summary", *options: str) -> Dict[str, Any]:
        """A report by its kind (``tprof report --help`` lists them), read once. ``options`` are those of
        ``tprof report``, such as ``"--rank", "0"``. Raises TprofError with tprof's own words."""
        key = "\0".join((kind, *options))
        if key not in self._reports:
            self._reports[key] = _session.document("report", kind, self.path, "--json", *options)
        return self._reports[key]

    def tables(self, kind: str) -> Dict[str, List[Row]]:
        """All tables of a report: rows as dictionaries, by the tables' names."""
        made: Dict[str, List[Row]] = self.report(kind).get("tables", {})
        return made

    def table(self, kind: str, name: Optional[str] = None) -> List[Row]:
        """One table's rows: of this name, by default the first. Raises KeyError with all names."""
        tables = self.tables(kind)
        if name is None:
            name = next(iter(tables), "")
        if name not in tables:
            raise KeyError("report %s has no table %r; it has %s" % (kind, name, ", ".join(tables)))
        return tables[name]

    def _columns(self, kind: str, name: Optional[str]) -> Dict[str, List[Any]]:
        """A table by columns: those of all rows, in the order in which they come."""
        rows = self.table(kind, name)
        names = list(dict.fromkeys(key for row in rows for key in row))
        return {key: [row.get(key) for row in rows] for key in names}

    def findings(self) -> List[Row]:
        """What costs time, the largest gain first: ``rule``, ``severity``, ``gain_ns``, ``function``, …"""
        return self.table("findings", "findings")

    def pandas(self, kind: str, name: Optional[str] = None) -> Any:
        """A table as ``pandas.DataFrame``. Raises ImportError without pandas."""
        import pandas  # type: ignore[import-untyped,unused-ignore]

        return pandas.DataFrame(self._columns(kind, name))

    def polars(self, kind: str, name: Optional[str] = None) -> Any:
        """A table as ``polars.DataFrame``. Raises ImportError without polars."""
        import polars

        return polars.DataFrame(self._columns(kind, name), strict=False)

    def arrow(self, kind: str, name: Optional[str] = None) -> Any:
        """A table as ``pyarrow.Table``. Raises ImportError without pyarrow."""
        import pyarrow  # type: ignore[import-untyped,unused-ignore]

        return pyarrow.Table.from_pydict(self._columns(kind, name))

    def diff(self, other: Union["Run", PathLike]) -> Dict[str, Any]:
        """What changed from this run to another one, with its uncertainty: ``tprof diff --json``."""
        path = other.path if isinstance(other, Run) else os.fspath(other)
        return _session.document("diff", self.path, path, "--json")

    def export(self, to: str, path: Optional[PathLike] = None, *options: str) -> List[str]:
        """Writes the run in a format (``tprof export --help`` lists them); the files' paths."""
        words = ["export", self.path, "--to", to, *options]
        if path is not None:
            words += ["-o", os.fspath(path)]
        return _session.tprof(*words).splitlines()

    def __repr__(self) -> str:
        return "tprof.load(%r)" % self.path


def load(run: PathLike) -> Run:
    """The reports of a run directory, a rank's file, or a trace of torch.profiler. Nothing is read
    before it is asked for. Raises FileNotFoundError."""
    return Run(run)
