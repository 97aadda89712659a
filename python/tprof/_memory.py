"""``tprof.MemoryTracker``: the peak memory of a block, as the kernel and PyTorch count it."""

from __future__ import annotations

from . import _session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Optional, Type


def _most_resident() -> Optional[int]:
    """Returns the most bytes that were resident so far (VmHWM of proc(5)), or None if that can't be read."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _bytes(value: Optional[int]) -> str:
    return "unknown" if value is None else "%.1f MiB" % (value / 2**20)


class MemoryTracker:
    """Peak memory around a block, under cache-dit's name: ``with MemoryTracker() as tracker: ...``, and then
    ``tracker.report()``, which prints it. The tracker reads counts that the kernel and PyTorch keep anyway, with
    and without tprof. ``tprof report memory`` shows which code allocated the memory.

    If the program has used a CUDA device, the tracker resets PyTorch's peak when the block begins.
    """

    def __init__(self) -> None:
        self.peak_resident_bytes: Optional[int] = None
        """The most resident bytes of this process, from its start to the block's end."""
        self.peak_is_of_block = False
        """Whether that peak was reached within the block; otherwise it is an upper bound for the block."""
        self.peak_device_bytes: Optional[int] = None
        """The most bytes of PyTorch's tensors on the current device; None if no device is in use."""
        self._before: Optional[int] = None

    def __enter__(self) -> "MemoryTracker":
        self._before = _most_resident()
        cuda: Any = _session.torch_cuda()
        if cuda is not None:
            cuda.reset_peak_memory_stats()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]] = None,
        value: Optional[BaseException] = None,
        traceback: Optional[TracebackType] = None,
    ) -> None:
        self.peak_resident_bytes = _most_resident()
        before, after = self._before, self.peak_resident_bytes
        self.peak_is_of_block = before is not None and after is not None and after > before
        cuda: Any = _session.torch_cuda()
        self.peak_device_bytes = cuda.max_memory_allocated() if cuda is not None else None

    def report(self) -> None:
        """Prints the peaks as one line on stdout."""
        bound = "" if self.peak_is_of_block or self.peak_resident_bytes is None else "at most "
        text = "peak memory: %s%s resident" % (bound, _bytes(self.peak_resident_bytes))
        if self.peak_device_bytes is not None:
            text += ", %s of tensors on the device" % _bytes(self.peak_device_bytes)
        print(text)
