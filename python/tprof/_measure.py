"""``tprof.run`` measures the times of a function's calls; ``tprof.compare`` compares two measurements."""

from __future__ import annotations

import math
import time

from ._range import range as span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional, Sequence, Tuple

_RESAMPLES = 2000
"""Samples of the bootstrap: with so many, the interval's ends vary by about 1 % of its width."""


class Distribution:
    """Times of the calls of one function, in the order of the calls.

    ``wall_ns`` holds the nanoseconds from call to return. ``cpu_ns`` holds the CPU time of all threads of the
    process in that interval, which some kernels count in steps of up to 1 ms. ``result`` is the value that the
    last call returned.
    """

    def __init__(
        self, name: str, wall_ns: Sequence[int], cpu_ns: Sequence[int], result: Any = None
    ) -> None:
        self.name = name
        self.wall_ns = tuple(wall_ns)
        self.cpu_ns = tuple(cpu_ns)
        self.result = result
        self._sorted = sorted(wall_ns)

    def __len__(self) -> int:
        return len(self.wall_ns)

    @property
    def median_ns(self) -> float:
        return self.quantile_ns(0.5)

    @property
    def mean_ns(self) -> float:
        return math.fsum(self.wall_ns) / len(self.wall_ns)

    @property
    def min_ns(self) -> int:
        return self._sorted[0]

    @property
    def max_ns(self) -> int:
        return self._sorted[-1]

    @property
    def stdev_ns(self) -> Optional[float]:
        """The standard deviation of the sample (n - 1), in nanoseconds; None for a single time."""
        if len(self.wall_ns) < 2:
            return None
        mean = self.mean_ns
        squares = math.fsum((value - mean) ** 2 for value in self.wall_ns)
        return math.sqrt(squares / (len(self.wall_ns) - 1))

    def quantile_ns(self, fraction: float) -> float:
        """Returns the time that this fraction (0 to 1) of the calls took at most, interpolated between two calls.
        Raises ValueError if the fraction isn't from 0 to 1."""
        return _quantile(self._sorted, fraction)

    def interval_ns(self, confidence: float = 0.95) -> Optional[Tuple[float, float]]:
        """Returns an interval around the median, by the percentiles of the bootstrap. Returns None for fewer than
        5 times, which are too few for one."""
        if len(self.wall_ns) < _LEAST:
            return None
        medians = _medians(self.wall_ns, 0)
        return _ends(medians, confidence)

    def __repr__(self) -> str:
        interval = self.interval_ns()
        within = "" if interval is None else " (%s to %s at 95 %%)" % tuple(map(_time, interval))
        return "%s: median %s%s, %s to %s, %d calls" % (
            self.name,
            _time(self.median_ns),
            within,
            _time(self.min_ns),
            _time(self.max_ns),
            len(self.wall_ns),
        )


class Comparison:
    """Two distributions, compared. ``speedup`` is the median of ``a`` divided by that of ``b``: it is above 1 if
    ``b`` is faster."""

    def __init__(self, a: Distribution, b: Distribution, confidence: float = 0.95) -> None:
        self.a, self.b, self.confidence = a, b, confidence
        self.speedup = a.median_ns / b.median_ns if b.median_ns else math.inf
        self.difference_ns = b.median_ns - a.median_ns
        """The median of ``b`` minus the median of ``a``."""
        self.interval: Optional[Tuple[float, float]] = None
        """Interval of the speedup at this confidence; None if one of the two has fewer than 5 times."""
        if min(len(a), len(b)) >= _LEAST:
            pairs = zip(_medians(a.wall_ns, 1), _medians(b.wall_ns, 2))
            ratios = sorted(one / other if other else math.inf for one, other in pairs)
            self.interval = _ends(ratios, confidence)

    @property
    def is_significant(self) -> Optional[bool]:
        """Whether the interval excludes 1; None if there is no interval."""
        return None if self.interval is None else not self.interval[0] <= 1 <= self.interval[1]

    def __repr__(self) -> str:
        if self.interval is None:
            verdict = "too few calls for an interval"
        else:
            verdict = "%.3f to %.3f at %g %%" % (*self.interval, self.confidence * 100)
            if not self.is_significant:
                verdict += ": no difference shown"
        return "%s against %s: %.3f times as fast (%s)" % (self.b.name, self.a.name, self.speedup, verdict)


_LEAST = 5


def run(
    target: Callable[..., Any],
    *args: Any,
    warmup: int = 5,
    iterations: int = 20,
    name: Optional[str] = None,
    sync: Optional[Callable[[], Any]] = None,
) -> Distribution:
    """Calls ``target(*args)`` ``warmup`` times without measuring it, then ``iterations`` times. Returns the times
    of the latter.

    A call that starts work on a device may return before the work is done: ``sync``, such as
    ``torch.cuda.synchronize``, is called after each call, and its time is included. Under tprof each measured call
    is a span with this ``name``, by default the function's. Exceptions of the target pass through. Raises
    ValueError if ``warmup`` is below 0 or ``iterations`` is below 1.
    """
    if warmup < 0 or iterations < 1:
        raise ValueError(
            "warmup must be 0 or more and iterations 1 or more, not %r and %r" % (warmup, iterations)
        )
    name = name or str(getattr(target, "__name__", type(target).__name__))
    wall: List[int] = []
    cpu: List[int] = []
    result = None
    measured = span(name)
    for _ in [None] * warmup:
        target(*args)
        if sync is not None:
            sync()
    for _ in [None] * iterations:
        with measured:
            cpu_ns, start_ns = time.process_time_ns(), time.perf_counter_ns()
            result = target(*args)
            if sync is not None:
                sync()
            wall.append(time.perf_counter_ns() - start_ns)
            cpu.append(time.process_time_ns() - cpu_ns)
    return Distribution(name, wall, cpu, result)


def compare(a: Distribution, b: Distribution, confidence: float = 0.95) -> Comparison:
    """Returns how many times as fast ``b`` is as ``a``, with an interval by the bootstrap of the medians. To compare
    two runs of tprof, call ``tprof.load(a).diff(b)``. Raises TypeError unless both are Distributions."""
    for one in (a, b):
        if not isinstance(one, Distribution):
            raise TypeError("compare takes results of tprof.run, not %r" % (one,))
    return Comparison(a, b, confidence)


def _quantile(ordered: Sequence[float], fraction: float) -> float:
    if not 0 <= fraction <= 1:
        raise ValueError("a fraction is from 0 to 1, not %r" % (fraction,))
    place = fraction * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _medians(values: Sequence[int], seed: int) -> List[float]:
    """Returns medians of samples that are drawn from these values with replacement, the same each time."""
    import random

    draw = random.Random(seed)
    size = len(values)
    return [_quantile(sorted(draw.choices(values, k=size)), 0.5) for _ in [None] * _RESAMPLES]


def _ends(resampled: Sequence[float], confidence: float) -> Tuple[float, float]:
    ordered = sorted(resampled)
    outside = (1 - confidence) / 2
    return _quantile(ordered, outside), _quantile(ordered, 1 - outside)


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return "%.3g %s" % (ns / size, unit)
    return "%.3g ns" % ns
