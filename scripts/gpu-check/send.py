"""Ends a check, whether it is complete or was cut short: packs what was gathered into an archive, and judges it."""

import os
import shutil
import tempfile

import judge
import scrub


def cut_short(check, why):
    """Frees space after a check that could not go on, and ends its list of steps with the reason."""
    print(f"== {why}: what is there is packed", flush=True)
    if check.made_work:
        shutil.rmtree(check.args.work, ignore_errors=True)
    for at, folders, _ in os.walk(check.out):
        if "run" in folders:
            shutil.rmtree(os.path.join(at, "run"), ignore_errors=True)
    try:
        check.steps.skip("the rest of the check", why)
    except OSError as error:
        print(f"   the list of steps is not whole: {error.strerror}", flush=True)


def places(out):
    """Returns places for an archive: beside what was gathered, or where there is room."""
    return dict.fromkeys([os.path.dirname(out), tempfile.gettempdir(), "/dev/shm", os.path.expanduser("~")])


def packed(check, name):
    """Writes the archive to the first of the places that has room. Returns its path, or None if no place has room."""
    scrubber = scrub.Scrubber(check.out, [check.args.work, os.path.dirname(check.tprof), scrub.HERE])
    for place in places(check.out):
        archive = os.path.join(place, f"{name}.tar.gz")
        try:
            scrub.pack(scrubber, check.out, archive)
            return archive
        except OSError as error:
            print(f"error: {archive}: {error.strerror}; the next place is tried", flush=True)
            if os.path.exists(archive):
                os.remove(archive)
    return None


def findings_of(check, archive):
    """Returns the findings in the archive, or in what was gathered if there is no room to unpack the archive."""
    try:
        with tempfile.TemporaryDirectory() as work:
            return judge.judge(judge.unpacked(archive, work))
    except OSError:
        return judge.judge(check.out)


def pack_and_judge(check, name):
    archive = packed(check, name)
    if archive is None:
        print(f"error: no disk has room for the archive\n  try: free some MiB, then tar czf {name}.tar.gz {check.out}")
        return 1
    status = judge.report(findings_of(check, archive))
    print(f"\n{archive}\nis the file to send. Names of hosts, users and folders were removed: check that before you send it.")
    return status
