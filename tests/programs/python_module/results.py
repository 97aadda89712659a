"""Requests the results of parts of its own run. Prints facts that hold for each run."""

import sys

import tprof


def work(name, size):
    with tprof.range(name):
        block = bytearray(size)
        return len(block) + sum(value * value for value in range(20_000))


def ranges(of):
    return dict(sorted((row.name, row.calls) for row in of.key_averages() if row.kind == "range"))


def main():
    work("before", 1 << 20)
    profiler = tprof.profile()
    print("not begun:", ranges(profiler), profiler.device_time_ns, profiler.peak_bytes, profiler.findings())
    with profiler:
        for _ in range(3):
            work("inside", 10 << 20)
        print("within:", ranges(profiler))
        work("last", 1)
    print("behind it:", ranges(profiler))
    work("behind", 1)
    summary = profiler.summary()
    print("again:", ranges(profiler), sorted(row["name"] for row in profiler.report("spans")["tables"].get("spans", [])))
    allocated = summary["allocated_bytes"]
    print("allocated:", allocated is not None and 30 << 20 <= allocated < 31 << 20)
    peak = profiler.peak_bytes
    print("peak:", peak is None or 10 << 20 <= peak, (peak is None) == ("peak_bytes" in summary["missing"]))
    print("device:", profiler.device_time_ns, summary["missing"]["device_time_ns"])
    print("table:", profiler.key_averages().table(sort_by="cuda_time_total", row_limit=1).splitlines()[-1])
    print("text:", str(summary).splitlines()[1])
    try:
        profiler.key_averages().table(sort_by="nothing")
    except ValueError as error:
        print("refused:", error)

    cycles = []
    schedule = tprof.schedule(wait=1, warmup=1, active=2, repeat=2)
    with tprof.profile(schedule=schedule, on_trace_ready=lambda of: cycles.append(ranges(of))) as of:
        for step in range(8):
            work("step %d" % step, 1)
            of.step()
    print("cycles:", cycles)


sys.stdout.reconfigure(line_buffering=True)
main()
