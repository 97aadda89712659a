"""``tprof.histogram``: how a program's own values are distributed."""

from __future__ import annotations

import sys
from math import inf, isfinite

from . import _abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, List, Optional, Set, Tuple

_SEPARATOR = "\x1f"
"""Between the name and what was counted: crates/wire/src/spans.rs."""
_LONGEST = 3800
"""Bytes of both: preload-shim/include/tprof.h."""
_BUCKETS = 30
"""As many as TensorBoard draws."""
_PIECE = 1 << 20
"""Elements of a tensor or array that are converted at once, so that large ones take little memory."""

_refused: Set[str] = set()


def histogram(name: str, values: Any, step: Optional[int] = None) -> None:
    """Records how ``values`` are distributed at this moment, for TensorBoard's histograms: a tensor of
    PyTorch on any device, an array of NumPy or what converts to one, or any iterable of numbers. 30
    buckets of one width between the lowest and the highest are kept, with the sums; values that are no
    number or infinite are counted apart. ``step`` is the number it is drawn at, by default that of the
    step it is in. Values of a tensor on a device are waited for.

    While nothing is recorded the values are not looked at. Values that cannot be read are named once on
    stderr, and nothing is raised for them. Raises TypeError if the name is not str."""
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
    """What a histogram has. The lowest and the highest come first, then what lies between."""

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
        """Whether all values are one, or so close that nothing is between them."""
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
        raise RuntimeError("a CUDA graph is being captured, which nothing may wait in")
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
