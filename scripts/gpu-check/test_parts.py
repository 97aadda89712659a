"""Tests parts of the check that a run without failures does not reach: `python3 test_parts.py`."""

import gzip
import json
import os
import socket
import sys
import tarfile
import tempfile
import unittest
from types import SimpleNamespace

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import checks.older
import checks.truth
import evidence
import judge
import raw
import scrub
from step import Steps


def contents(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class AStep(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)

    def test_that_hangs_is_killed_with_its_children_and_its_stacks_are_kept(self):
        steps = Steps(self.work.name, 60)
        self.assertFalse(steps.run("hang", ["sh", "-c", "echo here; sleep 600 & wait"], limit_s=1))
        self.assertTrue(steps.run("next", ["true"]))
        hung, after = json.loads(contents(f"{self.work.name}/steps.json"))
        self.assertEqual((hung["hung"], hung["status"], after["status"]), (True, -9, 0))
        self.assertEqual(len(hung["stacks"]), 2, hung["stacks"])
        self.assertEqual(contents(f"{self.work.name}/logs/hang.txt"), "here\n")

    def test_behind_the_end_of_the_whole_is_not_run(self):
        steps = Steps(self.work.name, 1)
        self.assertFalse(steps.run("late", ["true"]))
        self.assertIn("time", steps.list[0]["skipped"])


class AnArchive(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        self.saved = dict(os.environ)
        os.environ["USER"], os.environ["HOSTNAME"] = "stranger7", "rented-box-42"
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(self.saved)))

    def packed(self, files):
        """Returns all text in an archive of these files."""
        folder, text = f"{self.work.name}/gathered", ""
        for name, content in files.items():
            os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
            with open(f"{folder}/{name}", "wb") as file:
                file.write(content)
        archive = f"{self.work.name}/gpu-check-X-1-2.tar.gz"
        scrub.pack(scrub.Scrubber(folder, [self.work.name]), folder, archive)
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                text += f"{member.name} {member.uname} {member.uid}\n"
                if member.isfile():
                    data = tar.extractfile(member).read()
                    text += (gzip.decompress(data) if member.name.endswith(".gz") else data).decode(errors="replace")
        return text

    def test_names_no_host_user_place_or_serial_number(self):
        secrets = ["stranger7", "rented-box-42", socket.gethostname(), self.work.name, "/home/someone", "10.1.2.3",
                   "1234567890123", "GPU-01234567-89ab-cdef-0123-456789abcdef", "me@example.com"]
        smi = "    Serial Number                         : 1234567890123\n    GPU UUID      : GPU-01234567-89ab-cdef-0123-456789abcdef\n"
        lines = "\n".join(f"a line with {secret} in it" for secret in secrets)
        text = self.packed({
            "nvidia-smi.txt": smi.encode(), "logs/step.txt": lines.encode(), "x/tables.json.gz": gzip.compress(lines.encode()),
            "x/raw.cupti": b"TPROFRAW/home/stranger7/libcupti.so.12",
        })
        for secret in secrets:
            self.assertNotIn(secret, text)

    def test_keeps_what_is_judged(self):
        facts = {"gpu": "NVIDIA H100 80GB HBM3", "driver": "570.86.10", "kernel": "5.15.0-130-generic"}
        rows = json.dumps([["void at::native::sin_kernel<4>(float*)", 123456789, None, -1.5]])
        text = self.packed({"facts.json": json.dumps(facts).encode(), "x/tables.json.gz": gzip.compress(rows.encode())})
        self.assertIn(rows, text)
        for value in facts.values():
            self.assertIn(value, text)

    def test_that_leads_out_of_its_folder_is_refused(self):
        archive = f"{self.work.name}/bad.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.addfile(tarfile.TarInfo("../outside"))
        with self.assertRaises(SystemExit):
            judge.unpacked(archive, self.work.name)


