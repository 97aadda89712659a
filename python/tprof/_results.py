"""Reports of a part of a program, which the program itself asks for while it runs.

The collector writes out all that was recorded until the end of the part, and ``tprof report`` reads that part of
the run. Nothing of this happens before the first result is asked for.
"""

from __future__ import annotations

import time

from . import _abi, _session
from ._binary import TprofError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Row = Dict[str, Any]

_KINDS = "summary,findings,operators,annotations,spans,kernels,breakdown"
"""The reports that results are made of. They are read together, so that the run is read once."""
_NO_RUN = "nothing is recorded without tprof; to record this: tprof run -- python ..."
_NO_PART = "no part of the program has been recorded by this profile yet"


class Results:
    """The reports of one part of this process's rank."""

    def __init__(self, missing: str, from_ns: int = 0, to_ns: int = 0) -> None:
        self.missing = missing
        """The reason why there are no results; empty if there are some."""
        self.wall_ns = to_ns - from_ns
        self._from_ns, self._to_ns = from_ns, to_ns
        self._device_until_ns: Optional[int] = None
        self._reports: Dict[str, Dict[str, Any]] = {}
        if not missing:
            self._read()

    def _read(self) -> None:
        if _session.wait_for_device():
            self._device_until_ns = time.monotonic_ns()
        _abi.flush()
        try:
            self._reports = self._asked(_KINDS)["reports"]
        except (TprofError, OSError, ValueError, KeyError) as error:
            self.missing = "the run could not be asked for results: %s" % error

    def _asked(self, kinds: str, *options: str) -> Dict[str, Any]:
        times = [self._from_ns, self._to_ns]
        if self._device_until_ns is not None:
            times.append(self._device_until_ns)
        rank = str(_session.rank())
        clock = ":".join(map(str, times))
        words = ("report", kinds, "--json", "--rank", rank, "--of-clock", clock, *options)
        return _session.document(*words, _session.run_directory() or "")

    def report(self, kind: str, *options: str) -> Dict[str, Any]:
        """Returns a report of this part; without results it is empty. ``options`` are those of ``tprof report``.
        Raises TprofError with the program's own words."""
        if self.missing:
            return {"kind": kind, "notes": [self.missing], "tables": {}}
        if options or kind not in self._reports:
            return self._asked(kind, *options)
        return self._reports[kind]

    def table(self, kind: str, name: str) -> List[Row]:
        """Returns the rows of a table of a report; there are none without results."""
        rows: List[Row] = self._reports.get(kind, {}).get("tables", {}).get(name, [])
        return rows

    def rank(self) -> Row:
        """Returns the row of this rank in the summary."""
        ranks: List[Row] = self._reports.get("summary", {}).get("ranks", [])
        return ranks[0] if ranks else {}

    def notes(self) -> List[str]:
        """Returns the notes of all these reports, each once, as sentences."""
        all_notes = [note for report in self._reports.values() for note in report.get("notes", [])]
        problems = [text for report in self._reports.values() for text in report.get("problems", [])]
        # This note says which part of the run the report covers, which the caller knows.
        told = [note for note in all_notes if not note.startswith("only what began ")]
        return list(dict.fromkeys(problems + told))

    def device_time_ns(self) -> Optional[int]:
        """Returns the time in which devices had work, summed over devices, or None if no device was recorded."""
        if "gpu_missing" in self.rank() or not self._reports:
            return None
        within = sum(row["window_ns"] - row["idle_ns"] for row in self.table("breakdown", "breakdown"))
        return int(within + sum(row["busy_ns"] for row in self.table("breakdown", "outside_of_steps")))

    def no_device_time(self) -> str:
        """Returns the reason why ``device_time_ns`` is None."""
        return self.missing or str(self.rank().get("gpu_missing", "it was not recorded"))

    def peak_bytes(self) -> Optional[int]:
        """Returns the most live bytes of the heap, or None if that is unknown."""
        peak = self.rank().get("host_memory", {}).get("peak_bytes")
        return None if peak is None else int(peak)

    def no_peak(self) -> str:
        """Returns the reason why ``peak_bytes`` is None."""
        memory = self.rank().get("host_memory", {})
        return self.missing or str(memory.get("peak_bytes_missing", "it was not recorded"))


class Summary(Dict[str, "Any"] if TYPE_CHECKING else dict):  # type: ignore[misc]
    """Figures of a part by name; ``str()`` of it is a text for people. ``missing`` holds the reason for each figure
    that is None."""

    def __str__(self) -> str:
        missing = self["missing"]

        def shown(key: str, text: str) -> str:
            return text if self[key] is not None else "unknown: %s" % missing[key]

        lines = ["wall time    %s" % shown("wall_ns", duration(self["wall_ns"] or 0))]
        lines.append("device time  %s" % shown("device_time_ns", duration(self["device_time_ns"] or 0)))
        lines.append("heap peak    %s" % shown("peak_bytes", size(self["peak_bytes"] or 0)))
        lines.append("allocated    %s" % shown("allocated_bytes", size(self["allocated_bytes"] or 0)))
        if self["findings"] is None:
            lines.append("findings     unknown: %s" % missing["findings"])
        else:
            lines.append("findings     %s" % ("" if self["findings"] else "none of 1 % or more"))
            lines += ["  " + headline for headline in self["findings"]]
        lines += ["note: " + note for note in self["notes"]]
        return "\n".join(line.rstrip() for line in lines)


