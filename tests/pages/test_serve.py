"""Tests the pages of `tprof serve` in a real browser, over real runs and a job that runs at the same time."""

import functools
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

from case import PageCase
from runs import HOSTILE, ROOT, TPROF, directory, made, sampled, whole_job

# Text that is markup if it isn't escaped, as an argument, a tag and a note.
MARKUP = "</script><img src=x onerror=document.title='owned'><b>"
STEPS = "import tprof, time\nfor step in range(12):\n    tprof.step(step)\n    tprof.counter('loss', 1 / (step + 1))\n    time.sleep(0.01)\n"
# Makes steps until a file appears, stops making steps until the next file, and ends with the third.
LIVE = """
import os, sys, time, tprof
step = 0
while not os.path.exists(sys.argv[1] + "/end"):
    if os.path.exists(sys.argv[1] + "/stall") and not os.path.exists(sys.argv[1] + "/go"):
        time.sleep(0.02)
        continue
    tprof.step(step)
    step += 1
    time.sleep(0.02)
"""


def environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TPROF_")}
    return {**kept, "PYTHONPATH": str(ROOT / "python")}


def record(run, *command, **how):
    arguments = [TPROF, "run", "--quiet", "-o", run, "--", *command]
    return subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), **how)


@functools.cache
def recorded():
    """Returns a directory with these runs: with a GPU, with samples, twice with steps, failed, with hostile names,
    damaged."""
    runs = directory() / "runs"
    runs.mkdir()
    shutil.copytree(made(), runs / "gpu")
    shutil.copytree(sampled(), runs / "sampled")
    for name in ("steps-1", "steps-2"):
        record(runs / name, sys.executable, "-c", STEPS)
    record(runs / "failed", sys.executable, "-c", "raise SystemExit(3)")
    record(runs / "hostile", sys.executable, "-c", STEPS, MARKUP)
    shutil.copytree(runs / "steps-1", runs / "damaged")
    (runs / "damaged" / "run.json").write_text('{"version": 1, "comm')
    return runs


