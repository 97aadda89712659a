"""Tests the pages of `tprof serve` over an archive in a real browser: they have what sums over ranks can show, and
nothing else."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from case import PageCase
from runs import TARGET, TPROF, directory, made

# Text that is markup if it isn't escaped, as an argument and as the name of a directory.
MARKUP = "</script><img src=x onerror=document.title='owned'><b>"


def tprof_sql():
    """Returns the program that reads archives, or None. `scripts/check.sh sql` builds it."""
    named = os.environ.get("TPROF_TEST_SQL")
    found = [Path(named)] if named else [TPROF.with_name("tprof-sql"), *(TARGET / "sql" / profile / "tprof-sql" for profile in ("release", "debug"))]
    there = [path for path in found if path.is_file()]
    return max(there, key=lambda path: path.stat().st_mtime) if there else None


def environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TPROF_")}
    return {**kept, "PATH": f"{tprof_sql().parent}:{kept['PATH']}"}


def tprof(*words):
    subprocess.run([TPROF, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())


@functools.cache
def archived():
    """Returns an archive of a run with a GPU, a run whose command is markup, and a damaged run."""
    place = directory()
    archive, runs = place / "archive", place / "runs"
    runs.mkdir()
    shutil.copytree(made(), runs / "gpu")
    shutil.copytree(made(), runs / "later")
    about = json.loads((runs / "later" / "run.json").read_text())
    about["command"] = ["python3", MARKUP]
    about["start_unix_ns"] = (about.get("start_unix_ns") or 0) + 10**12
    (runs / "later" / "run.json").write_text(json.dumps(about))
    tprof("run", "--quiet", "-o", runs / "broken", "--", sys.executable, "-c", "pass")
    tprof("archive", *sorted(runs.iterdir()), "--to", archive)
    next((archive / "rank_steps").glob("run=broken-*/*")).unlink()
    return archive


class Archive(PageCase):
    @classmethod
    def setUpClass(cls):
        if not tprof_sql():
            cls.leave("skipped: there is no tprof-sql (TPROF_TEST_SQL, or `scripts/check.sh sql` builds one)")
        super().setUpClass()

    def pages(self, archive=None, **how):
        _, address = self.serve(archive or archived(), env=environment())
        page = self.open(address, **how)
        page.wait("document.querySelector('tbody tr:not(.spacer)') !== null || document.querySelector('.empty') !== null")
        page.wait("document.querySelectorAll('.pending').length === 0")
        return page

    def check_quiet(self, page):
        # A browser notes responses that are errors, and a test requests some.
        messages = [text for text in page.messages if "Failed to load resource" not in text]
        self.assertEqual(messages, [], "console messages")
        origin = "/".join(page.url.split("/")[:3])
        self.assertEqual([url for url in page.requests if not url.startswith((origin, "data:"))], [], "requests")
        self.assertNotEqual(page.run("document.title"), "owned")
        self.assertEqual(page.run("document.querySelectorAll('img, object, embed, link[rel=stylesheet], script[src], [style*=url]').length"), 0)

    def ids(self, page):
        runs = page.run("fetch('api/v1/runs').then(answer => answer.json())")["runs"]
        return {run["name"].rsplit("-", 1)[0]: run["id"] for run in runs}

    def to(self, page, hash, ready):
        page.run(f"location.hash = {hash!r}")
        page.wait(f"Boolean({ready})")

    def column(self, page, heading):
        at = page.run(f"[...document.querySelectorAll('#main th')].findIndex(one => one.textContent.trim() === {heading!r})")
        self.assertGreaterEqual(at, 0, heading)
        return page.run(f"[...document.querySelectorAll('tbody tr:not(.spacer)')].map(row => [row.cells[{at}].textContent, row.cells[{at}].querySelector('.unknown')?.title ?? ''])")

    def test_the_list_has_what_sums_have_and_reasons_for_the_rest(self):
        page = self.pages()
        self.assertEqual(len(self.column(page, "Command")), 3)
        text = page.text("tbody")
        # A command that is markup is shown as text.
        self.assertIn(MARKUP, text)
        states = [state for state, _ in self.column(page, "State")]
        self.assertEqual(states.count("damaged"), 1)
        busy = self.column(page, "GPU busy")
        self.assertEqual(len([one for one, _ in busy if one.endswith("%")]), 2)
        # The damaged run has a reason instead of a figure.
        self.assertEqual([bool(why) for one, why in busy if one == "?"], [True])
        lost = self.column(page, "Step")[states.index("damaged")]
        self.assertEqual(lost[0], "?")
        self.assertIn("cannot read an object", lost[1])
        headings = page.text("thead")
        self.assertIn("Peak GPU", headings)
        self.assertNotIn("Peak heap", headings)
        self.assert_fits(page)

    def test_a_run_has_findings_and_tables_and_no_link_to_what_is_not_there(self):
        page = self.pages()
        run = self.ids(page)["gpu"]
        self.to(page, f"#/run/{run}", "document.querySelector('[data-table=kernels]')")
        self.assertIn("Kernels", page.text("#main"))
        self.assertGreater(page.run("document.querySelectorAll('.card').length"), 0)
        links = page.run("[...document.querySelectorAll('#main a')].map(link => link.getAttribute('href'))")
        self.assertFalse([link for link in links if "/page/" in link or "/live/" in link or "export" in link], links)
        for kind, hash in page.run("[...document.querySelectorAll('nav.side a')].map(link => [link.dataset.where, link.getAttribute('href')]).filter(([where]) => where)"):
            self.to(page, hash, f"document.querySelector('nav.side a[aria-current]')?.dataset.where === {kind!r}")
            page.wait("document.querySelector('#main .waiting') === null")
            self.assertEqual(page.run("document.querySelectorAll('#main .error').length"), 0, kind)
            self.assertEqual(page.run("document.querySelectorAll('nav.side a[aria-current]').length"), 1, kind)

    def test_an_address_of_what_is_not_archived_has_the_reason(self):
        page = self.pages()
        run = self.ids(page)["gpu"]
        self.to(page, f"#/run/{run}/page/timeline", "document.querySelector('#main .error')")
        text = page.text("#main .error")
        self.assertIn("an archive has no timelines", text)
        self.assertIn("tprof serve DIR", text)

    def test_two_runs_are_compared_without_intervals(self):
        page = self.pages()
        ids = self.ids(page)
        self.to(page, f"#/compare/{ids['gpu']}/{ids['later']}", "document.querySelector('.metrics table')")
        self.assertIn("without intervals", page.text("#main"))
        self.assertNotIn("Flame difference", page.text("#main"))
        reasons = page.run("[...document.querySelectorAll('.metrics .unknown')].map(one => one.title)")
        self.assertTrue(reasons and all(reason.startswith("unknown: ") for reason in reasons), reasons)

    def test_the_heat_map_is_over_steps_only(self):
        page = self.pages()
        run = self.ids(page)["gpu"]
        self.to(page, f"#/ranks/{run}?over=time", "document.querySelector('canvas.heat') || document.querySelector('#main .none')")
        self.assertEqual(page.run("[...document.querySelectorAll('.controls select')[0].options].map(one => one.value)"), ["step"])

    def test_an_empty_archive_states_how_a_run_gets_there(self):
        archive = directory() / "empty"
        (archive / "_runs").mkdir(parents=True)
        page = self.pages(archive)
        self.assertIn(f"tprof archive RUN --to {archive}", page.text(".empty"))

    def test_it_fits_narrow_and_in_the_dark(self):
        for width, dark in ((1280, True), (480, False)):
            page = self.pages(width=width, dark=dark)
            self.assert_fits(page)
            # The name of the run stays visible.
            self.assertGreater(page.run("document.querySelector('td.command').getBoundingClientRect().width"), 60)
            self.assertEqual(self.paper(page) < 128, dark)
