"""Tests that PyTorch's own page for memory snapshots shows the blocks of a recorded run.

The page is `torch/utils/viz/MemoryViz.js` of PyTorch's sources, which no package contains. TPROF_TEST_MEMORY_VIZ names
that file; without it, the tests are skipped. The page loads d3 from the web; here d3's npm package takes its place.
"""

import base64
import json
import os
import pickle
import re
import subprocess
import sys
import unittest
from pathlib import Path

from case import PageCase
from runs import READERS, TPROF, directory, with_blocks

D3 = READERS / "d3" / "d3.min.js"
MIB = 1 << 20
TIMELINE, HISTORY, SEGMENTS = "Active Memory Timeline", "Allocator State History", "Active Cached Segment Timeline"


def source():
    """Returns the page's script, as one that needs no other files and no network."""
    text = Path(os.environ["TPROF_TEST_MEMORY_VIZ"]).read_text()
    text = re.sub(r'^import \* as d3 from ".*";$', "const d3 = window.d3;", text, flags=re.M)
    text = re.sub(r'^import (\{.*\}) from ".*";$', r"const \1 = window.d3;", text, flags=re.M)
    return re.sub(r"^export ", "", text, flags=re.M)


def page_of(snapshot, view):
    """Returns a page that shows a snapshot in one of the page's views, as torch.cuda._memory_viz makes it."""
    files = json.dumps([{"name": "run", "base64": base64.b64encode(snapshot.read_bytes()).decode()}])
    show = f"try {{ add_local_files({files}, {json.dumps(view)}); }} finally {{ document.documentElement.dataset.ready = true; }}"
    path = directory() / "page.html"
    path.write_text(f"<!DOCTYPE html><html><head><script>{D3.read_text()}</script></head><body>"
                    f"<script type=module>{source()}\n{show}</script></body></html>")
    return path


def totals(snapshot):
    """Returns the changes of the first device's memory, as the page lists them, and the bytes that are allocated and
    reserved after each."""
    data = pickle.loads(snapshot.read_bytes())
    reserved = sum(segment["total_size"] for segment in data["segments"])
    allocated = sum(block["size"] for segment in data["segments"] for block in segment["blocks"] if block["state"] == "active_allocated")
    # The page joins the two entries of a release.
    entries, after = [entry for entry in data["device_traces"][0] if entry["action"] != "free_requested"], []
    for entry in reversed(entries):
        after.append((allocated, reserved))
        size = entry["size"]
        allocated += {"alloc": -size, "free_completed": size}.get(entry["action"], 0)
        reserved += {"segment_alloc": -size, "segment_free": size}.get(entry["action"], 0)
    return entries, after[::-1]


class MemoryViz(PageCase):
    @classmethod
    def setUpClass(cls):
        for missing, there in (("TPROF_TEST_MEMORY_VIZ does not name torch/utils/viz/MemoryViz.js of PyTorch's sources",
                                Path(os.environ.get("TPROF_TEST_MEMORY_VIZ") or "-").exists()),
                               (f"{D3} is not there (scripts/test-readers.sh)", D3.exists())):
            if not there:
                print(f"MemoryViz: skipped: {missing}", file=sys.stderr)
                raise unittest.SkipTest(missing)
        super().setUpClass()

    def export(self, way, **more):
        path = directory() / "run.pickle"
        command = [TPROF, "export", with_blocks(way, **more), "--to", "torch-memory-snapshot", "-o", path]
        subprocess.run(command, check=True, capture_output=True)
        return path

    def show(self, snapshot, view):
        page = self.browser.open(page_of(snapshot, view))
        self.addCleanup(page.close)
        self.addCleanup(lambda: self.assertEqual([text for text in page.messages if not text.startswith("log: ")], []))
        if os.environ.get("TPROF_TEST_PICTURES"):
            page.picture(Path(os.environ["TPROF_TEST_PICTURES"]) / f"{view}.png")
        return page

    def test_its_timelines_have_each_block_and_each_segment(self):
        snapshot = self.export("fragments")
        actions = [entry["action"] for entry in totals(snapshot)[0]]
        for view, action in ((TIMELINE, "alloc"), (SEGMENTS, "segment_alloc")):
            page = self.show(snapshot, view)
            drawn = page.run("d3.selectAll('polygon').data().filter((one) => one && one.elem !== 'summarized').map((one) => one.size)")
            self.assertEqual(len(drawn), actions.count(action), view)
            points = page.run("d3.selectAll('polygon').nodes().map((one) => one.getAttribute('points')).join(' ')")
            self.assertNotIn("NaN", points, view)
            largest = f"d3.selectAll('polygon').filter((one) => one && one.size === {max(drawn)}).node()"
            page.run(f"{largest}.dispatchEvent(new MouseEvent('mouseover'))")
            self.assertIn("job.py:", page.text("pre"), view)

    def history(self, snapshot):
        """Compares the sums that the page shows after each change with the snapshot's. Returns what it shows, last
        change first."""
        entries, after = totals(snapshot)
        page = self.show(snapshot, HISTORY)
        page.settle()
        shown = []
        for entry, (allocated, reserved) in zip(entries[::-1], after[::-1]):
            shown.append(page.text("pre"))
            sums = re.match(r"\(.*?\((\d+) bytes\) allocated / .*?\((\d+) bytes\) reserved\)\n(\S+)", shown[-1])
            word = {"oom": "OOM", "free_completed": "free"}.get(entry["action"], entry["action"])
            self.assertEqual(sums and sums.groups(), (str(allocated), str(reserved), word), shown[-1])
            # A block that was freed but waits for another stream.
            self.assertEqual(page.run("d3.selectAll('rect').filter((one) => one && one.free_requested).size()"), 0)
            page.key("ArrowUp")
        return shown

    def test_its_history_has_the_sums_after_each_change(self):
        self.history(self.export("fragments"))
        shown = self.history(self.export("oom"))
        self.assertIn("OOM (requested 32.0MiB (33554432 bytes), CUDA has 5.0MiB (5242880 bytes) memory free)\n", shown[0])
        self.assertRegex(shown[0], r"device_blocks/job.py:\d+:oom")

    def test_its_history_has_blocks_whose_segments_are_unknown(self):
        shown = self.history(self.export("sums", C10_HIDDEN="1"))
        self.assertTrue(any(text.splitlines()[1].startswith("segment_alloc") for text in shown), shown)


if __name__ == "__main__":
    unittest.main()
