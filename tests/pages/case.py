"""A test case with a browser. Without a browser, the test is skipped and says so. With
TPROF_TEST_SKIP=forbid, as in continuous integration, it fails instead."""

import os
import subprocess
import sys
import unittest

import chromium
from runs import TPROF

NO_BROWSER = "skipped: there is no Chromium to drive the pages with (scripts/test-deps.sh installs one)"


class PageCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not chromium.find():
            cls.leave(NO_BROWSER)
        try:
            cls.browser = chromium.Chromium()
            cls.browser.call("Browser.getVersion")
        except (EOFError, OSError) as error:
            # The browser may be a wrapper that only prints how to install one.
            cls.leave(f"skipped: {chromium.find()} does not start ({error})")

    @classmethod
    def leave(cls, why):
        if os.environ.get("TPROF_TEST_SKIP") == "forbid":
            raise AssertionError(f"{cls.__name__}: {why}, which TPROF_TEST_SKIP=forbid does not permit")
        print(f"{cls.__name__}: {why}", file=sys.stderr)
        raise unittest.SkipTest(why)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def open(self, path, **how):
        page = self.browser.open(path, **how)
        self.addCleanup(page.close)
        self.addCleanup(self.check_quiet, page)
        return page

    def serve(self, what, *options, env):
        """Starts a server of runs or of an archive, and returns its address."""
        command = [TPROF, "serve", "--no-browser", "--port", "0", *options, what]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        address = process.stdout.readline().strip()
        self.assertRegex(address, r"^http://127\.0\.0\.1:\d+/\w+/$")
        return process, address

    # Checks every page that a test opens, after the test.
    def check_quiet(self, page):
        self.assertEqual(page.messages, [], "console messages")
        self.assertEqual([url for url in page.requests if url.split("#")[0] != page.url.split("#")[0] and not url.startswith("data:")], [], "requests")
        self.assertNotEqual(page.run("document.title"), "owned")
        self.assertEqual(page.run("document.querySelectorAll('img, iframe, object, embed, link[rel=stylesheet], script[src]').length"), 0)

    # Returns a digest of the pixels of an element.
    def pixels(self, page, selector="#canvas"):
        page.settle()
        box = page.run(f"(() => {{ const r = document.querySelector('{selector}').getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }})()")
        clip = dict(zip(("x", "y", "width", "height"), box), scale=1)
        return page.call("Page.captureScreenshot", format="png", clip=clip)["data"]

    # Returns the mean brightness of the page's background, 0 to 255.
    def paper(self, page):
        return page.run("(() => { const c = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number); return (c[0] + c[1] + c[2]) / 3; })()")

    # Fails if a part of the page lies beyond its right edge.
    def assert_fits(self, page):
        self.assertLessEqual(page.run("document.documentElement.scrollWidth"), page.run("innerWidth"))
