"""Tests the site of `tprof export --to site` in a real browser, from the disk and from a plain web server."""

import functools
import http.server
import json
import subprocess
import threading
from pathlib import Path

from case import PageCase
from runs import TPROF, directory
from test_serve import recorded


@functools.cache
def site():
    """Returns the site over the runs of the server's tests."""
    path = directory() / "site"
    subprocess.run([TPROF, "export", recorded(), "--to", "site", "-o", path], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


def document(name):
    """Returns a document of the site."""
    text = (site() / "data" / f"{name}.js").read_text()
    return json.loads(f"[{text[text.index('(') + 1:text.rindex(')')]}]")[1]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Site(PageCase):
    # Data are scripts here, and pages are frames, but all requests stay within the site.
    def check_quiet(self, page):
        self.assertEqual(page.messages, [], "console messages")
        base = page.url.split("#")[0].rsplit("/", 1)[0] + "/"
        self.assertEqual([url for url in page.requests if not url.startswith((base, "data:"))], [], "requests")
        self.assertNotEqual(page.run("document.title"), "owned")
        self.assertEqual(page.run("document.querySelectorAll('#main img, #main script, object, embed').length"), 0)

    def pages(self, hash="", at=None):
        page = self.open(at or site() / "index.html", fragment=hash)
        page.wait("document.querySelector('#main').childElementCount > 0 && !document.querySelector('#main .waiting:not([hidden])')")
        return page

    def ids(self):
        return {Path(run["path"]).name: run["id"] for run in document("runs")["runs"]}

    def test_the_list_is_there_with_all_figures(self):
        page = self.pages()
        self.assertEqual(page.run("document.querySelectorAll('tbody tr:not(.spacer)').length"), len(self.ids()))
        self.assertEqual(page.run("document.querySelectorAll('.pending').length"), 0)
        for part in ("failed: exit 3", "damaged", "</script><img src=x"):
            self.assertIn(part, page.text("#main"))

    def test_a_run_has_its_findings_and_nothing_that_a_server_does(self):
        page = self.pages(f"#/run/{self.ids()['gpu']}")
        page.wait("document.querySelector('.card, .verdict.whole') !== null")
        self.assertIn("recorded", page.text("#main"))
        self.assertEqual(page.run("document.querySelectorAll('.downloads, #main button, a[href^=\"#/live\"], a[download]').length"), 0)
        # A site has no live view, so the view's address leads to the run.
        page.run(f"location.hash = '#/live/{self.ids()['hostile']}'")
        page.wait("document.title.startsWith('python') || document.querySelector('h1')?.textContent.includes('img src=x')")

    def test_every_view_of_every_run_is_there_or_has_its_reason(self):
        page = self.pages()
        kinds = [kind["name"] for kind in document("index")["kinds"]]
        for name, id in self.ids().items():
            for view in ([f"run/{id}/{kind}" for kind in kinds] if name == "gpu" else [f"run/{id}/summary"]) + [f"ranks/{id}", f"history/{id}"]:
                page.run(f"location.hash = '#/{view}'")
                page.wait(f"location.hash.startsWith('#/{view}') && document.querySelector('#main .content h2, #main .content h1, #main .error') && !document.querySelector('#main .waiting:not([hidden]), #main [aria-busy=true]')")
                error = page.run("document.querySelector('#main .error')?.textContent || null")
                if name == "damaged":
                    self.assertNotIn("does not have that", error or "", view)
                else:
                    self.assertIsNone(error, view)

    def test_a_page_is_shown_in_its_frame(self):
        page = self.pages()
        for name in ("timeline", "flame", "report"):
            page.run(f"location.hash = '#/run/{self.ids()['gpu']}/page/{name}'")
            page.wait(f"document.querySelector('iframe')?.src.endsWith('/{name}.html') && document.querySelector('.embedded .waiting').hidden")
            self.assertTrue(any(url.endswith(f"pages/{self.ids()['gpu']}/{name}.html") for url in page.requests), page.requests)
        alone = self.open(site() / "pages" / str(self.ids()["gpu"]) / "timeline.html")
        self.assertTrue(alone.run("!!document.querySelector('#labels .group')"))

    def test_runs_of_a_command_are_compared(self):
        a, b = self.ids()["steps-1"], self.ids()["steps-2"]
        page = self.pages(f"#/compare/{a}/{b}")
        page.wait("document.querySelector('.metrics tbody tr') !== null")
        page.run("[...document.querySelectorAll('#main a.button')].find(link => link.textContent === 'Flame difference').click()")
        page.wait(f"document.querySelector('iframe')?.src.endsWith('pages/flame-{a}-{b}.html') && document.querySelector('.embedded .waiting').hidden")
        # Views that the site lacks are named, and are not broken.
        page.run(f"location.hash = '#/compare/{b}/{self.ids()['gpu']}/flame'")
        page.wait("document.querySelector('#main .error')?.textContent.includes('this site does not have that')")
        # The browser states that the file is absent.
        page.messages[:] = [message for message in page.messages if "ERR_FILE_NOT_FOUND" not in message]

    def test_a_web_server_gives_it_out_as_well(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=site()))
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = self.pages(at=f"http://127.0.0.1:{server.server_port}/index.html")
        page.run(f"location.hash = '#/run/{self.ids()['gpu']}/page/timeline'")
        page.wait("document.querySelector('iframe')?.src.endsWith('/timeline.html') && document.querySelector('.embedded .waiting').hidden")

    def test_a_script_that_is_put_into_the_page_does_not_run(self):
        page = self.pages()
        page.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title = `owned`\"><script>document.title = `owned`</script>')")
        page.run("document.body.append(document.createRange().createContextualFragment('<script>document.title = `owned`</script>'))")
        page.settle()
        self.assertNotEqual(page.run("document.title"), "owned")
        # The browser states each refusal.
        self.assertTrue(all("Content Security Policy" in message for message in page.messages) and page.messages)
        page.messages.clear()
