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
# The name of a kernel in the made-up run.
HOSTILE = "<img src=x onerror=document.title='owned'></script><b>kernel"

_kept = []


def directory():
    """Returns a directory that lasts as long as the tests."""
    _kept.append(tempfile.TemporaryDirectory(prefix="tprof-pages-"))
    return Path(_kept[-1].name)


@functools.cache
def maker():
    """Returns the example program that writes made-up runs."""
    named = os.environ.get("TPROF_PAGE_RUN")
    if named:
        return named
    command = ["cargo", "build", "--quiet", "--locked", "-p", "tprof-export", "--example", "page_run"]
    subprocess.run(command, cwd=ROOT, check=True)
    return str(TARGET / "debug" / "examples" / "page_run")


@functools.cache
def made(*options):
    """Returns a made-up run."""
    run = directory() / "run"
    subprocess.run([maker(), run, *options], check=True)
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
