"""``tprof.histogram``: the distribution of a program's own values."""

from __future__ import annotations

import sys
from math import inf, isfinite

from . import _abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, List, Optional, Set, Tuple

_SEPARATOR = "\x1f"
"""Separates the name from the counts: crates/wire/src/spans.rs."""
_LONGEST = 3800
"""The largest length of the name and the counts together, in bytes: preload-shim/include/tprof.h."""
_BUCKETS = 30
"""Number of buckets, as many as TensorBoard draws."""
_PIECE = 1 << 20
"""Number of elements of a tensor or array that are converted at once, so that large ones take little memory."""

_refused: Set[str] = set()


def histogram(name: str, values: Any, step: Optional[int] = None) -> None:
    """Records the distribution of ``values`` at this moment, for TensorBoard's histograms. ``values`` is a tensor
    of PyTorch on any device, an array of NumPy or an object that converts to one, or any iterable of numbers. 30
    buckets of equal width between the lowest and the highest value are kept, and the sums; values that are
    infinite or no numbers are counted separately. ``step`` is the step at which TensorBoard draws it, by default
    the current one. The call waits for the values of a tensor on a device.

    While nothing is recorded, the values are not read. Values that can't be read are named on stderr, once for
    each name, and raise nothing. Raises TypeError if the name isn't a str."""
    if not isinstance(name, str):
        raise TypeError("a name must be str")
    if not _abi.is_recording():
        return
    try:
        counted = _counted(values)
    except Exception as error:  # noqa: BLE001 - the program's own numbers must not end it
        if name not in _refused:
            from ._profile import _print

            _refused.add(name)
            _print("the histogram %r is not recorded: %s: %s" % (name, type(error).__name__, error))
        return
    _abi.mark(_text(name, counted, step))


def _text(name: str, counted: "_Counted", step: Optional[int]) -> str:
    from json import dumps

    has_values = bool(counted.counts)
    of = {
        "min": counted.lowest if has_values else None,
        "max": counted.highest if has_values else None,
        "sum": counted.total if isfinite(counted.total) else None,
        "squares": counted.squares if isfinite(counted.squares) else None,
        "counts": counted.counts,
        "not_finite": counted.not_finite,
    }
    if isinstance(step, int) and 0 <= step < 1 << 63:
        of["step"] = int(step)
    values = _SEPARATOR + dumps({"histogram": of}, separators=(",", ":"))
    plain = name.replace(_SEPARATOR, " ").encode("utf-8", "backslashreplace")
    return plain[: _LONGEST - len(values)].decode("utf-8", "ignore") + values


class _Counted:
    """The content of a histogram. The lowest and the highest value are known before the buckets are counted."""

    def __init__(self) -> None:
        self.lowest, self.highest = inf, -inf
        self.total = self.squares = 0.0
        self.counts: List[int] = []
        self.not_finite = 0

    def extend(self, lowest: float, highest: float, total: float, squares: float) -> None:
        self.lowest, self.highest = min(self.lowest, lowest), max(self.highest, highest)
        self.total += total
        self.squares += squares

    def is_flat(self) -> bool:
        """Returns whether all values are equal, or so close that no bucket fits between them."""
        return not self.lowest + (self.highest - self.lowest) / _BUCKETS > self.lowest or not isfinite(
            self.highest - self.lowest
        )

    def add(self, counts: Iterable[float]) -> None:
        self.counts = [a + int(b) for a, b in zip(self.counts or [0] * _BUCKETS, counts)]


def _counted(values: Any) -> _Counted:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(values, torch.Tensor):
        return _of_tensor(torch, values)
    if numpy is not None and hasattr(values, "__array__"):
        return _of_array(numpy, numpy.asarray(values))
    return _of_numbers(values)


def _of_tensor(torch: Any, values: Any) -> _Counted:
    if values.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("a CUDA graph is being captured, during which tprof may not wait for values")
    if values.is_complex():
        raise TypeError("complex numbers have no order")
    counted = _Counted()
    with torch.no_grad():
        values = values.detach().reshape(-1)
        # Apple's devices have no 64-bit numbers.
        wide = torch.float32 if values.device.type == "mps" else torch.float64

        def pieces() -> Iterable[Tuple[Any, int]]:
            for piece in values.split(_PIECE):
                piece = piece.to(wide)
                finite = piece[torch.isfinite(piece)]
                yield finite, len(piece) - len(finite)

        count = 0
        for piece, not_finite in pieces():
            counted.not_finite += not_finite
            count += len(piece)
            if len(piece):
                lowest, highest = torch.aminmax(piece)
                of = torch.stack((lowest, highest, piece.sum(), piece.square().sum()))
                counted.extend(*of.tolist())
        if count and counted.is_flat():
            counted.counts = [count]
        elif count:
            for piece, _ in pieces():
                of = torch.histc(piece, _BUCKETS, counted.lowest, counted.highest)
                counted.add(of.tolist())
    return counted


def _of_array(numpy: Any, values: Any) -> _Counted:
    if numpy.iscomplexobj(values):
        raise TypeError("complex numbers have no order")
    counted = _Counted()
    values = values.reshape(-1)
    count = 0

    def pieces() -> Iterable[Tuple[Any, int]]:
        for at in range(0, len(values), _PIECE):
            piece = values[at : at + _PIECE].astype(numpy.float64)
            finite = piece[numpy.isfinite(piece)]
            yield finite, len(piece) - len(finite)

    with numpy.errstate(all="ignore"):
        for piece, not_finite in pieces():
            counted.not_finite += not_finite
            count += len(piece)
            if len(piece):
                sums = float(piece.sum()), float(numpy.square(piece).sum())
                counted.extend(float(piece.min()), float(piece.max()), *sums)
        if count and counted.is_flat():
            counted.counts = [count]
        elif count:
            for piece, _ in pieces():
                counted.add(numpy.histogram(piece, _BUCKETS, (counted.lowest, counted.highest))[0])
    return counted


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return inf


def _of_numbers(values: Any) -> _Counted:
    counted = _Counted()
    numbers = [_number(value) for value in values]
    finite = [value for value in numbers if isfinite(value)]
    counted.not_finite = len(numbers) - len(finite)
    if finite:
        counted.extend(min(finite), max(finite), sum(finite), sum(value * value for value in finite))
        if counted.is_flat():
            counted.counts = [len(finite)]
        else:
            counted.counts = [0] * _BUCKETS
            width = (counted.highest - counted.lowest) / _BUCKETS
            for value in finite:
                counted.counts[min(int((value - counted.lowest) / width), _BUCKETS - 1)] += 1
    return counted
