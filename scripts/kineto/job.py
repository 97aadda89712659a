"""A job that torch.profiler records in several ways: job.py WORK_LIBRARY OUT. Prints the content of each trace, and how
many of its events are at impossible times. The output is the same with tprof and without."""

import collections
import ctypes
import json
import pathlib
import sys
import time
import types
import warnings

warnings.filterwarnings("ignore")
import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile, record_function, schedule  # noqa: E402

library, out = ctypes.CDLL(sys.argv[1]), pathlib.Path(sys.argv[2])
out.mkdir(parents=True, exist_ok=True)
BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
KERNELS = 5
traces = []


def step():
    with record_function("step"):
        if error := library.work(KERNELS):
            sys.exit(f"CUDA error {error}")


def keep(profiler):
    traces.append(out / f"trace-{len(traces)}.json")
    profiler.export_chrome_trace(str(traces[-1]))


def summary(path):
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X"]
    kinds = collections.Counter(e.get("cat", "") for e in events)
    ranges = [e for e in events if e.get("name") == "step" and e.get("cat") == "user_annotation"]
    first = min((e["ts"] for e in ranges), default=0)
    last = max((e["ts"] + e["dur"] for e in ranges), default=0)
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime")]
    # Times are in microseconds; a step on the stand-ins takes less than a second.
    wild = sum(not (first - 1000 <= e["ts"] and e["ts"] + e["dur"] <= last + 1e6) for e in work if ranges)
    long = sum(e["dur"] > 1e6 or e["dur"] < 0 for e in work)
    calls = {e["args"].get("correlation") for e in events if e.get("cat") == "cuda_runtime"}
    orphans = sum(e["args"].get("correlation") not in calls for e in work)
    threads = {e["tid"] for e in events if e.get("cat") == "cuda_runtime"}
    kept = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cuda_sync", "user_annotation")
    return {k: kinds[k] for k in kept} | {"wild": wild, "long": long, "without_call": orphans, "threads": len(threads)}


assert torch.cuda.is_available()
# PyTorch's own use of the device needs more than the stand-ins have; its profiler only waits for the device.
torch.cuda.synchronize = library.cudaDeviceSynchronize
# PyTorch's compiler needs packages that are not installed here, and the profiler asks it for only one setting.
config = types.ModuleType("torch._inductor.config")
config.triton = types.SimpleNamespace(cudagraphs=False)
torch._inductor = types.ModuleType("torch._inductor")
torch._inductor.config = config
sys.modules |= {"torch._inductor": torch._inductor, "torch._inductor.config": config}
step()
for _ in range(2):
    with profile(activities=BOTH) as profiler:
        for _ in range(4):
            step()
    keep(profiler)
    step()
with profile(activities=BOTH, schedule=schedule(wait=1, warmup=1, active=2, repeat=3), on_trace_ready=keep) as profiler:
    for _ in range(14):
        step()
        profiler.step()
for _ in range(4):
    step()
    time.sleep(0.3)
with profile(activities=BOTH, experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)) as profiler:
    for _ in range(3):
        step()
keep(profiler)
step()
for path in traces:
    print(path.name, json.dumps(summary(path)))
