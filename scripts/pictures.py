"""Takes the pictures of docs/images: the HTML pages of a run, in a real browser.

    scripts/pictures.py [RUN] [--tprof PATH] [-o DIR]

Without RUN, of the made-up training run that the tests of the pages use.
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


def settle_on(page, steps):
    """Shows this many steps of a timeline, from the second one on."""
    page.run("document.querySelector('#scroll').focus()")
    for _ in range(2):
        page.key("]")
        page.settle()
    page.run("document.activeElement.blur()")
    for _ in range(steps - 1):
        page.key("-")
        page.settle()


def timeline(browser, file, out):
    page = browser.open(file, width=1280, height=860)
    settle_on(page, 1)
    page.key("/")
    page.type("flash")
    page.key("Enter")
    page.key("Escape")
    page.run("document.querySelector('#search').value = ''; document.querySelector('#search').dispatchEvent(new Event('input')); document.activeElement.blur()")
    page.run("document.querySelector('#scroll').scrollTop = 0")
    page.picture(out / "timeline.png")
    page.close()


def flame(browser, file, out):
    page = browser.open(file, width=1280, height=440, dark=True)
    page.picture(out / "flame.png")
    page.close()


def report(browser, file, out):
    page = browser.open(file, width=1280, height=900)
    page.picture(out / "report.png")
    page.close()


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("run", nargs="?", type=Path)
    parse.add_argument("--tprof", type=Path, default=runs.TPROF)
    parse.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "images")
    args = parse.parse_args()
    if not chromium.find():
        sys.exit("there is no Chromium to take pictures with: scripts/test-deps.sh installs one")
    run = args.run or runs.made("--steps", "6", "--plain")
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium.Chromium() as browser:
        for name, take in (("timeline", timeline), ("flame", flame), ("report", report)):
            file = Path(folder) / f"{name}.html"
            part = ["--rank", "0"] if name == "timeline" else []
            subprocess.run([args.tprof, "export", run, "--to", name, "-o", file, *part], check=True, capture_output=True)
            take(browser, file, args.output)
            path = args.output / f"{name}.png"
            print(f"{os.path.relpath(path)}  {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
