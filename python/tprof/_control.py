"""What a program switches and asks of the run that records it."""

from __future__ import annotations

import os

from . import _abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Union


_is_on = True


def switch(on: bool) -> bool:
    """Switches recording of this process; how the program had it before, True at first."""
    global _is_on
    before, _is_on = _is_on, on
    # A pause, however short, makes live bytes unknown.
    if before != on:
        _abi.record(on)
    return before


def start() -> bool:
    """Switches recording of this process on, at once, after ``stop()``. What ``tprof run --paused``,
    ``tprof ctl stop`` or a schedule switched off stays off. Returns whether it records now; without
    tprof False."""
    switch(True)
    return _abi.is_recording()


def stop() -> bool:
    """Switches recording of this process off, at once: it costs next to nothing then. The run names
    the time as not recorded. Returns whether it records still: False."""
    switch(False)
    return _abi.is_recording()


def snapshot(path: Optional[Union[str, "os.PathLike[str]"]] = None) -> Optional[Dict[str, Any]]:
    """What each rank of the run holds at this moment: live bytes and the sites that hold most, as
    ``tprof ctl snapshot --json`` prints it (docs/metrics.md). The run keeps it as
    ``snapshot-N.json``; ``path`` gets a copy. A ``path`` that ends in ``.pickle`` gets this process's memory
    in the form of ``torch.cuda.memory._dump_snapshot``, which ``torch.cuda._memory_viz`` and ``tprof
    import`` read: by PyTorch itself where the program has begun to use a device, else the host's
    heap. Takes a fraction of a second, during which the caller waits. Without tprof nothing is
    written and None is returned.

    Raises TprofError if the run cannot be asked, OSError if ``path`` cannot be written.
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
