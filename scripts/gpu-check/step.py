"""Runs one command with a time limit, and keeps its exit status, its last lines, and the stacks of its threads if it
had to be killed."""

import errno
import glob
import json
import os
import shutil
import signal
import subprocess
import time

TAIL_BYTES = 4000


class Steps:
    """All steps of a check. No step runs past the end of the check, and a failed step doesn't stop the others."""

    def __init__(self, out, limit_s):
        self.out = out
        self.ends_at = time.monotonic() + limit_s
        self.list = []

    def left_s(self):
        return self.ends_at - time.monotonic()

    def skip(self, name, why, remedy=None):
        """Notes a step that did not run, why, and what to try."""
        print(f"== {name}: not run: {why}", *([f"   try: {remedy}"] if remedy else []), sep="\n", flush=True)
        self.list.append({"name": name, "status": None, "seconds": 0, "hung": False, "skipped": why, "try": remedy})
        self._write()

    def last_words(self):
        """Returns the last line that the last step printed."""
        ran = [one for one in self.list if "skipped" not in one]
        try:
            with open(self._log(ran[-1]["name"]), encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file if line.strip()]
        except (OSError, IndexError):
            lines = []
        return lines[-1][:300] if lines else "it printed no reason"

    def _log(self, name):
        return os.path.join(self.out, "logs", name.replace(" ", "-").replace(",", "") + ".txt")

    def run(self, name, command, limit_s=60, env=None, less_s=0):
        """Runs a command. Returns True if it ended with 0. `less_s` of its seconds are intended pauses and don't
        count."""
        if self.left_s() < 5:
            self.skip(name, "the time for the whole check is used up")
            return False
        limit_s = min(limit_s, self.left_s())
        log = self._log(name)
        os.makedirs(os.path.dirname(log), exist_ok=True)
        began, stacks = time.monotonic(), None
        with open(log, "wb") as output:
            try:
                job = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    env={**os.environ, **(env or {})}, start_new_session=True,
                )
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    raise
                self.skip(name, f"{command[0]} does not start: {error.strerror}")
                return False
            try:
                status = job.wait(limit_s)
            except subprocess.TimeoutExpired:
                stacks = where_threads_are(job.pid)
                os.killpg(job.pid, signal.SIGKILL)
                status = job.wait()
            except KeyboardInterrupt:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
                self.list.append({"name": name, "status": None, "seconds": round(time.monotonic() - began, 3), "hung": False,
                                  "skipped": "the check was interrupted while it ran"})
                raise
        seconds = time.monotonic() - began - less_s
        keep_tail(log)
        self.list.append({
            "name": name, "status": status, "seconds": round(seconds, 3), "hung": stacks is not None,
            "stacks": stacks, "limit_s": round(limit_s, 1),
        })
        self._write()
        how = "hung" if stacks else "ok" if status == 0 else f"status {status}"
        print(f"== {name}: {how}, {seconds:.1f} s", flush=True)
        return status == 0

    def _write(self):
        # Written to a new file and renamed, so that the previous list stays if the disk is full.
        path = os.path.join(self.out, "steps.json")
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(self.list, file, indent=1)
        os.replace(f"{path}.new", path)


def keep_tail(path):
    """Keeps only the last lines of the output, and removes the file of a step without output."""
    size = os.path.getsize(path)
    if size == 0:
        os.remove(path)
    elif size > TAIL_BYTES:
        with open(path, "rb") as file:
            file.seek(size - TAIL_BYTES)
            tail = file.read()
        with open(path, "wb") as file:
            file.write(tail)


def family(pid):
    """Returns a process and all its descendants, parents first."""
    children = {}
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat, encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(stat.split("/")[2]))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def where_threads_are(pid):
    """Returns {process: stacks}, from gdb if it is installed, else from each thread's files in /proc."""
    found = {}
    for one in family(pid):
        if shutil.which("gdb"):
            command = ["gdb", "-p", str(one), "-batch", "-nx", "-ex", "thread apply all bt 30"]
            try:
                done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, timeout=20, check=False)
                found[str(one)] = done.stdout.decode(errors="replace")[-20000:]
                continue
            except subprocess.TimeoutExpired:
                pass
        threads = {}
        for task in glob.glob(f"/proc/{one}/task/*"):
            read = {}
            for name in ("comm", "wchan", "syscall", "stack"):
                try:
                    with open(f"{task}/{name}", encoding="utf-8", errors="replace") as file:
                        read[name] = file.read().strip()
                except OSError:
                    pass
            threads[task.rpartition("/")[2]] = read
        found[str(one)] = threads
    return found
