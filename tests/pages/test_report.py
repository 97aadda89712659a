"""Tests the report page in a real browser."""

import shutil
import subprocess

from case import PageCase
from runs import HOSTILE, ROOT, TPROF, directory, made, page


class ReportPage(PageCase):
    def report(self, **how):
        return self.open(page("report"), **how)

    def test_it_begins_with_what_was_recorded_and_holds_the_reports(self):
        report = self.report()
        self.assertRegex(report.text("#summary .verdict"), r"[\d,]+ events( and [\d,]+ CPU samples?)? recorded")
        for section in ("breakdown", "steps", "kernels", "operators", "memory"):
            self.assertTrue(report.run(f"!!document.querySelector('section#{section} table')"), section)
        for section in ("breakdown", "steps", "memory"):
            self.assertTrue(report.run(f"!!document.querySelector('section#{section} figure')"), section)

    def test_tables_sort_by_any_column(self):
        report = self.report()
        column = "[...document.querySelectorAll('#kernels table')].pop().tBodies[0].rows"
        values = f"[...{column}].map(r => Number(r.cells[0].dataset.number))"
        button = "[...document.querySelectorAll('#kernels table')].pop().tHead.querySelector('button')"
        report.run(f"{button}.click()")
        down = report.run(values)
        self.assertEqual(down, sorted(down, reverse=True))
        report.run(f"{button}.click()")
        self.assertEqual(report.run(values), down[::-1])

    def test_names_that_look_like_markup_stay_text(self):
        report = self.report()
        self.assertIn("<img src=x", report.run("document.querySelector('#kernels').textContent"))
        self.assertGreater(len(HOSTILE), 0)

    def test_it_links_to_the_pages_beside_it(self):
        run = directory() / "linked"
        shutil.copytree(made(), run)
        for to in ("timeline", "flame", "report"):
            subprocess.run([TPROF, "export", run, "--to", to], check=True, capture_output=True)
        report = self.open(run / "report.html")
        links = report.run("[...document.querySelectorAll('a.button')].map(a => a.getAttribute('href'))")
        self.assertEqual(links, ["timeline.html", "flame.html"])

    def test_points_of_the_roofline_name_operators_and_lead_to_the_timeline(self):
        run = directory() / "sized"
        subprocess.run([TPROF, "import", "-q", ROOT / "tests" / "flops" / "mlp.json.gz", "-o", run], check=True, capture_output=True)
        for to in ("timeline", "report"):
            subprocess.run([TPROF, "export", run, "--to", to], check=True, capture_output=True)
        # `self.open` would fail, because this page leads to another page.
        report = self.browser.open(run / "report.html")
        self.addCleanup(report.close)
        point = "document.querySelector('a circle.point')"
        self.assertRegex(report.run(f"{point}.querySelector('title').textContent"), r"^aten::.*\n.* of the time\n.* operations for each byte")
        report.run(f"{point}.scrollIntoView({{block: 'center'}})")
        x, y = report.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({point}.getBoundingClientRect())")
        report.click(x, y)
        report.wait("location.pathname.endsWith('/timeline.html') && location.hash.startsWith('#from=')")

    def test_it_prints(self):
        pdf = self.report().pdf()
        self.assertTrue(pdf.startswith(b"%PDF"))
        self.assertGreater(len(pdf), 20_000)

    def test_dark_and_narrow(self):
        report = self.report(dark=True, width=390, height=800, scale=2, touch=True)
        self.assertLess(self.paper(report), 60)
        self.assert_fits(report)
