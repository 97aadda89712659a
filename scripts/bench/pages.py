"""Measures the timeline of a million events in a headless browser: first paint,
frames a second while it moves, bytes per event.

    scripts/bench/pages.py [--tprof PATH] [--json FILE]

A browser without a graphics card draws in software, so these are worst cases.
"""

import argparse
import base64
import gzip
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "pages"))

import chromium  # noqa: E402
import runs  # noqa: E402

# Number of steps of four ranks that give a million events.
STEPS = 700
OPENINGS = 3
FRAMES = """new Promise(done => {
  const times = [];
  const frame = (now) => {
    times.push(now);
    if (times.length < 91) requestAnimationFrame(frame);
    else done(times.slice(1).map((time, i) => time - times[i]));
  };
  requestAnimationFrame(frame);
})"""


def events(page):
    packed = re.search(r'id="payload">([^<]*)<', page.read_text()).group(1)
    raw = gzip.decompress(base64.b64decode(packed))
    head = json.loads(raw[4:4 + struct.unpack("<I", raw[:4])[0]])
    return sum(lane["count"] for lane in head["lanes"])


def hold(page, key, kind):
    page.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=ord(key.upper()),
              **({"text": key} if kind == "keyDown" else {}))


def moving(page):
    """Returns the frames per second while `d` is held, at several magnifications."""
    page.run("document.querySelector('#scroll').focus()")
    rates = []
    for zoom in (0, 0.4, 0.6, 0.8):
        if zoom:
            hold(page, "w", "keyDown")
            time.sleep(zoom)
            hold(page, "w", "keyUp")
        hold(page, "d", "keyDown")
        frames = page.run(FRAMES)
        hold(page, "d", "keyUp")
        rates.append((page.text("#span"), 1000 / statistics.mean(frames), sorted(frames)[int(len(frames) * 0.95)]))
    return rates


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--tprof", type=Path, default=runs.TPROF)
    parse.add_argument("--json", type=Path)
    args = parse.parse_args()
    if not chromium.find():
        sys.exit("there is no Chromium to measure with: scripts/test-deps.sh installs one")
    run = runs.made("--steps", str(STEPS), "--ranks", "4")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, chromium.Chromium() as browser:
        file = Path(folder) / "timeline.html"
        before = os.times()
        subprocess.run([args.tprof, "export", run, "--to", "timeline", "-o", file], check=True, capture_output=True)
        after = os.times()
        cpu_s = after.children_user - before.children_user + after.children_system - before.children_system
        count, size = events(file), file.stat().st_size
        painted = []
        for opening in range(OPENINGS + 1):
            page = browser.open(file)
            # The first page includes the browser's own start.
            if opening:
                painted.append(float(page.run("document.documentElement.dataset.painted")))
            if opening < OPENINGS:
                page.close()
        rates = moving(page)
    rows = [
        ("first paint, median", statistics.median(painted), "ms", 2000, "most"),
        ("frames a second, slowest magnification", min(rate for _, rate, _ in rates), "1/s", 30, "least"),
        ("bytes per event", size / count, "B", 12, "most"),
        ("export, events per CPU second", count / cpu_s, "1/s", None, ""),
    ]
    print(f"timeline of {count:,} events, {size / 1e6:.1f} MB; load at start {load:.1f} on {os.cpu_count()} CPUs")
    for what, value, unit, target, side in rows:
        met = "" if target is None else "ok" if (value <= target if side == "most" else value >= target) else "MISSED"
        goal = "" if target is None else f"at {side} {target} {unit}"
        print(f"  {what:<42} {value:>12,.1f} {unit:<4} {goal:<18} {met}")
    for span, rate, slow in rates:
        print(f"    {span:>8} shown: {rate:5.1f} frames a second, 95 of 100 within {slow:.0f} ms")
    if args.json:
        args.json.write_text(json.dumps({
            "events": count, "bytes": size, "load_at_start": load,
            "rows": [dict(zip(("what", "value", "unit", "target", "side"), row)) for row in rows],
        }, indent=1) + "\n")


if __name__ == "__main__":
    main()
