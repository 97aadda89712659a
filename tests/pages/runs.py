"""Makes the pages to test with the built binaries. Each page is made once, in a directory of its
own."""

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TPROF = Path(os.environ.get("TPROF_TEST_BIN", TARGET / "release" / "tprof"))
# Other tools, as scripts/test-readers.sh fetches them.
READERS = Path(os.environ.get("TPROF_TEST_READERS") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tprof-test-readers")
# The name of a kernel in the made-up run.
HOSTILE = "<img src=x onerror=document.title='owned'></script><b>kernel"

_kept = []


def directory():
    """Returns a directory that lasts as long as the tests."""
    _kept.append(tempfile.TemporaryDirectory(prefix="tprof-pages-"))
    return Path(_kept[-1].name)


@functools.cache
def maker(name="page_run"):
    """Returns an example program that writes made-up runs. A variable such as TPROF_PAGE_RUN names a built one."""
    named = os.environ.get(f"TPROF_{name.upper()}")
    if named:
        return named
    # Of the whole workspace, so that dependencies have the same features as in the other tests, and are not compiled again.
    command = ["cargo", "build", "--quiet", "--locked", "--workspace", "--example", name]
    subprocess.run(command, cwd=ROOT, check=True)
    return str(TARGET / "debug" / "examples" / name)


@functools.cache
def made(*options):
    """Returns a made-up run."""
    run = directory() / "run"
    subprocess.run([maker(), run, *options], check=True)
    return run


@functools.cache
def whole_job(seconds):
    """Returns a made-up run of two ranks that lasts so long, with the figures of its steps only."""
    run = directory() / f"job-{seconds}"
    subprocess.run([maker("history_run"), run, str(seconds)], check=True)
    return run


@functools.cache
def page(to, *options, run=None):
    """Returns a page of a run."""
    path = directory() / f"{to}.html"
    command = [TPROF, "export", run or made(), "--to", to, "-o", path, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


@functools.cache
def compiled():
    """Returns an import of a stored log of torch.compile."""
    run = directory() / "run"
    log = directory() / "dedicated_log_torch_trace_a.log.zst"
    shutil.copy(ROOT / "crates/trace/tests/compile/torch-2.15.log.zst", log)
    subprocess.run([TPROF, "import", log, "-o", run], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return run


@functools.cache
def sampled():
    """Returns a real run of a program that works and sleeps, with CPU samples; its allocations are not recorded."""
    run = directory() / "run"
    work = "import time, json\nuntil = time.time() + 0.4\nwhile time.time() < until: json.loads(json.dumps(list(range(500))))\ntime.sleep(0.1)"
    command = [TPROF, "run", "--quiet", "--mem", "off", "-o", run, "--", "python3", "-c", work]
    # Variables of the tests are not settings of tprof, and tprof refuses settings that it does not know.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TPROF_")}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return run


@functools.cache
def allocator():
    """Returns the folders of a stand-in for PyTorch's allocator, and of one for CUDA."""
    stand_ins, sources, built = TARGET / "stand-ins", ROOT / "tests/programs/device_blocks", directory()
    subprocess.run(["sh", ROOT / "tests/fake-cuda/build.sh", stand_ins], check=True, capture_output=True)
    compiler = ["g++", "-O1", "-shared", "-fPIC", "-DSIGNATURE=2"]
    for name, *libraries in (("c10",), ("c10_cuda", built / "libc10.so", stand_ins / "12/libcudart.so.12")):
        subprocess.run([*compiler, sources / f"{name}.cpp", *libraries, "-o", built / f"lib{name}.so"], check=True)
    return built, stand_ins / "12"


@functools.cache
def with_blocks(way, **more):
    """Returns a real run of a job that takes blocks of device memory in one of the ways of its source. `more` is added
    to its environment."""
    run = directory() / "run"
    command = [TPROF, "run", "--quiet", "--activities", "cpu,gpu", "-o", run, "--", "python3", "-B",
               ROOT / "tests/programs/device_blocks/job.py", way]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TPROF_")}
    environment |= {"LD_LIBRARY_PATH": ":".join(map(str, allocator())), "PYTHONPATH": str(ROOT / "python"),
                    "FAKE_CUDA_DEVICE_BYTES": str((256 if way == "oom" else 192) << 20), "FAKE_CUDA_LEFT_BYTES": str(5 << 20), **more}
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, check=False)
    return run
