"""Asks NVIDIA's host library which metrics of `--gpu-metrics` its chips have, and whether they fit into one pass.

`pm_metrics.py FOLDER CHIP…` takes the folder with `libcupti.so.*` and `libnvperf_host.so`, such as that of the wheel `nvidia-cuda-cupti`. The
library knows all chips and needs neither a driver nor a device. For each chip it prints, in the order of
`crates/collect/src/gpu_metrics/choice.rs`, each counter with the metric that tprof would take, or why there is none.
"""

import ctypes
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHOICES = ROOT / "crates/collect/src/gpu_metrics/choice.rs"
ENDS = {"share": ".avg.pct_of_peak_sustained_elapsed", "rate": ".sum.per_second"}
PM_SAMPLING = 1
Pointer, Size = ctypes.c_void_p, ctypes.c_size_t


def choices():
    """Yields each counter with its metrics, best first."""
    text = CHOICES.read_text().split("pub const CHOICES", 1)[1]
    for kind, counter, rest in re.findall(r"(share|rate)!\(\s*(\w+),(.*?)\)", text, re.S):
        yield counter, [name + ENDS[kind] for name in re.findall(r'"([^"]+)"', rest)]


def params(*fields):
    """Returns parameters of CUPTI's with these fields behind the size and the private pointer."""
    kind = type("Params", (ctypes.Structure,), {"_fields_": [("size", Size), ("private", Pointer), *fields]})
    made = kind()
    made.size = ctypes.sizeof(kind)
    return made


def passes(cupti, chip, names):
    """Returns the number of passes of these metrics, or None if the chip lacks one."""
    made = params(("type", ctypes.c_int), ("chip", ctypes.c_char_p), ("available", Pointer), ("object", Pointer))
    made.type, made.chip = PM_SAMPLING, chip.encode()
    result = cupti.cuptiProfilerHostInitialize(ctypes.byref(made))
    if result:
        sys.exit(f"cuptiProfilerHostInitialize({chip}) returned {result}")
    added = params(("object", Pointer), ("names", ctypes.POINTER(ctypes.c_char_p)), ("count", Size))
    added.object, added.count = made.object, len(names)
    added.names = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
    found = None
    if cupti.cuptiProfilerHostConfigAddMetrics(ctypes.byref(added)) == 0:
        size = params(("object", Pointer), ("bytes", Size))
        size.object = made.object
        cupti.cuptiProfilerHostGetConfigImageSize(ctypes.byref(size))
        image = ctypes.create_string_buffer(size.bytes)
        filled = params(("object", Pointer), ("bytes", Size), ("image", Pointer))
        filled.object, filled.bytes, filled.image = made.object, size.bytes, ctypes.cast(image, Pointer)
        if cupti.cuptiProfilerHostGetConfigImage(ctypes.byref(filled)) == 0:
            asked = params(("bytes", Size), ("image", Pointer), ("passes", Size))
            asked.bytes, asked.image = size.bytes, filled.image
            if cupti.cuptiProfilerHostGetNumOfPasses(ctypes.byref(asked)) == 0:
                found = asked.passes
    ended = params(("object", Pointer))
    ended.object = made.object
    cupti.cuptiProfilerHostDeinitialize(ctypes.byref(ended))
    return found


def main():
    folder = pathlib.Path(sys.argv[1])
    ctypes.CDLL(str(folder / "libnvperf_host.so"), mode=ctypes.RTLD_GLOBAL)
    cupti = ctypes.CDLL(str(next(folder.glob("libcupti.so.1*"))))
    cupti.cuptiProfilerInitialize(ctypes.byref(params()))
    for chip in sys.argv[2:]:
        taken = []
        print(chip)
        for counter, metrics in choices():
            tried = {metric: passes(cupti, chip, [*taken, metric]) for metric in metrics}
            fits = next((metric for metric, count in tried.items() if count == 1), None)
            taken += [fits] if fits else []
            why = "another pass" if any(tried.values()) else "no metric"
            print(f"  {counter}: {fits or why}")


if __name__ == "__main__":
    main()
