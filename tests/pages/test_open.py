"""Tests `tprof open` with a real browser.

Perfetto's own page is not available offline. A stand-in on another origin replaces it. Like Perfetto's page, it fetches
the trace from the address after `#!/?url=`.
"""

import http.server
import os
import re
import subprocess
import threading

from case import PageCase
from runs import TPROF, directory, made
from runs import page as runs_page

STAND_IN = b"""<!doctype html><html><head><title>stand-in</title><link rel="icon" href="data:,"></head><body><script>
const url = new URLSearchParams(location.hash.slice(location.hash.indexOf("?"))).get("url");
fetch(url).then(async (answer) => {
  const bytes = new Uint8Array(await new Response(answer.body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
  document.body.textContent = `${answer.status} ${bytes.length} bytes, first ${bytes[0]}`;
}).catch((error) => { document.body.textContent = String(error); })
  .finally(() => { document.documentElement.dataset.ready = "true"; });
</script></body></html>"""


class StandIn(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(STAND_IN)))
        self.end_headers()
        self.wfile.write(STAND_IN)

    def log_message(self, *_):
        pass


class Open(PageCase):
    def serve(self, *options, **environment):
        """Starts `tprof open`, and returns the process and the address that it printed."""
        command = [TPROF, "open", made(), "--port", "0", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **environment})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, process.stdout.readline().strip()

    def stand_in(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    def test_a_page_of_the_origin_in_ui_fetches_the_trace(self):
        process, url = self.serve("--ui", self.stand_in(), "--no-browser", "--once")
        page = self.browser.open(url)
        self.addCleanup(page.close)
        # The trace's first byte is the tag of a packet.
        self.assertRegex(page.text("body"), r"^200 \d{4,} bytes, first 10$")
        self.assertEqual(page.messages, [])
        self.assertEqual(process.wait(30), 0)

    def test_a_page_of_any_other_origin_cannot_fetch_the_trace(self):
        _, url = self.serve("--no-browser")
        trace = url.split("?url=")[1]
        page = self.browser.open(f"{self.stand_in()}/#!/?url={trace}")
        self.addCleanup(page.close)
        self.assertIn("Failed to fetch", page.text("body"))

    def test_the_browser_that_the_user_names_is_started(self):
        folder = directory()
        opener = folder / "browser"
        opener.write_text(f"#!/bin/sh\ncp \"$1\" {folder}/new && mv {folder}/new {folder}/opened\n")
        opener.chmod(0o755)
        process, url = self.serve("--as", "flame", "--once", BROWSER=str(opener))
        page = self.open(url)
        self.assertIn("all", page.text("#path") + page.text("body"))
        self.assertEqual(process.wait(30), 0)
        # Other users can read a process's arguments, so the browser is not given the address. It is given a file that
        # contains the address and that only the user can read.
        self.assertIn(url, (folder / "opened").read_text())

    def test_every_page_opens_with_one_command(self):
        for view, mark in (("flame", "#scroll"), ("timeline", "#labels .group")):
            _, url = self.serve("--as", view, "--no-browser")
            self.assertRegex(url, rf"^http://127\.0\.0\.1:\d+/[0-9a-f]{{32}}/{view}\.html$")
            page = self.open(url)
            self.assertTrue(page.run(f"!!document.querySelector('{mark}')"), view)

    def test_the_title_of_a_foreign_trace_is_its_file_name(self):
        trace = directory() / "train.json"
        trace.write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}]}')
        page = self.open(runs_page("timeline", run=trace))
        self.assertEqual(page.text("#title"), "train.json")

    def test_the_report_links_to_the_timeline_and_the_flame_graph(self):
        _, url = self.serve("--as", "report", "--no-browser")
        report = self.open(url)
        links = report.run("[...document.querySelectorAll('a.button')].map(a => a.href)")
        self.assertEqual([re.sub(".*/", "", link) for link in links], ["timeline.html", "flame.html"])
        for link in links:
            self.open(link)
