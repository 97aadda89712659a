"""Tests the flame graph in a real browser."""

from case import PageCase
from runs import HOSTILE, made, page


class Flame(PageCase):
    def flame(self, **how):
        return self.open(page("flame"), **how)

    def focused(self, flame):
        return flame.text("#detail b")

    def test_a_click_zooms_and_escape_shows_all_again(self):
        flame = self.flame()
        whole = flame.text("#path")
        flame.run("document.querySelector('#table tbody tr').click()")
        first = self.focused(flame)
        area = flame.run("(() => { const r = document.querySelector('#canvas').getBoundingClientRect(); return [r.x, r.y]; })()")
        flame.click(area[0] + 40, area[1] + 3 * 19 + 8)
        self.assertNotEqual(self.focused(flame), first)
        self.assertFalse(flame.run("document.querySelector('#reset').disabled"))
        self.assertIn("›", flame.text("#path"))
        flame.key("Escape")
        self.assertTrue(flame.run("document.querySelector('#reset').disabled"))
        self.assertEqual(flame.text("#path"), whole)

    def test_the_keyboard_alone_reaches_every_frame(self):
        flame = self.flame()
        flame.run("document.querySelector('#scroll').focus()")
        flame.key("ArrowDown")
        self.assertEqual(self.focused(flame), "rank 0")
        flame.key("ArrowRight")
        self.assertEqual(self.focused(flame), "rank 1")
        flame.key("ArrowLeft")
        flame.key("ArrowDown")
        self.assertEqual(self.focused(flame), "ProfilerStep")
        flame.key("Enter")
        self.assertIn("ProfilerStep", flame.text("#path"))
        flame.key("Backspace")
        flame.key("Backspace")
        self.assertTrue(flame.run("document.querySelector('#reset').disabled"))
        flame.key("?")
        self.assertTrue(flame.run("document.querySelector('#help').open"))

    def test_a_search_shows_how_much_matches_and_steps_through_it(self):
        flame = self.flame()
        plain = self.pixels(flame)
        flame.key("/")
        flame.type("addmm")
        self.assertRegex(flame.text("#found"), r"ms, \d")
        self.assertNotEqual(self.pixels(flame), plain)
        flame.key("Enter")
        self.assertIn("ddmm", self.focused(flame))
        # The same operator may have the same time in both ranks, but the marks differ.
        first = self.pixels(flame)
        flame.key("n")
        self.assertIn("ddmm", self.focused(flame))
        self.assertNotEqual(self.pixels(flame), first)
        flame.key("/")
        flame.run("document.querySelector('#search').value = ''")
        flame.type("/^no such frame$/")
        self.assertEqual(flame.text("#found"), "no match")

    def test_inverting_puts_leaves_on_top_and_keeps_the_sum(self):
        flame = self.flame()
        whole = flame.text("#path").split(" in ")[0]
        flame.press("#invert")
        self.assertEqual(flame.text("#path").split(" in ")[0], whole)
        flame.run("document.querySelector('#scroll').focus()")
        flame.key("ArrowDown")
        self.assertRegex(self.focused(flame), "sgemm")
        flame.key("ArrowDown")
        self.assertRegex(self.focused(flame), "aten::")

    def test_pythons_frames_stand_for_the_interpreters(self):
        flame = self.open(page("flame"), fragment="#profile=cpu")
        frames = "[...document.querySelectorAll('#table tbody tr')].map(r => r.cells[0].textContent)"
        whole, hidden = flame.text("#path").split(" in ")[0], flame.run(frames)
        self.assertNotIn("_start", hidden)
        self.assertIn("train_step", hidden)
        flame.key("c")
        self.assertEqual(flame.text("#path").split(" in ")[0], whole)
        shown = flame.run(frames)
        self.assertIn("_start", shown)
        self.assertTrue(set(hidden) < set(shown))
        flame.press("#interpreter")
        self.assertEqual(flame.run(frames), hidden)
        # In a profile without Python, there are no frames to hide.
        flame.choose("#profile", "0")
        self.assertTrue(flame.run("document.querySelector('#interpreter').hidden"))

    def test_every_profile_and_measure_is_drawn(self):
        flame = self.flame()
        profiles = flame.run("document.querySelectorAll('#profile option').length")
        self.assertEqual(profiles, 7)
        seen = set()
        for profile in range(profiles):
            flame.choose("#profile", str(profile))
            for measure in range(flame.run("document.querySelectorAll('#measure option').length")):
                flame.choose("#measure", str(measure))
                if flame.run("document.querySelector('#empty').hidden"):
                    seen.add(self.pixels(flame))
                else:
                    # Only copies have bytes, and none of them was launched with a stack. No instruction was sampled.
                    self.assertRegex(flame.text("#empty"), "^Nothing was counted as “Copied” here.$|^No GPU instruction was sampled. ")
        self.assertGreaterEqual(len(seen), 10)

    def test_a_profile_without_data_names_what_would_fill_it(self):
        flame = self.open(page("flame", "--from-time", "0ms", "--to-time", "3ms"))
        flame.choose("#profile", "0")
        self.assertIn("No kernel or copy was recorded", flame.text("#empty"))
        self.assertIn("slice of the run", flame.text("#note"))

    def test_a_name_that_looks_like_markup_stays_text(self):
        flame = self.flame()
        flame.key("/")
        flame.type("onerror")
        row = flame.run("document.querySelector('#table tbody tr td').textContent")
        self.assertEqual(row, HOSTILE)
        flame.key("Enter")
        self.assertEqual(self.focused(flame), HOSTILE)

    def test_two_runs_are_compared(self):
        slow = made("--slow")
        flame = self.open(page("flame", "--against", str(made()), run=slow))
        self.assertIn("against", flame.text("#title"))
        heads = flame.run("[...document.querySelectorAll('#table th')].map(h => h.textContent)")
        self.assertEqual(heads, ["Frame", "Self", "Total", "Change"])
        first = flame.run("document.querySelector('#table tbody tr').cells[3].textContent")
        self.assertTrue(first.startswith("+"), first)
        now = flame.text("#path")
        flame.choose("#side", "1")
        self.assertNotEqual(flame.text("#path"), now)

    def test_choices_stay_in_the_address(self):
        flame = self.open(page("flame"), fragment="#profile=heap&measure=1&invert=1&search=alloc")
        self.assertEqual(flame.run("document.querySelector('#invert').getAttribute('aria-pressed')"), "true")
        self.assertEqual(flame.run("document.querySelector('#search').value"), "alloc")
        self.assertIn("Allocations", flame.text("#detail"))

    def test_dark_and_narrow(self):
        flame = self.flame(dark=True, width=390, height=800, scale=2, touch=True)
        self.assertLess(self.paper(flame), 60)
        self.assert_fits(flame)
        flame.press("#theme")
        self.assertGreater(self.paper(flame), 200)