class Serve(PageCase):
    def pages(self, runs=None, *options, **how):
        self.process, address = self.serve(runs or recorded(), *options, env=environment())
        page = self.open(address, **how)
        page.wait("document.querySelector('tbody tr:not(.spacer)') !== null || document.querySelector('.empty') !== null")
        return page

    # These pages fetch from their server and show frames of it; they request nothing else.
    def check_quiet(self, page):
        self.assertEqual(page.messages, [], "console messages")
        origin = "/".join(page.url.split("/")[:3])
        self.assertEqual([url for url in page.requests if not url.startswith((origin, "data:"))], [], "requests")
        self.assertNotEqual(page.run("document.title"), "owned")
        self.assertEqual(page.run("document.querySelectorAll('img, object, embed, link[rel=stylesheet], script[src], [style*=url]').length"), 0)

    def answer(self, page, path):
        """Returns the API's answer to the page."""
        address = f"api/v1/{path}".rstrip("/")
        return page.run(f"fetch('{address}').then(answer => answer.json())")

    def ids(self, page):
        """Returns the ids of the runs by the names of their directories."""
        return {Path(run["path"]).name: run["id"] for run in self.answer(page, "runs")["runs"]}

    def to(self, page, hash, ready):
        page.run(f"location.hash = {hash!r}")
        page.wait(f"Boolean({ready})")

    # Returns the number of rows of the first table, including those out of sight.
    def rows(self, page):
        return page.run("Number(document.querySelector('#main table').getAttribute('aria-rowcount')) - 1")

    def press_button(self, page, text):
        page.run(f"[...document.querySelectorAll('#main button')].find(button => button.textContent === {text!r}).click()")

    # Returns the column of a table as it is shown.
    def column(self, page, at):
        return page.run(f"[...document.querySelectorAll('tbody tr:not(.spacer)')].map(row => row.cells[{at}].textContent)")

    def test_all_runs_are_listed_with_what_is_known_of_them(self):
        page = self.pages()
        self.assertEqual(self.rows(page), len(list(recorded().iterdir())))
        page.wait("document.querySelectorAll('.pending').length === 0")
        text = page.text("tbody")
        for part in ("failed: exit 3", "damaged", "finished"):
            self.assertIn(part, text)
        self.assertLessEqual({run.name for run in recorded().iterdir()}, set(self.column(page, 1)))
        # A run without a GPU does not show a share of 0: it shows a reason.
        why = page.run("(cell => [cell.textContent, cell.querySelector('.unknown')?.title])([...document.querySelectorAll('tbody tr')].find(row => row.textContent.includes('SystemExit')).cells[10])")
        self.assertEqual(why[0], "?")
        self.assertRegex(why[1], "^unknown: .+")

    def test_runs_sort_and_the_order_is_in_the_address(self):
        page = self.pages()
        exact = "[...document.querySelectorAll('tbody td:nth-child(5)')].filter(cell => cell.title).map(cell => Number(cell.title.replace(/[^0-9]/g, '')))"
        self.press_button(page, "Lasted")
        order = page.run(exact)
        self.assertGreater(len(order), 4)
        self.assertEqual(order, sorted(order, reverse=True))
        self.assertIn("sort=-wall_ns", page.run("location.hash"))
        self.press_button(page, "Lasted")
        self.assertEqual(page.run(exact), order[::-1])

    def test_the_search_filters_and_the_keyboard_is_enough(self):
        page = self.pages()
        page.key("/")
        page.type("SystemExit")
        self.assertEqual(self.rows(page), 1)
        self.assertIn("q=SystemExit", page.run("location.hash"))
        page.key("Escape")
        self.assertEqual(self.rows(page), len(list(recorded().iterdir())))
        page.type("SystemExit")
        page.key("Enter")
        page.key("Enter")
        page.wait("location.hash.startsWith('#/run/') && document.querySelector('.facts') !== null")
        page.key("Escape")
        page.wait("document.querySelector('.runs-head') !== null")
        page.key("?")
        self.assertTrue(page.run("document.getElementById('help').open"))

    def test_a_run_opens_with_its_findings_and_whether_it_is_complete(self):
        page = self.pages()
        self.to(page, f"#/run/{self.ids(page)['gpu']}", "document.querySelector('.card') && document.querySelector('.verdict.whole, .verdict.gaps')")
        self.assertRegex(page.text(".verdict"), r"[\d,]+ events.* recorded")
        self.assertRegex(page.text(".card h4"), r"(?i)^(critical|high|medium|low)")
        self.assertIn("try", page.text(".card dl"))
        self.assertGreater(page.run("document.querySelectorAll('.downloads a[download]').length"), 3)

    def test_every_kind_of_report_opens(self):
        page = self.pages()
        ids = self.ids(page)
        for run in ("gpu", "steps-1"):
            for kind in [kind["name"] for kind in self.answer(page, "")["kinds"]]:
                with self.subTest(run=run, kind=kind):
                    self.to(page, f"#/run/{ids[run]}/{kind}", f"document.querySelector('nav.side a[aria-current]')?.dataset.where === '{kind}' && document.querySelector('.document[aria-busy=false]')?.children.length")
                    self.assertEqual(page.run("document.querySelectorAll('.content .error').length"), 0)
                    self.assertGreater(page.run("document.querySelectorAll('.document td, .document dd, .document .notes li, .card').length"), 0)

    def test_a_report_keeps_what_is_unknown_apart_from_zero(self):
        page = self.pages()
        self.to(page, f"#/run/{self.ids(page)['steps-1']}/gpu", "document.querySelector('.document .absent')")
        self.assertRegex(page.text(".absent dd"), ".{10,}")
        self.to(page, f"#/run/{self.ids(page)['steps-1']}/steps", "document.querySelector('.document tbody tr')")
        self.assertTrue(page.run("document.querySelector('figure svg rect.column') !== null"))
        page.run("[...document.querySelectorAll('[data-table=steps] th button')].find(button => button.textContent === 'time').click()")
        lasts = page.run("[...document.querySelector('[data-table=steps] tbody').rows].map(row => row.cells[[...document.querySelectorAll('[data-table=steps] th')].findIndex(head => head.ariaSort)].title)")
        numbers = [int(text.split(" ")[0].replace(",", "")) for text in lasts]
        self.assertEqual(numbers, sorted(numbers, reverse=True))

    def test_the_exported_pages_open_within_the_frame_of_their_run(self):
        page = self.pages()
        run = self.ids(page)["gpu"]
        for name, mark in (("timeline", "#labels .group"), ("flame", "#scroll"), ("report", "#overview .verdict")):
            self.to(page, f"#/run/{run}/page/{name}", f"document.querySelector('iframe')?.contentDocument?.querySelector('{mark}')")
            self.assertTrue(page.run("document.querySelector('a[target=_blank]').href.includes('/page/')"))

    def test_two_runs_compare_with_their_intervals(self):
        page = self.pages()
        for name in ("steps-1", "steps-2"):
            page.run(f"[...document.querySelectorAll('tbody tr')].find(row => row.cells[1]?.title.endsWith('/{name}')).querySelector('input').click()")
            page.settle()
        page.run("document.getElementById('main').focus()")
        page.key("c")
        page.wait("location.hash.startsWith('#/compare/') && document.querySelector('.metrics tbody tr') !== null")
        self.assertIn("step time", self.column(page, 0))
        self.assertEqual(page.run("[...document.querySelectorAll('.metrics th')].map(head => head.textContent)")[1:5], ["A", "B", "Change", "± 95 %"])
        ids = self.ids(page)
        self.to(page, f"#/compare/{ids['steps-1']}/{ids['steps-2']}/{ids['sampled']}", "document.querySelector('.many tbody tr')")
        self.assertEqual(page.run("document.querySelectorAll('.many th').length"), 4)

    def test_the_history_has_the_runs_of_one_command(self):
        page = self.pages()
        self.to(page, f"#/history/{self.ids(page)['steps-1']}", "document.querySelector('.content tbody tr')")
        # The command of the damaged copy is unknown.
        self.assertEqual(self.rows(page), 2)

    def test_the_whole_job_is_charted_with_its_changes(self):
        # A quarter of an hour, and two days: the same charts, of stretches of the job.
        jobs = directory() / "jobs"
        jobs.mkdir()
        for seconds in (900, 172_800):
            shutil.copytree(whole_job(seconds), jobs / str(seconds))
        page = self.pages(jobs)
        ids = self.ids(page)
        for seconds in (900, 172_800):
            with self.subTest(seconds=seconds):
                self.to(page, f"#/run/{ids[str(seconds)]}", "document.querySelector('.changes li')")
                labels = page.run("[...document.querySelectorAll('.charts canvas')].map(canvas => canvas.getAttribute('aria-label'))")
                self.assertEqual([label.split(":")[0] for label in labels], ["Step time, the median", "Slowest step", "Devices", "Device memory, all ranks", "Host memory, all ranks", "The late rank"])
                # The job becomes slower at three fifths of its time, and waits for rank 1 from three quarters on.
                self.assertRegex(labels[0], r"Changes: step time 9\d\d\.\d ms → 1\.1\d s")
                self.assertRegex(labels[1], r"Changes: step time once 9\d\d\.\d ms → 9\.00 s")
                self.assertRegex(labels[3], "Changes: device memory 4")
                self.assertRegex(labels[5], r"others wait for the rank .* rank 1")
                page.run("document.querySelector('.charts canvas').focus()")
                page.key("End")
                self.assertRegex(page.text("#tip"), r"(?s)to .* · [\d,]+ steps?.*median\s+1\.1\d s")
                self.to(page, f"#/run/{ids[str(seconds)]}/history", "document.querySelector('.document .charts canvas')")
                self.assertGreater(page.run("document.querySelectorAll('.document .charts canvas').length"), 6)
                self.assertRegex(page.text("[data-table=changes]"), "step time")
        # A job of a moment has no course.
        page = self.pages()
        self.to(page, f"#/run/{self.ids(page)['failed']}", "document.querySelector('.downloads')")
        self.assertEqual(page.run("document.querySelectorAll('.charts').length"), 0)

    def test_ranks_have_a_heat_map_over_steps_that_leads_to_the_timeline(self):
        page = self.pages()
        self.to(page, f"#/ranks/{self.ids(page)['steps-1']}", "document.querySelector('canvas.heat')")
        page.run("document.querySelector('canvas.heat').focus()")
        page.key("ArrowRight")
        self.assertRegex(page.text("#tip"), r"rank 0, step \d+")
        page.key("Enter")
        page.wait("/page\\/timeline\\?rank=0&steps=/.test(location.hash)")
        page.wait("Boolean(document.querySelector('iframe')?.contentDocument?.querySelector('#labels .group') || document.querySelector('.content .error'))")
        self.assertEqual(page.run("document.querySelectorAll('.content .error').length"), 0)

    def test_a_stall_is_shown_while_it_lasts(self):
        runs, signs = directory(), directory()
        command = [TPROF, "run", "--quiet", "-o", runs / "live", "--", sys.executable, "-c", LIVE, signs]
        job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        self.addCleanup(job.wait)
        self.addCleanup((signs / "end").touch)
        page = self.pages(runs)
        page.wait("document.querySelector('tbody .state.live') !== null")
        page.key("ArrowDown")
        page.key("Enter")
        page.wait("document.querySelector('.facts.live dd')?.textContent.includes('/s')")
        page.wait("document.querySelector('.stalls').textContent === 'No rank stands still.'")
        self.assertGreater(page.run("document.querySelectorAll('figure.chart canvas').length"), 0)
        (signs / "stall").touch()
        page.wait("document.querySelector('.stalls.stalled') !== null")
        self.assertRegex(page.text(".stalls"), r"^rank 0 has made no step for [\d.]+ s.* after step \d+")
        self.assertIn("stands still", page.text("tr[data-state=stalled]"))
        (signs / "go").touch()
        page.wait("document.querySelector('.stalls:not(.stalled)') !== null")
        (signs / "end").touch()
        self.assertEqual(job.wait(60), 0)
        page.wait("[...document.querySelectorAll('.content a')].some(link => link.textContent.includes('see what was found'))")

    def test_failed_requests_for_device_memory_are_shown(self):
        runs = directory()
        frame = {"filename": "/job.py", "line": 63, "name": "step"}
        failed = {"action": "oom", "device_free": 5 << 20, "size": 32 << 20, "stream": 0, "frames": [frame], "time_us": 7}
        (runs / "snapshot.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": [[failed, failed]]}))
        subprocess.run([TPROF, "import", runs / "snapshot.pickle", "-o", runs / "r"], check=True, stdout=subprocess.DEVNULL)
        page = self.pages(runs)
        page.run(f"location.hash = '#/live/{self.ids(page)['r']}'")
        page.wait("document.querySelector('.failures:not([hidden])') !== null")
        text = "2 requests for device memory failed, the last for 32.0 MiB of GPU 0 at /job.py:63 (step); "
        self.assertIn(text + "5.00 MiB free on the device", page.text(".failures"))
        self.assertIn(text, page.text(".event.out_of_memory"))

    def test_text_of_a_run_never_becomes_markup(self):
        page = self.pages(None, "--control")
        ids = self.ids(page)
        hostile = ids["hostile"]
        body = json.dumps({"tags": [MARKUP], "note": MARKUP})
        status = page.run(f"fetch('api/v1/runs/{hostile}/notes', {{ method: 'PUT', headers: {{ 'X-Tprof': '1', 'Content-Type': 'application/json' }}, body: {json.dumps(body)} }}).then(answer => answer.status)")
        self.assertLess(status, 300)
        page.wait(f"document.querySelector('tbody').textContent.includes('<img src=x')")
        views = [f"#/run/{hostile}", f"#/run/{hostile}/summary", f"#/history/{hostile}", f"#/compare/{hostile}/{ids['steps-1']}", f"#/compare/{hostile}/{ids['steps-1']}/{ids['gpu']}", f"#/run/{ids['gpu']}/kernels"]
        for view in views:
            with self.subTest(view=view):
                self.to(page, view, "document.getElementById('main').textContent.includes('<img src=x')")
                self.check_quiet(page)
        self.assertGreater(len(HOSTILE), 0)

    def test_tags_are_written_only_where_the_server_permits_it(self):
        page = self.pages()
        run = self.ids(page)["steps-2"]
        self.to(page, f"#/run/{run}", "document.querySelector('.facts')")
        self.assertNotRegex(page.text(".content .head"), "Tags|Delete")
        page = self.pages(None, "--control")
        self.to(page, f"#/run/{run}", "document.querySelector('.content .head button')")
        self.press_button(page, "Tags and note…")
        page.type("baseline, fast")
        page.key("Enter")
        page.wait("document.querySelectorAll('.notes-line .tag').length === 2")
        page.key("Escape")
        page.wait("document.querySelectorAll('tbody button.tag').length > 0")
        page.run("[...document.querySelectorAll('tbody button.tag')].find(tag => tag.textContent === 'fast').click()")
        self.assertEqual(self.rows(page), 1)

    def test_a_directory_without_runs_shows_what_to_type(self):
        page = self.pages(directory())
        self.assertIn("tprof run -- COMMAND", page.text(".empty"))

    def test_a_damaged_run_has_its_reason(self):
        page = self.pages()
        self.to(page, f"#/run/{self.ids(page)['damaged']}", "document.querySelector('.verdict.gaps')")
        self.assertIn("damaged", page.text(".content"))
        # The browser itself writes to the console that the server answered with an error.
        page.messages.clear()

    def test_a_server_that_ended_is_named_and_asked_again(self):
        page = self.pages()
        self.process.kill()
        self.process.wait()
        page.wait("document.querySelector('#banner.gone') !== null")
        self.assertIn("The server has ended", page.text("#banner"))
        self.assertGreater(self.rows(page), 0)
        page.messages.clear()

    def test_only_rows_in_sight_are_in_the_page(self):
        page = self.pages()
        # Adds a thousand runs, as copies of the existing ones.
        page.run("""(() => {
            const fetched = window.fetch;
            window.fetch = async (path, how) => {
                const answer = await fetched(path, how);
                if (path !== "api/v1/runs") return answer;
                const value = await answer.json();
                value.runs = Array.from({ length: 1000 }, (_, at) => ({ ...value.runs[at % value.runs.length], id: at + 1, start_unix_ns: at }));
                return new Response(JSON.stringify(value));
            };
        })()""")
        page.wait("document.querySelector('table').getAttribute('aria-rowcount') === '1001'")
        self.assertLess(page.run("document.querySelectorAll('tbody tr').length"), 100)
        page.key("ArrowDown")
        page.key("End")
        self.assertEqual(page.run("document.activeElement.getAttribute('aria-rowindex')"), "1001")
        self.assertLess(page.run("document.querySelectorAll('tbody tr').length"), 100)

    def test_narrow_wide_and_dark(self):
        page = self.pages(width=800, height=700, dark=True)
        ids = self.ids(page)
        self.assertLess(self.paper(page), 60)
        for view in ("#/", f"#/run/{ids['gpu']}", f"#/run/{ids['gpu']}/kernels", f"#/compare/{ids['steps-1']}/{ids['steps-2']}", f"#/history/{ids['steps-1']}"):
            self.to(page, view, "document.querySelector('#main td, #main .card')")
            for width in (800, 2560):
                page.resize(width, 900)
                page.settle()
                self.assert_fits(page)
                self.assertLessEqual(page.run("document.getElementById('main').scrollWidth"), page.run("document.getElementById('main').clientWidth"))
