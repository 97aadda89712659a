"""Takes the pictures of docs/images: tprof's pages in a real browser.

    scripts/pictures.py TRACE SIZED [--gpu RUN] [--torch PYTHON] [--tprof PATH] [-o DIR]

The flame graph shows a run of examples/clicks.py, made now. The timeline shows TRACE, the roofline SIZED, which has
sizes of operators' inputs: docs/guide.md names both, and where they are from. The report and the README's picture
show RUN, which was recorded on a GPU.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "pages"))

import chromium  # noqa: E402
import runs  # noqa: E402

# Selected in the picture of the timeline, because a collective has the most details.
CHOSEN = "ncclKernel_AllReduce"


def timeline(browser, file, out):
    page = browser.open(file, width=1280, height=800)
    page.run("document.querySelector('#scroll').focus()")
    for _ in range(2):
        page.key("]")
        page.settle()
    page.key("/")
    page.type(CHOSEN)
    page.key("Enter")
    page.run("const s = document.querySelector('#search'); s.value = ''; s.dispatchEvent(new Event('input')); document.querySelector('#scroll').focus()")
    page.run("document.querySelector('#scroll').scrollTop = 0")
    page.run("document.activeElement.blur()")
    page.picture(out / "timeline.png")
    page.close()


def flame(browser, file, out):
    page = browser.open(file, width=1280, height=470, dark=True)
    page.picture(out / "flame.png")
    page.close()


def report(browser, file, out):
    page = browser.open(file, width=1280, height=900)
    page.picture(out / "report.png")
    page.close()


def roofline(browser, file, out):
    page = browser.open(file, width=1280, height=560)
    page.run("const title = document.querySelector('circle.point').closest('svg').previousElementSibling.previousElementSibling; title.scrollIntoView(); document.getElementById('main').scrollBy(0, -12)")
    page.picture(out / "roofline.png")
    page.close()


def gpu_time(browser, file, out):
    page = browser.open(file, width=1280, height=600)
    page.run("document.getElementById('gpu-time').scrollIntoView()")
    page.picture(out / "gpu-time.png")
    page.close()


def live(browser, tprof, torch, folder, out):
    """The live page of a job of two ranks, while one of them holds the other up."""
    runs_of = folder / "runs"
    runs_of.mkdir()
    torchrun = [torch, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    module = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    job = subprocess.Popen([tprof, "run", "--quiet", "-o", runs_of / "live", "--", *torchrun, "examples/live.py", "60"], cwd=ROOT, env=module, stderr=subprocess.DEVNULL)
    server = subprocess.Popen([tprof, "serve", "--no-browser", runs_of], stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().strip()
        page = browser.blank()
        page.go(address, width=1280, height=900)
        page.wait("document.body.textContent.includes('live.py')", 60)
        page.run("location.hash = '#/live/1'")
        # At the second stall, the curves are long enough to show.
        for _ in range(2):
            page.wait("document.querySelector('#main').textContent.includes('has made no step')", 120)
            if _ == 0:
                page.wait("!document.querySelector('#main').textContent.includes('has made no step')", 120)
        page.settle()
        page.picture(out / "live.png")
        page.close()
    finally:
        server.terminate()
        job.terminate()
        job.wait()
        server.wait()


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("trace", type=Path)
    parse.add_argument("sized", type=Path)
    parse.add_argument("--gpu", type=Path, help="a run that was recorded on a GPU")
    parse.add_argument("--torch", type=Path, help="a Python with PyTorch, for the live page")
    parse.add_argument("--tprof", type=Path, default=runs.TPROF)
    parse.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "images")
    args = parse.parse_args()
    if not chromium.find():
        sys.exit("there is no Chromium to take pictures with: scripts/test-deps.sh installs one")
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium.Chromium() as browser:
        # Use the interpreter itself, not a version manager's script.
        clicks, program = Path(folder) / "clicks", ["python3", "examples/clicks.py"]
        found = {**os.environ, "PATH": f"{Path(sys.executable).resolve().parent}:{os.environ['PATH']}"}
        subprocess.run([args.tprof, "run", "--quiet", "-o", clicks, "--", *program], check=True, cwd=ROOT, env=found, stdout=subprocess.DEVNULL)
        pictures = [("flame", flame, clicks), ("timeline", timeline, args.trace), ("report", report, args.gpu or args.trace), ("roofline", roofline, args.sized)]
        if args.gpu:
            pictures.append(("gpu-time", gpu_time, args.gpu))
        for name, take, run in pictures:
            file = Path(folder) / f"{name}.html"
            page = name if name in ("flame", "timeline") else "report"
            subprocess.run([args.tprof, "export", run, "--to", page, "-o", file], check=True, capture_output=True)
            take(browser, file, args.output)
            path = args.output / f"{name}.png"
            print(f"{os.path.relpath(path)}  {path.stat().st_size // 1024} KiB")
        if args.torch:
            live(browser, args.tprof, args.torch, Path(folder), args.output)


if __name__ == "__main__":
    main()