class Evidence(unittest.TestCase):
    def test_that_is_cut_off_is_unreadable(self):
        with tempfile.TemporaryDirectory() as work:
            path = f"{work}/raw.cupti"
            with open(path, "wb") as file:
                file.write(raw.HEAD.pack(b"TPROFRAW", raw.BUFFER, 1, 28, 100) + b"short")
            with self.assertRaises(raw.Unreadable):
                raw.read(path)

    def test_of_losses_counts_all_but_those_of_the_host(self):
        for what, passes in (("stacks", True), ("heap events", True), ("records", False), ("frees of device memory", False),
                             ("allocations of device memory", False), ("samples of devices", False)):
            findings = evidence.Findings()
            run = {"completeness": {"losses": [{"what": what, "why": "", "count": 1}], "blind": []}}
            checks.truth.judge_losses("whole", run, findings)
            self.assertEqual(findings.list[0]["passed"], passes, what)
            findings = evidence.Findings()
            checks.truth.judge_losses("whole", {"completeness": {"losses": [], "blind": [{"what": what}]}}, findings)
            self.assertEqual(findings.list[0]["passed"], passes, what)

    def test_of_real_devices_is_whole_and_has_no_failure(self):
        """Archives that are kept: each byte of CUPTI's buffers in them is read."""
        kept = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "gpu")
        archives = [os.path.join(kept, name) for name in sorted(os.listdir(kept)) if name.endswith(".tar.gz")]
        self.assertTrue(archives)
        for archive in archives:
            with tempfile.TemporaryDirectory() as work:
                folder = judge.unpacked(archive, work)
                findings = judge.judge(folder).list
                self.assertEqual([one for one in findings if one["passed"] is False], [])
                versions = {}
                for name in evidence.Folder(folder).folders("truth-"):
                    one = evidence.Folder(folder).folder(name).raw()
                    self.assertEqual([buffer.unread for buffer in one.buffers], [0] * len(one.buffers), name)
                    versions[one.version] = len(one.of_kind(36))
                # Only the older archive has records of CUDA events.
                self.assertEqual(versions, {24: 2, 130001: 0}, archive)

    def test_of_an_older_check_excuses_what_that_is_known_for_and_nothing_else(self):
        event = SimpleNamespace(address=1)
        loss = {"what": "GPU records", "why": "they are of kinds unknown to this tprof", "count": 2}
        of = lambda kinds: SimpleNamespace(of_kind=lambda kind: kinds.get(kind, []))
        older, newer = checks.older.Evidence(1, of({36: [event] * 2})), checks.older.Evidence(2, of({36: [event] * 2}))
        self.assertTrue(older.are_only_events([loss]))
        self.assertFalse(newer.are_only_events([loss]))
        for losses in ([], [{**loss, "count": 3}], [loss, loss], [{**loss, "why": "another"}]):
            self.assertFalse(older.are_only_events(losses), losses)

        record = lambda time, size: SimpleNamespace(address=7, memoryOperationType=1, timestamp=time, bytes=size)
        row = lambda **values: evidence.Row({"free": False, "bytes": 64, "memory": "device", "address": 7, "correlation": None, **values})
        both, memory = [row(), row(correlation=5)], {49: [record(1000, 96), record(9000, 64)]}
        self.assertTrue(checks.older.Evidence(1, of(memory)).is_twice(both, 64))
        self.assertFalse(checks.older.Evidence(2, of(memory)).is_twice(both, 64))
        late = {49: [record(1000, 96), record(9_000_000, 64)]}
        for kinds, rows in ((late, both), ({49: memory[49][1:]}, both), (memory, both[:1]), (memory, [row(), row()]),
                            (memory, [row(), row(correlation=5, address=8)])):
            self.assertFalse(checks.older.Evidence(1, of(kinds)).is_twice(rows, 64))

    def test_of_no_run_passes_nothing(self):
        with tempfile.TemporaryDirectory() as work:
            findings = judge.judge(work).list
            self.assertFalse(any(one["passed"] for one in findings), findings)


if __name__ == "__main__":
    unittest.main()
