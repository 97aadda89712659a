"""Tests that speedscope's own page reads tprof's exports for it, and pprof's files too.

The page is the one in its npm package. The test opens it as the command line of speedscope does: a script passes it the
file. The test compares what the page then saves.
"""

import base64
import json
import os
import subprocess
import unittest

from case import PageCase
from runs import READERS, TPROF, directory, made

PAGE = READERS / "speedscope" / "index.html"

# The page saves with a link to a blob; this keeps the blob's text.
KEEP = """window.saved = null;
const make = URL.createObjectURL;
URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; }); return make(blob); };"""
SAVE = """[...document.querySelectorAll("*")].filter((one) => one.textContent.endsWith("Export")).pop().click()"""


def totals(profile):
    """Returns the self and the total weight of each frame name in an evented or a sampled profile."""
    alone, stack, last = {}, [], profile.get("startValue", 0)
    if profile["type"] == "sampled":
        for sample, weight in zip(profile["samples"], profile["weights"]):
            if sample:
                alone[sample[-1]] = alone.get(sample[-1], 0) + weight
        return alone
    for event in profile["events"]:
        if stack:
            alone[stack[-1]] = alone.get(stack[-1], 0) + event["at"] - last
        last = event["at"]
        if event["type"] == "O":
            stack.append(event["frame"])
        else:
            stack.pop()
    return alone


def by_name(document, profile):
    names = [frame["name"] for frame in document["shared"]["frames"]]
    sums = {}
    for frame, value in totals(profile).items():
        sums[names[frame]] = sums.get(names[frame], 0) + value
    return {name: round(value) for name, value in sums.items() if value > 0}


class Speedscope(PageCase):
    @classmethod
    def setUpClass(cls):
        if not PAGE.exists():
            missing = f"{PAGE} is not there (scripts/test-readers.sh)"
            if os.environ.get("TPROF_TEST_NEED_READERS"):
                raise AssertionError(missing)
            print(f"Speedscope: skipped: {missing}")
            raise unittest.SkipTest(missing)
        super().setUpClass()

    def read(self, file):
        """Returns the profile that the page saves after it has read a file."""
        script = directory() / "load.js"
        content = base64.b64encode(file.read_bytes()).decode()
        script.write_text(f"speedscope.loadFileFromBase64({json.dumps(file.name)}, {json.dumps(content)})")
        page = self.browser.blank()
        self.addCleanup(page.close)
        page.resize(1280, 800)
        page.call("Page.addScriptToEvaluateOnNewDocument", source=KEEP)
        page.call("Page.navigate", url=f"{PAGE.as_uri()}#localProfilePath={script}")
        page.wait("document.body && document.body.innerText.includes('Export')")
        page.run(SAVE)
        page.wait("window.saved !== null")
        self.assertFalse([text for text in page.messages if text.startswith(("error", "Error"))], page.messages)
        return json.loads(page.run("window.saved"))

    def export(self, to, name):
        file = directory() / name
        subprocess.run([TPROF, "export", made(), "--to", to, "-o", file], check=True, capture_output=True)
        return file

    def test_it_reads_every_profile_with_the_same_sums(self):
        file = self.export("speedscope", "run.speedscope.json")
        ours, its = json.loads(file.read_text()), self.read(file)
        self.assertEqual([one["name"] for one in its["profiles"]], [one["name"] for one in ours["profiles"]])
        self.assertGreater(len(ours["profiles"]), 3)
        for our, its_own in zip(ours["profiles"], its["profiles"]):
            self.assertEqual(by_name(its, its_own), by_name(ours, our), our["name"])

    def test_it_reads_pprofs_format_too(self):
        its = self.read(self.export("pprof", "run.pb.gz"))
        self.assertTrue(its["profiles"])
        self.assertGreater(sum(by_name(its, its["profiles"][0]).values()), 0)
