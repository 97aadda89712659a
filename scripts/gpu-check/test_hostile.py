"""Runs the check on machines that lack something: each time it must report what is missing, why, and what to try, and
leave an archive. Usage: `python3 test_hostile.py`. The program in tprof's place only prints a version."""

import glob
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import bootstrap
import machine
from step import Steps

CHECK = os.path.join(os.path.dirname(HERE), "gpu-check.sh")
# An address where nothing listens, as on a machine without a network.
NO_NETWORK = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": "/dev/null", "PIP_RETRIES": "0", "PIP_FIND_LINKS": ""}


def program(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, 0o755)
    return path


class AMachine(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = work.name
        self.tprof = program(f"{self.work}/tprof", 'case $1 in --version) echo tprof 0;; *) echo "{}";; esac')
        self.env = {"PATH": "/usr/bin:/bin", "GPU_CHECK_PYTHON": sys.executable, **NO_NETWORK}

    def check(self, *words, tprof=None, before=()):
        """Returns (status, everything printed, archives)."""
        command = [*before, "sh", CHECK, "--quick", "--tprof", tprof or self.tprof, *words]
        done = subprocess.run(command, cwd=self.work, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120, check=False)
        return done.returncode, done.stdout, glob.glob(f"{self.work}/gpu-check-*.tar.gz")

    def steps(self, archives):
        self.assertEqual(len(archives), 1, archives)
        with tarfile.open(archives[0]) as tar:
            name = next(name for name in tar.getnames() if name.endswith("/steps.json"))
            return tar.extractfile(name).read().decode()

    def test_without_driver_is_named_with_what_to_try(self):
        if machine.without_driver([]) is None:
            self.skipTest("this machine has a driver")
        _, text, archives = self.check()
        self.assertIn("there is no NVIDIA driver here: nvidia-smi: No such file or directory", text)
        self.assertIn("try: nvidia-smi on the host; in a container --gpus all", text)
        self.assertIn("there is no NVIDIA driver here", self.steps(archives))

    def test_without_network_keeps_pips_reason(self):
        _, text, archives = self.check("--bootstrap")
        self.assertRegex(text, "CUDA 12 libraries from PyPI: not run: ERROR: .*nvidia-cuda-runtime-cu12")
        self.assertIn("try: --cuda DIR with a toolkit's folder; whether this machine reaches pypi.org", text)
        self.assertIn("No matching distribution", self.steps(archives))

    def test_with_a_python_that_has_no_torch_names_what_it_lacks(self):
        for python, why in ((program(f"{self.work}/none", "exit 3"), "does not start: status 3"),
                            (program(f"{self.work}/bare", f'exec {sys.executable} -S -E "$@"'), "has no torch that loads: ModuleNotFoundError")):
            _, text, archives = self.check("--python", python)
            self.assertIn(why, text)
            self.assertIn(why, self.steps(archives).replace("PLACE", self.work))
            for path in archives:
                os.remove(path)
            shutil.rmtree(f"{self.work}/gpu-check")

    def test_without_a_venv_module_installs_into_a_folder(self):
        broken = f"{self.work}/broken"
        os.makedirs(broken)
        with open(f"{broken}/venv.py", "w", encoding="utf-8") as file:
            file.write("raise SystemExit('The virtual environment was not created: ensurepip is not available')")
        saved = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(saved)))
        os.environ.update(PYTHONPATH=broken, PATH="/usr/bin:/bin")
        made = bootstrap.environment(Steps(self.work, 60), f"{self.work}/venv", "cu130")
        if made is None:
            self.skipTest("this Python has no pip either")
        python, install = made
        os.makedirs(f"{self.work}/venv/packages")
        with open(f"{self.work}/venv/packages/only_there.py", "w", encoding="utf-8") as file:
            file.write("here = 7")
        del os.environ["PYTHONPATH"]
        found = subprocess.run([python, "-c", "import only_there; print(only_there.here)"], stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(found.stdout, "7\n")
        self.assertIn("--target", install)

    def test_that_is_interrupted_leaves_what_it_has(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            started = f"{self.work}/started"
            slow = program(f"{self.work}/slow", f'case $1 in --version) echo tprof 0;; *) : >{started}; sleep 100;; esac')
            job = subprocess.Popen(["sh", CHECK, "--quick", "--tprof", slow], cwd=self.work, env=self.env,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            while not os.path.exists(started) and job.poll() is None:
                time.sleep(0.01)
            job.send_signal(number)
            text, _ = job.communicate(timeout=60)
            archives = glob.glob(f"{self.work}/gpu-check-*.tar.gz")
            self.assertIn("it was interrupted: what is there is packed", text)
            self.assertIn("it was interrupted", self.steps(archives))
            os.remove(archives[0])
            os.remove(started)
            shutil.rmtree(f"{self.work}/gpu-check")

    def test_with_a_full_disk_packs_where_there_is_room(self):
        small, room = f"{self.work}/small", f"{self.work}/room"
        os.makedirs(small), os.makedirs(room)
        # The first call of tprof fills the disk.
        fills = program(f"{self.work}/fills", f'case $1 in --version) echo tprof 0;; *) cat /dev/zero >{small}/filler; echo "{{}}";; esac')
        script = (f"mount -t tmpfs -o size=1m none {small} && cd {small} && "
                  f"exec sh {CHECK} --quick --tprof {fills}")
        self.env["TMPDIR"] = room
        done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], env=self.env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
        if "== " not in done.stdout:
            self.skipTest(f"no file system can be mounted here: {done.stdout}")
        self.assertIn("No space left on device: what is there is packed", done.stdout)
        self.assertIn("No space left on device; the next place is tried", done.stdout)
        self.assertEqual(len(glob.glob(f"{room}/gpu-check-*.tar.gz")), 1, done.stdout)

    def test_with_wrong_arguments_names_the_right_ones(self):
        for words, why in ((["--torch", "cu999", "--bootstrap"], "--torch cu999: no such build; try one of cu130"),
                           (["--torch", "cu130"], "add --bootstrap"), (["--limit", "0"], "more than 0"),
                           (["--rounds", "0"], "1 or more"),
                           (["--cuda", "/no/such"], "--cuda /no/such: there is no such folder"),
                           (["--python", "/no/such"], "--python /no/such: there is no such program"),
                           (["--out", "."], ". is there already")):
            status, text, archives = self.check(*words)
            self.assertEqual((status, archives), (2, []), text)
            self.assertIn(why, text)
        status, text, _ = self.check(tprof="/no/such/tprof")
        self.assertEqual(status, 2)
        self.assertIn("/no/such/tprof does not start: No such file or directory", text)

    def test_without_a_python_of_its_own_is_named(self):
        self.env = {"PATH": self.work, "GPU_CHECK_PYTHON": "/no/such"}
        for tool in ("dirname", "sh"):
            os.symlink(shutil.which(tool), f"{self.work}/{tool}")
        status, text, _ = self.check()
        self.assertEqual(status, 1)
        self.assertIn("there is no Python 3.9 or newer\n  try: apt-get install python3", text)


if __name__ == "__main__":
    unittest.main()
