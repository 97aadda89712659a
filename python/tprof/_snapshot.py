"""Snapshots in the form of PyTorch's ``torch.cuda.memory._dump_snapshot``, for ``torch.cuda._memory_viz``,
https://pytorch.org/memory_viz and ``tprof import``."""

from __future__ import annotations

from . import _session
from ._binary import TprofError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List


def _frame(text: str) -> Dict[str, Any]:
    """Returns a frame as PyTorch has it, from ``function (file:line)``, ``function (library)`` or
    ``function``."""
    name, separator, place = text.rpartition(" (")
    if not separator or not place.endswith(")"):
        return {"name": text, "filename": "", "line": 0}
    filename, _, line = place[:-1].rpartition(":")
    if not line.isdigit():
        return {"name": name, "filename": place[:-1], "line": 0}
    return {"name": name, "filename": filename, "line": int(line)}


def of_heap(held: Dict[str, Any], rank: int) -> Dict[str, Any]:
    """Returns a snapshot of a rank's heap, made of the output of ``tprof ctl snapshot --json``. It has one segment,
    with a block for each site. The viewer knows only devices, so the heap is its device 0, and addresses are
    offsets in this list. The key ``tprof`` says whether the bytes are estimates. Raises TprofError if the heap
    wasn't measured."""
    label = "rank %d" % rank
    total = None
    for row in held["tables"]["ranks"]:
        if row["rank"] == label:
            total = row["live_bytes"]
            if total is None:
                raise TprofError("the heap is not measured: %s" % row.get("live_bytes_missing", "unknown"))
    if total is None:
        raise TprofError("the run has no %s yet" % label)
    blocks: List[Dict[str, Any]] = []
    address = 0
    is_estimate = False
    frames: Dict[str, Dict[str, Any]] = {}
    for row in held["tables"]["sites"]:
        size = row["live_bytes"]
        if row["rank"] != label or not size:
            continue
        is_estimate = is_estimate or "error_live_bytes" in row
        stack = [frames.setdefault(text, _frame(text)) for text in row["stack"].split("\n") if text]
        blocks.append({"address": address, "size": size, "requested_size": size,
                       "state": "active_allocated", "frames": stack})
        address += size
    segment = {"device": 0, "address": 0, "total_size": address, "allocated_size": address,
               "active_size": address, "requested_size": address, "stream": 0, "segment_type": "large",
               "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}
    about = {"what": "host heap of %s" % label, "live_bytes": total, "estimate": is_estimate}
    return {"segments": [segment] if blocks else [], "device_traces": [[]], "allocator_settings": {},
            "external_annotations": [], "tprof": about}


def write(path: str, held: Dict[str, Any], rank: int) -> None:
    """Writes PyTorch's own snapshot if this program uses a device, else a snapshot of the host's heap. Raises
    TprofError if the heap wasn't measured, and OSError if the file can't be written."""
    cuda = _session.torch_cuda()
    if cuda is not None:
        cuda.memory._dump_snapshot(path)
        return
    import pickle

    made = of_heap(held, rank)
    with open(path, "wb") as file:
        pickle.dump(made, file, protocol=4)
