"""Finds the program ``tprof``."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional


class TprofError(RuntimeError):
    """The error if tprof could not do what was asked. Its text is the program's own."""


def _candidates() -> Iterator[str]:
    given = os.environ.get("TPROF_BIN")
    if given:
        yield given
    import sysconfig

    # Prefer the program installed with this module: others may have another version.
    site = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for scheme in sysconfig.get_scheme_names():
        if site in (sysconfig.get_path("purelib", scheme), sysconfig.get_path("platlib", scheme)):
            yield os.path.join(sysconfig.get_path("scripts", scheme), "tprof")
    yield os.path.join(site, "bin", "tprof")  # pip install --target
    yield os.path.join(os.path.dirname(sys.executable or ""), "tprof")
    yield os.path.join(sysconfig.get_path("scripts"), "tprof")
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        yield os.path.join(directory or os.curdir, "tprof")


def find() -> str:
    """Returns the path of the program ``tprof``. It looks for the program of the run that records this process,
    for the one that was installed with this module, beside this Python, among its scripts, and on PATH. Raises
    TprofError if there is none."""
    for path in _candidates():
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise TprofError(
        "the program `tprof` was not found beside %s, in its scripts or on PATH; "
        "install it: pip install tprof" % (sys.executable or "this Python")
    )
