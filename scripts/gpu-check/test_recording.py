"""Tests the parts of recording.py's check that need no run: `python3 test_recording.py`."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from checks import recording as judged
from raw import Entry
from recording import asked_for, stretches


def entry(what, *numbers):
    return Entry(what, 1, 0, *numbers)


def took(*ms):
    return {"step_ns": [int(one * 1e6) for one in ms]}


class AJournal(unittest.TestCase):
    def test_has_the_kinds_that_are_on_at_last_and_calls_left_out_of_them(self):
        kinds, calls = asked_for([
            entry("enabled", 10, 0, 0), entry("enabled", 49, 0, 0), entry("enabled", 17, 14, 0), entry("enabled", 5, 0, 0),
            entry("enabled", 2, 0, 0), entry("enabled", 2, 0, 1), entry("chosen", 5, 17, 0), entry("chosen", 5, 9, 0),
            entry("chosen", 4, 307, 0), entry("chosen", 4, 99, 1),
        ])
        self.assertEqual(kinds, [10, 49, 5])
        self.assertEqual(calls, {5: {"alone": False, "list": [9, 17]}, 4: {"alone": True, "list": [307]}})
        found = stretches(kinds, calls)
        self.assertEqual(found[judged.BASE]["kinds"], [10])
        self.assertEqual(found["floor: and calls of the driver"], {"kinds": [10], "calls": {"driver": calls[4]}, "zeroed": False})
        self.assertEqual(found[judged.ALL], {"kinds": [10, 49, 5], "calls": {"runtime": calls[5], "driver": calls[4]}, "zeroed": False})
        self.assertEqual(found[f"{judged.ALL}, and every call"]["kinds"], [10, 4, 5, 49])
        self.assertNotIn("floor: and overhead", found)


class AnInterval(unittest.TestCase):
    def test_is_of_values_that_hold_the_median_in_95_of_100_draws(self):
        self.assertIsNone(judged.interval([1, 2, 3, 4, 5]))
        self.assertEqual(judged.interval([6, 1, 3, 2, 5, 4]), (1, 6))
        self.assertEqual(judged.interval(list(range(1, 11))), (2, 9))
        self.assertEqual(judged.interval(list(range(1, 21))), (6, 15))


class ADifference(unittest.TestCase):
    def test_is_of_the_same_round(self):
        rounds = {number: {"native": took(10 * number, 10 * number), "floor": took(10 * number + 1)} for number in range(1, 7)}
        rounds[7] = {"native": took(5)}
        middle, between = judged.against(rounds, "floor", "native")
        self.assertEqual((middle, between), (1.0, (1.0, 1.0)))
        self.assertIsNone(judged.against({1: rounds[1]}, "floor", "native"))


if __name__ == "__main__":
    unittest.main()