def summary(of: Results) -> Summary:
    """Returns the summary of a part."""
    memory = of.rank().get("host_memory", {})
    figures: Row = {
        "wall_ns": None if of.missing else of.wall_ns,
        "device_time_ns": of.device_time_ns(),
        "peak_bytes": of.peak_bytes(),
        "allocated_bytes": memory.get("allocated_bytes"),
        "findings": None if of.missing else [row["headline"] for row in of.table("findings", "findings")],
    }
    why = {
        "device_time_ns": of.no_device_time(),
        "peak_bytes": of.no_peak(),
        "allocated_bytes": of.missing or str(memory.get("allocated_bytes_missing", "it was not recorded")),
    }
    missing = {key: why.get(key, of.missing) for key, value in figures.items() if value is None}
    return Summary({**figures, "notes": of.notes(), "missing": missing})


class Average:
    """The runs of one name. Times are sums in nanoseconds, and None if they were not recorded. It also has the names
    of torch.profiler (``key``, ``count``, ``cpu_time_total``, …), with times in microseconds."""

    def __init__(self, kind: str, name: str, calls: int, **times: Optional[int]) -> None:
        self.kind = kind
        """Kind of the row: ``operator``, ``range`` or ``kernel``."""
        self.name = name
        self.calls = calls
        self.cpu_total_ns = times.get("cpu_total_ns")
        """Time on the host, with everything that it called."""
        self.cpu_self_ns = times.get("cpu_self_ns")
        """Time on the host, without the operators that it called."""
        self.device_total_ns = times.get("device_total_ns")
        """Time on devices, with the work that its inner operators launched."""
        self.device_self_ns = times.get("device_self_ns")
        """Time on devices of the work that it launched itself."""
        self.input_shapes = ""
        """Sizes of the inputs as JSON, if rows are grouped by them."""

    key = property(lambda self: self.name)
    count = property(lambda self: self.calls)
    cpu_time_total = property(lambda self: _us(self.cpu_total_ns))
    self_cpu_time_total = property(lambda self: _us(self.cpu_self_ns))
    device_time_total = property(lambda self: _us(self.device_total_ns))
    self_device_time_total = property(lambda self: _us(self.device_self_ns))
    cpu_time = property(lambda self: self.cpu_time_total / self.calls if self.calls else 0.0)
    device_time = property(lambda self: self.device_time_total / self.calls if self.calls else 0.0)

    def __repr__(self) -> str:
        return "<%s %s: %d calls>" % (self.kind, self.name, self.calls)


def _us(time_ns: Optional[int]) -> float:
    return (time_ns or 0) / 1e3


_ORDERS = {
    "count": "calls",
    "cpu_time": "cpu_time",
    "cpu_time_total": "cpu_time_total",
    "self_cpu_time_total": "self_cpu_time_total",
    "device_time": "device_time",
    "device_time_total": "device_time_total",
    "self_device_time_total": "self_device_time_total",
    "cuda_time": "device_time",
    "cuda_time_total": "device_time_total",
    "self_cuda_time_total": "self_device_time_total",
}
"""Attributes of a row by the names that torch.profiler's ``sort_by`` takes."""


