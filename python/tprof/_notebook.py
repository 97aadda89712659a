"""``%load_ext tprof`` and ``%%tprof``: the CPU use of one notebook cell, sampled by ``tprof attach``."""

from __future__ import annotations

import html
import os
import shlex
import signal
import subprocess
import tempfile

from . import _abi, _binary, _session
from ._load import load
from ._range import range as span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional

_FINDINGS = 3
_PATIENCE_S = 60
"""Longest wait for the end of the sampling."""
_PR_SET_PTRACER = 0x59616D61

_number = 0


class CellRun:
    """The run of a cell: ``path`` is its directory and ``run`` has its reports. A notebook shows it as a flame
    page."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.run = load(path)

    def _repr_html_(self) -> str:
        page = os.path.join(self.path, "flame.html")
        self.run.export("flame", page, "--force")
        with open(page, encoding="utf-8") as file:
            flame = html.escape(file.read(), quote=True)
        rows = "".join(
            "<li>%s<br><small>%s</small></li>"
            % (html.escape(str(row.get("headline", ""))), html.escape(str(row.get("try", ""))))
            for row in self.run.findings()[:_FINDINGS]
        )
        return (
            '<iframe style="width:100%%;height:480px;border:0" sandbox="allow-scripts" srcdoc="%s"></iframe>'
            "<ol>%s</ol><p><code>tprof report cpu %s</code></p>"
            % (flame, rows, html.escape(shlex.quote(self.path)))
        )

    def __repr__(self) -> str:
        return "the cell's run: tprof report cpu %s" % shlex.quote(self.path)


def _attached(path: str, options: List[str]) -> "subprocess.Popen[bytes]":
    """Returns a sampler of this process that has begun. Raises TprofError with its message if it doesn't begin."""
    # --force, because otherwise tprof refuses to sample a process that started it, as this one does.
    words = ["attach", "--force", "--alone", "-o", path, *options, str(os.getpid())]
    sampler = subprocess.Popen(
        [_binary.find(), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_session.environment(),
        # A separate process group, because the notebook's interrupt is meant for the cell.
        start_new_session=True,
    )
    _may_trace(sampler.pid)
    assert sampler.stderr is not None
    said = b""
    for line in sampler.stderr:
        said += line
        if b"sampling process" in line:
            return sampler
    sampler.wait()
    raise _binary.TprofError(said.decode("utf-8", "replace").strip() or "tprof attach ended")


def _may_trace(process: int) -> None:
    """Lets a process read this process's memory, which the kernel's Yama module may permit only to ancestors. 0 revokes
    the permission."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(process), 0, 0, 0)
    except Exception:  # noqa: BLE001 - then native frames only, which the run states
        pass


def _end(sampler: "subprocess.Popen[bytes]") -> None:
    """Ends the sampling and waits for its files. Raises TprofError if it fails or takes too long."""
    sampler.send_signal(signal.SIGINT)
    try:
        _, said = sampler.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        sampler.kill()
        sampler.communicate()
        raise _binary.TprofError("tprof attach did not end within %d s" % _PATIENCE_S) from None
    finally:
        _may_trace(0)
    if sampler.returncode != 0:
        raise _binary.TprofError(said.decode("utf-8", "replace").strip())


def _run_cell(shell: Any, cell: str) -> Optional[BaseException]:
    """Runs a cell as the shell does and returns its exception without printing it: the magic raises it."""
    shown = {name: getattr(shell, name) for name in ("showtraceback", "showsyntaxerror")}
    for name in shown:
        setattr(shell, name, lambda *args, **kwargs: None)
    try:
        result = shell.run_cell(cell)
    finally:
        for name in shown:
            delattr(shell, name)
    error: Optional[BaseException] = result.error_before_exec or result.error_in_exec
    return error


def load_ipython_extension(shell: Any) -> None:
    """Registers ``%%tprof [-o DIR] [options of tprof attach]``."""

    def tprof(line: str, cell: str) -> None:
        """Samples the CPU use of the cell and shows its flame page and first findings."""
        global _number
        from IPython.display import display

        options = shlex.split(line)
        _number += 1
        if _abi.UNDER_TPROF:
            with span("cell %d" % _number):
                error = _run_cell(shell, cell)
            print("this kernel runs under tprof: span `cell %d` of %s" % (_number, _session.run_directory()))
            if error is not None:
                raise error
            return
        path = ""
        if "-o" in options[:-1]:
            at = options.index("-o")
            path = options[at + 1]
            del options[at : at + 2]
        path = os.path.abspath(path or tempfile.mkdtemp(prefix="tprof-cell-"))
        sampler = _attached(path, options)
        try:
            error = _run_cell(shell, cell)
        finally:
            _end(sampler)
        display(CellRun(path))  # type: ignore[no-untyped-call,unused-ignore]
        if error is not None:
            raise error

    shell.register_magic_function(tprof, "cell", "tprof")
