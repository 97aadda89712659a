"""The program ``tprof``: where it lies, and how the module runs it."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional


class TprofError(RuntimeError):
    """tprof could not do what was asked; the text is its own."""


def _candidates() -> Iterator[str]:
    given = os.environ.get("TPROF_BIN")
    if given:
        yield given
    import sysconfig

    yield os.path.join(os.path.dirname(sys.executable or ""), "tprof")
    yield os.path.join(sysconfig.get_path("scripts"), "tprof")
    user = "posix_user"
    if user in sysconfig.get_scheme_names():
        yield os.path.join(sysconfig.get_path("scripts", user), "tprof")
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        yield os.path.join(directory or os.curdir, "tprof")


def find() -> str:
    """The path of the program: of the run that records this process, beside this Python, in its
    scripts, or on PATH. Raises TprofError where there is none."""
    for path in _candidates():
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise TprofError(
        "the program `tprof` was not found beside %s, in its scripts or on PATH; "
        "install it: pip install tprof" % (sys.executable or "this Python")
    )
