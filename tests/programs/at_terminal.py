"""Runs a command at a terminal of its own and types at it.

usage: at_terminal.py interrupt|quit|suspend COMMAND...

As in a shell, the command gets a process group of its own and the terminal's foreground. Its
output is passed on; then one line says how it ended. The command is `signal_counter tty`, under
tprof or not: it prints `ready PID` and ends when SIGUSR1 reaches that PID.
"""

import os
import pty
import select
import signal
import sys
import time

LIMIT_S = 60
# A stop is typed as soon as the job has handled the previous one, while tprof may still be
# handling it.
SUSPENDED = 30


class Terminal:
    def __init__(self, master):
        self.master, self.seen = master, b""

    # Waits to the end of the line: input typed in the middle of a line is echoed into it, and a
    # signal interrupts the job's write there.
    def wait_for(self, text, count=1):
        end = time.monotonic() + LIMIT_S
        while self.seen.count(text) < count:
            if time.monotonic() > end:
                sys.exit(f"no {text!r} in {self.seen!r}")
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.master, 65536)
                except OSError:
                    sys.exit(f"terminal closed before {text!r}: {self.seen!r}")

    def type(self, data):
        os.write(self.master, data)


def shell(command):
    """Runs the process at the terminal: a shell's job control, reduced to one job."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvp(command[0], command)
    try:
        os.setpgid(job, job)
    except OSError:
        pass
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        os.tcsetpgrp(0, os.getpgrp())
        os.write(1, b"stopped by %d\n" % os.WSTOPSIG(status))
        os.read(0, 1)
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)
    os.tcsetpgrp(0, os.getpgrp())
    if os.WIFSIGNALED(status):
        os.write(1, b"killed by %d\n" % os.WTERMSIG(status))
    else:
        os.write(1, b"exited %d\n" % os.WEXITSTATUS(status))
    os._exit(0)


def stops(victim):
    """Waits whether the process stops. The terminal signals each member of the group, so tprof may
    have stopped before the process has."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        with open(f"/proc/{victim}/stat") as stat:
            if stat.read().rsplit(")", 1)[1].split()[0] == "T":
                return True
        time.sleep(0.001)
    return False


def main():
    what, command = sys.argv[1], sys.argv[2:]
    pid, master = pty.fork()
    if pid == 0:
        shell(command)
    terminal = Terminal(master)
    terminal.wait_for(b"ready ")
    terminal.wait_for(b"\n")
    victim = int(terminal.seen.split(b"ready ")[1].split()[0])
    if what == "interrupt":
        terminal.type(b"\x03")
        terminal.wait_for(b"got 02\r\n")
    elif what == "quit":
        terminal.type(b"\x1c")
        terminal.wait_for(b"got 03\r\n")
    elif what == "suspend":
        for turn in range(1, SUSPENDED + 1):
            terminal.type(b"\x1a")
            terminal.wait_for(b"stopped by 20\r\n", turn)
            print("victim", "stopped" if stops(victim) else "runs on")
            terminal.type(b"\n")
            terminal.wait_for(b"got 18\r\n", turn)
    # If there were a second delivery, it would come within this time.
    time.sleep(0.3)
    os.kill(victim, signal.SIGUSR1)
    terminal.wait_for(b"counts ")
    terminal.wait_for(b"exited 49\r\n")
    output = terminal.seen.decode().replace("\r", "")
    for typed in "^C", "^\\", "^Z":
        output = output.replace(typed, "")
    for line in output.splitlines():
        if line.startswith(("counts", "exited", "killed", "stopped")):
            print(line)


main()