class Averages(List[Average] if TYPE_CHECKING else list):  # type: ignore[misc]
    """The rows of ``key_averages()``. ``str()`` and ``table()`` of it print them as torch.profiler prints its own."""

    missing = ""
    """The reason why there are no rows, or none of operators; empty if there are."""
    notes: List[str] = []

    @property
    def self_cpu_time_total(self) -> float:
        """The sum over all operators, in microseconds."""
        return sum(row.self_cpu_time_total for row in self if row.kind == "operator")

    @property
    def self_device_time_total(self) -> float:
        """The sum of the durations of all kernels, in microseconds."""
        return sum(row.self_device_time_total for row in self if row.kind == "kernel")

    def table(
        self,
        sort_by: Optional[str] = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: Optional[str] = None,
        top_level_events_only: bool = False,
    ) -> str:
        """Returns the rows as a table, in the order of ``sort_by``, which has torch.profiler's values
        (``"cpu_time_total"``, ``"cuda_time_total"``, ``"count"``, …). It has at most ``row_limit`` rows, or all if that
        is -1. Raises ValueError for an unknown order."""
        rows = list(self)
        if sort_by is not None:
            if sort_by not in _ORDERS:
                raise ValueError("unknown order %r; there are %s" % (sort_by, ", ".join(_ORDERS)))
            order = _ORDERS[sort_by]
            rows.sort(key=lambda row: -getattr(row, order))
        has_device = any(row.device_self_ns is not None for row in rows)
        has_shapes = any(row.input_shapes for row in rows)
        cpu_ns = self.self_cpu_time_total * 1e3
        device_ns = self.self_device_time_total * 1e3
        names = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
        if has_device:
            names += ["Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg"]
        names.append("# of Calls")
        names += ["Input Shapes"] if has_shapes else []
        lines = [names]
        for row in rows if row_limit < 0 else rows[:row_limit]:
            cells = [_cut(row.name, max_name_column_width)]
            # The sum is of operators only, so a range's own time has no share of it.
            total_ns = None if row.kind == "range" else row.cpu_total_ns
            cells += [_share(row.cpu_self_ns, cpu_ns), _time(row.cpu_self_ns)]
            cells += [_share(total_ns, cpu_ns), _time(row.cpu_total_ns)]
            cells.append(_time(row.cpu_total_ns, row.calls))
            if has_device:
                cells += [_time(row.device_self_ns), _share(row.device_self_ns, device_ns)]
                cells += [_time(row.device_total_ns), _time(row.device_total_ns, row.calls)]
            cells.append(str(row.calls))
            cells += [_cut(row.input_shapes, max_shapes_column_width)] if has_shapes else []
            lines.append(cells)
        widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
        rule = "  ".join("-" * width for width in widths)
        text = [header] if header else []
        text.append(rule)
        for number, line in enumerate(lines):
            text.append("  ".join(cell.rjust(width) for cell, width in zip(line, widths)))
            text += [rule] if number == 0 else []
        text.append(rule)
        if not self.missing:
            text.append("Self CPU time total: %s" % _time(int(cpu_ns)))
        if has_device:
            text.append("Self CUDA time total: %s" % _time(int(device_ns)))
        text += [self.missing] if self.missing else []
        text += ["note: " + note for note in self.notes]
        return "\n".join(text) + "\n"

    def __str__(self) -> str:
        return self.table()


def averages(of: Results, by_shape: bool) -> Averages:
    """Returns the rows of a part: operators, ranges of the program, kernels."""
    made = Averages()
    made.missing = of.missing
    made.notes = of.notes()
    rows = of.table("operators", "shapes" if by_shape else "operators")
    for row in rows:
        one = Average(
            "operator", row["operator"], row["runs"],
            cpu_total_ns=row["total_ns"], cpu_self_ns=row["own_ns"],
            device_total_ns=row.get("device_total_ns"), device_self_ns=row["device_ns"],
        )
        one.input_shapes = row.get("input_shapes", "")
        made.append(one)
    if not rows and not of.missing:
        made.missing = "no operators were recorded: tprof run --operators shapes -- python ..."
    own = {row["name"] for row in of.table("spans", "spans")}
    # Spans of `tprof.range` are in both tables, so they are left out here.
    for row in [row for row in of.table("annotations", "annotations") if row["range"] not in own]:
        made.append(Average("range", row["range"], row["runs"], cpu_total_ns=row["host_ns"],
                            device_total_ns=row["busy_ns"]))
    for row in of.table("spans", "spans"):
        made.append(
            Average("range", row["name"], row["runs"], cpu_total_ns=row["total_ns"],
                    device_total_ns=row["busy_ns"])
        )
    for row in of.table("kernels", "kernels"):
        calls = row["count"] + row["outside_count"]
        device_ns = row["total_ns"] + row["outside_ns"]
        made.append(Average("kernel", row["name"], calls, device_total_ns=device_ns, device_self_ns=device_ns))
    return made


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def _share(time_ns: Optional[int], of_ns: float) -> str:
    return "-" if time_ns is None or not of_ns else "%.2f%%" % (100 * time_ns / of_ns)


def _time(time_ns: Optional[int], calls: int = 1) -> str:
    """Returns a time as torch.profiler writes it."""
    if time_ns is None:
        return "-"
    us = time_ns / 1e3 / max(calls, 1)
    for unit, least in (("s", 1e6), ("ms", 1e3)):
        if us >= least:
            return "%.3f%s" % (us / least, unit)
    return "%.3fus" % us


def duration(time_ns: int) -> str:
    """Returns a time as text for people."""
    for unit, least in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if time_ns >= least:
            return "%.2f %s" % (time_ns / least, unit)
    return "%d ns" % time_ns


def size(count: int) -> str:
    """Returns a number of bytes as text for people."""
    for unit, least in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= least:
            return "%.1f %s" % (count / least, unit)
    return "%d B" % count


def of_part(from_ns: int, to_ns: int) -> Results:
    """Returns the results of the part that was recorded between these times."""
    if not _abi.UNDER_TPROF:
        return Results(_NO_RUN)
    if not from_ns:
        return Results(_NO_PART)
    return Results("", from_ns, to_ns)
