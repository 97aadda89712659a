"""Switches the recording of this process, and asks the run for snapshots."""

from __future__ import annotations

import os

from . import _abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Union


_is_on = True


def switch(on: bool) -> bool:
    """Switches the recording of this process. Returns how the program had switched it before, True at first."""
    global _is_on
    before, _is_on = _is_on, on
    # Recording is not switched without need: after a pause, however short, live bytes are unknown.
    if before != on:
        _abi.record(on)
    return before


def start() -> bool:
    """Switches the recording of this process on again after ``stop()``, at once. Recording that
    ``tprof run --paused``, ``tprof ctl stop`` or a schedule switched off stays off. Returns whether the process
    is recorded now, which is False without tprof."""
    switch(True)
    return _abi.is_recording()


def stop() -> bool:
    """Switches the recording of this process off, at once; tprof then costs next to nothing. The run says for which
    time recording was off. Returns whether the process is still recorded, which is False."""
    switch(False)
    return _abi.is_recording()


def snapshot(path: Optional[Union[str, "os.PathLike[str]"]] = None) -> Optional[Dict[str, Any]]:
    """Returns what each rank of the run holds at this moment: its live bytes and the sites that hold most, in
    the form that ``tprof ctl snapshot --json`` prints (docs/metrics.md). The run keeps it as
    ``snapshot-N.json``, and a copy is written to ``path``. If ``path`` ends in ``.pickle``, it gets this process's
    memory in the form of ``torch.cuda.memory._dump_snapshot``, which ``torch.cuda._memory_viz`` and
    ``tprof import`` read. PyTorch writes it if the program has begun to use a device; otherwise it is the
    host's heap. The call takes a fraction of a second. Without tprof nothing is written and None is returned.

    Raises TprofError if the run can't be asked, and OSError if ``path`` can't be written.
    """
    if not _abi.UNDER_TPROF:
        return None
    from . import _session

    made = _session.document("ctl", "snapshot", "--json", _session.run_directory() or "")
    if path is not None and os.fspath(path).endswith(".pickle"):
        from . import _snapshot

        _snapshot.write(os.fspath(path), made, _session.rank())
    elif path is not None:
        import json

        with open(path, "w", encoding="utf-8") as file:
            json.dump(made, file, indent=2)
            file.write("\n")
    return made
