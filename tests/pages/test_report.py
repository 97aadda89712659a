"""Tests the report page in a real browser."""

import json
import shutil
import subprocess

from case import PageCase
from runs import HOSTILE, ROOT, TPROF, directory, made, page


def beside(run, *formats):
    """Writes pages of a run into its directory, and returns its report page."""
    for to in formats:
        subprocess.run([TPROF, "export", run, "--to", to], check=True, capture_output=True)
    return run / "report.html"


class ReportPage(PageCase):
    def report(self, **how):
        report = self.open(page("report"), **how)
        self.assertEqual(report.run("document.querySelectorAll('.error').length"), 0)
        return report

    def test_it_begins_with_what_was_recorded_and_holds_the_reports(self):
        report = self.report()
        self.assertRegex(report.text("#overview .verdict"), r"[\d,]+ events( and [\d,]+ CPU samples?)? recorded")
        self.assertGreater(report.run("document.querySelectorAll('#overview .facts dd').length"), 8)
        self.assertTrue(report.run("document.querySelector('#findings .card, #findings .verdict.whole') !== null"))
        for section in ("breakdown", "steps", "kernels", "operators"):
            self.assertTrue(report.run(f"!!document.querySelector('section#{section} table')"), section)
        for section in ("breakdown", "steps", "memory"):
            self.assertTrue(report.run(f"!!document.querySelector('section#{section} figure')"), section)

    def test_a_report_is_there_or_says_why_it_is_not(self):
        report = self.report()
        kinds = {path.rsplit("/", 1)[1]: document for path, document in report.run("JSON.parse(document.getElementById('data').textContent).data").items() if "/report/" in path}
        self.assertGreater(len(kinds), 25)
        there = set(report.run("[...document.querySelectorAll('section[data-kind]')].map(part => part.dataset.kind)"))
        for kind, document in kinds.items():
            tables = {key: rows for key, rows in document.get("tables", {}).items() if isinstance(rows, list)}
            if kind != "findings":
                self.assertEqual(kind in there, not tables or any(tables.values()), kind)
        self.assertEqual(report.run("document.querySelectorAll('#absent dt').length"), len(kinds) - len(there) - 1)
        self.assertNotIn("", report.run("[...document.querySelectorAll('#absent dd')].map(why => why.textContent)"))

    def test_tables_have_the_titles_and_headings_of_the_reports(self):
        report = self.report()
        printed = json.loads(subprocess.run([TPROF, "report", "kernels", "--json", made()], check=True, capture_output=True, text=True).stdout)
        whole = [key for key, how in printed["shown"].items() if how["view"] == "rows" and printed["tables"][key]]
        self.assertEqual(report.run("[...document.querySelectorAll('#kernels [data-table]')].map(part => part.dataset.table)"), whole)
        for key, how in printed["shown"].items():
            if how["view"] != "rows" or not printed["tables"][key]:
                continue
            self.assertIn(how["title"], report.text(f"#kernels [data-table={key}] h3"))
            self.assertIn(how["about"], report.run(f"document.querySelector('#kernels [data-table={key}]').textContent"))
            headings = report.run(f"[...document.querySelectorAll('#kernels [data-table={key}] th')].map(head => head.textContent)")
            known = [column["heading"] for column in how["columns"] if column["heading"] and any(row[column["key"]] not in (None, "") for row in printed["tables"][key])]
            self.assertEqual(headings, known, key)

    def test_tables_sort_by_any_column_and_show_all_columns(self):
        report = self.report()
        table = "[...document.querySelectorAll('#kernels [data-table]')].pop()"
        values = f"[...{table}.querySelector('tbody').rows].map(r => Number(r.cells[[...{table}.querySelectorAll('th')].findIndex(head => head.ariaSort)].title.replace(/[^0-9.]/g, '')))"
        button = f"[...{table}.querySelectorAll('th:not(.words) button')][0]"
        report.run(f"{button}.click()")
        down = report.run(values)
        self.assertGreater(len(down), 1)
        self.assertEqual(down, sorted(down, reverse=True))
        report.run(f"{button}.click()")
        self.assertEqual(report.run(values)[0], min(down))
        few = report.run("document.querySelectorAll('#kernels th').length")
        report.run("document.querySelector('#kernels .more-columns').click()")
        self.assertGreater(report.run("document.querySelectorAll('#kernels th').length"), few)

    def test_the_contents_and_the_search_lead_to_what_they_name(self):
        report = self.report()
        report.run("document.querySelector('nav a[href=\"#kernels\"]').click()")
        report.wait("Math.abs(document.getElementById('kernels').getBoundingClientRect().top - document.getElementById('main').getBoundingClientRect().top) < 40")
        self.assertEqual(report.run("document.querySelectorAll('nav a').length"), report.run("[...document.querySelectorAll('nav a')].filter(a => document.querySelector(a.getAttribute('href'))).length"))
        rows = report.run("document.querySelectorAll('#kernels tbody tr').length")
        report.key("/")
        report.type("no such name")
        report.wait("document.querySelectorAll('#kernels tbody tr').length === 0")
        report.key("Escape")
        self.assertEqual(report.run("document.querySelectorAll('#kernels tbody tr').length"), rows)
        named = self.open(page("report"), fragment="#operators")
        named.wait("Math.abs(document.getElementById('operators').getBoundingClientRect().top - document.getElementById('main').getBoundingClientRect().top) < 40")

    def test_names_that_look_like_markup_stay_text(self):
        report = self.report()
        self.assertIn("<img src=x", report.run("document.querySelector('#kernels').textContent"))
        self.assertGreater(len(HOSTILE), 0)

    def test_it_links_to_the_pages_beside_it(self):
        run = directory() / "linked"
        shutil.copytree(made(), run)
        links = "[...document.querySelectorAll('#main a[href*=\"html\"]')].map(a => a.getAttribute('href'))"
        alone = self.open(beside(run, "report"))
        self.assertEqual(alone.run(links), [])
        (run / "report.html").unlink()
        report = self.open(beside(run, "timeline", "flame", "report"))
        found = report.run(links)
        self.assertEqual(found[:2], ["timeline.html", "flame.html"])
        # Evidence of findings leads to its time.
        self.assertTrue(found[2:])
        for link in found[2:]:
            self.assertRegex(link, r"^timeline\.html#from=\d+&to=\d+")

    def test_points_of_the_roofline_name_operators_and_lead_to_the_timeline(self):
        run = directory() / "sized"
        subprocess.run([TPROF, "import", "-q", ROOT / "tests" / "flops" / "mlp.json.gz", "-o", run], check=True, capture_output=True)
        # `self.open` would fail, because this page leads to another page.
        report = self.browser.open(beside(run, "timeline", "report"))
        self.addCleanup(report.close)
        rows = report.run("JSON.parse(document.getElementById('data').textContent).data['runs/1/report/roofline'].tables.roofline")
        drawn = [row for row in rows if row["intensity"] and row["flops_per_s"] and (row["share"] or 0) >= 5e-4]
        self.assertGreater(len(drawn), 5)
        self.assertEqual(report.run("document.querySelectorAll('circle.point').length"), len(drawn))
        # The host's peak rates are unknown.
        self.assertEqual(report.run("document.querySelectorAll('.roof').length"), 0)
        point = "document.querySelector('a circle.point')"
        self.assertRegex(report.run(f"{point}.querySelector('title').textContent"), r"^aten::.*\n.* of the time\n.* operations for each byte")
        report.run(f"{point}.scrollIntoView({{block: 'center'}})")
        x, y = report.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({point}.getBoundingClientRect())")
        report.click(x, y)
        report.wait("location.pathname.endsWith('/timeline.html') && location.hash.startsWith('#from=')")

    def test_a_roof_rises_with_memory_and_labels_lie_below_each_other(self):
        report = self.report()
        # The scripts of a page are not visible to others, so the page gets other data.
        run = directory() / "roofs"
        run.mkdir()
        text = page("report").read_text()
        before, rest = text.split('id="data">', 1)
        data, after = rest.split("</script>", 1)
        data = json.loads(data)
        point = {"what": "aten::mm", "intensity": 10.0, "flops_per_s": 1e12, "share": 0.5, "time_ns": 5, "runs": 1, "bytes_per_s": 1e11, "bound": "compute"}
        peaks = [{"device": "D", "peak": name, "flops_per_s": rate, "bytes_per_s": 1e12} for name, rate in (("fp64", 9.7e12), ("fp32", 19.5e12))]
        data["data"]["runs/1/report/roofline"] |= {"tables": {"roofline": [point], "peaks": peaks}, "shown": {}}
        text = json.dumps(data).replace("<", "\\u003c")
        (run / "report.html").write_text(f'{before}id="data">{text}</script>{after}')
        report = self.open(run / "report.html")
        roofs = report.run("[...document.querySelectorAll('.roof')].map(path => path.getAttribute('d'))")
        self.assertEqual(len(roofs), 2)
        for path in roofs:
            self.assertRegex(path, r"^M[\d.]+ [\d.]+L[\d.]+ [\d.]+H[\d.]+$")
        labels = report.run("[...document.querySelectorAll('.of-roof')].map(label => [label.textContent, Number(label.getAttribute('y'))])")
        self.assertEqual([name.split(",")[0] for name, _ in labels], ["fp32", "fp64"])
        self.assertGreaterEqual(labels[1][1] - labels[0][1], 14.9)

    def test_it_prints_all_sections_in_light_colours(self):
        report = self.report(dark=True)
        pdf = report.pdf()
        self.assertTrue(pdf.startswith(b"%PDF"))
        self.assertGreater(len(pdf), 20_000)
        # The page is dark again afterwards, and more than one sheet was printed.
        self.assertLess(self.paper(report), 60)
        self.assertGreater(pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page "), 2)

    def test_dark_and_narrow(self):
        report = self.report(dark=True, width=390, height=800, scale=2, touch=True)
        self.assertLess(self.paper(report), 60)
        self.assert_fits(report)
        self.assertLessEqual(report.run("document.getElementById('main').scrollWidth"), report.run("document.getElementById('main').clientWidth"))
