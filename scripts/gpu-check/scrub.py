"""Removes names of hosts, users and places from the evidence, and packs it."""

import gzip
import io
import os
import re
import socket
import tarfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
# Lines of nvidia-smi -q that identify a piece of hardware, and network addresses.
IDENTITIES = re.compile(
    r"(?m)^(\s*(?:Serial Number|GPU UUID|Board ID|Board Part Number|GPU Part Number|Chassis Serial Number|"
    r"Module Id|Host ID|Minor Number|Process ID|Name\s*:\s*/\S*)\s*:).*$"
)
UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
NETWORK = re.compile(r"\b(?!127\.)(?:10|172|192|100)\.\d{1,3}\.\d{1,3}\.\d{1,3}\b")
MAIL = re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b")
SERIAL = re.compile(r"(?m)^\s*(?:Chassis )?Serial Number\s*:\s*(\w{4,})\s*$")
SHORTEST = 2
# Names that identify nobody and occur as ordinary words in the evidence.
PLAIN = {
    "root", "user", "home", "tmp", "localhost", "none", "null", "true", "false", "linux", "python", "ubuntu", "debian",
    "cuda", "gpu", "host", "node", "name", "part", "kernel", "kernels", "train", "device", "driver", "runtime", "main",
}


class Scrubber:
    """Replaces the names of this machine, its users and its folders."""

    def __init__(self, out, places=()):
        words = {}
        for place in (out, os.getcwd(), os.path.expanduser("~"), os.environ.get("TMPDIR", ""), *places):
            if place and len(place) > len("/tmp"):
                words[os.path.abspath(place)] = "PLACE"
                words[os.path.realpath(place)] = "PLACE"
        names = {socket.gethostname(), socket.gethostname().partition(".")[0], socket.getfqdn(), os.uname().nodename}
        for variable in ("HOSTNAME", "RUNPOD_POD_ID", "CONTAINER_ID", "VAST_CONTAINERLABEL"):
            names.add(os.environ.get(variable, ""))
        words |= {name: "HOST" for name in names if usable(name)}
        users = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")} | {account(os.getuid())}
        words |= {name: "USER" for name in users if usable(name)}
        # The longest words are replaced first, because the path of a folder begins with that of the folder around it.
        self.words = sorted(words.items(), key=lambda pair: -len(pair[0]))

    def learn(self, smi):
        """Learns the serial numbers in the output of `nvidia-smi -q`."""
        found = {number: "SERIAL" for number in SERIAL.findall(smi)}
        self.words = sorted({**dict(self.words), **found}.items(), key=lambda pair: -len(pair[0]))

    def text(self, text):
        for word, to in self.words:
            # A name is replaced only as a whole word, but a path anywhere.
            edge = "" if "/" in word else r"(?![A-Za-z0-9_])"
            front = "" if "/" in word else r"(?<![A-Za-z0-9_])"
            text = re.sub(front + re.escape(word) + edge, to, text)
        text = IDENTITIES.sub(r"\1 REMOVED", text)
        text = UUID.sub("00000000-0000-0000-0000-000000000000", text)
        text = NETWORK.sub("ADDRESS", text)
        text = MAIL.sub("MAIL", text)
        return re.sub(r"/(home|Users)/[^/\s\"']+", r"/\1/USER", text)

    def binary(self, data):
        """Returns raw buffers without names. Lengths must stay, so a name becomes as many other letters."""
        for word, _ in self.words:
            if len(word) >= 5:
                data = data.replace(word.encode(), b"x" * len(word.encode()))
        return data


def usable(name):
    return len(name) >= SHORTEST and name.lower() not in PLAIN


def account(uid):
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return ""


def clean(scrubber, path):
    """Returns the content of a file that may be published, as bytes."""
    with open(path, "rb") as file:
        data = file.read()
    if path.endswith(".gz"):
        text = scrubber.text(gzip.decompress(data).decode(errors="replace"))
        # Without a time, the same contents give the same bytes.
        return gzip.compress(text.encode(), mtime=0)
    if path.endswith(".cupti"):
        return scrubber.binary(data)
    return scrubber.text(data.decode(errors="replace")).encode()


def readable(scrubber, path):
    """Returns the same as `clean`, but nothing for a file that was cut off, because the judge could not read it
    either."""
    try:
        return clean(scrubber, path)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return b""


def pack(scrubber, folder, archive):
    """Packs everything in a folder, scrubbed, as ARCHIVE with one folder of its name in it. It works on one file at a
    time, because a disk that is nearly full has room for the archive only."""
    name = os.path.basename(archive).removesuffix(".tar.gz")
    smi = os.path.join(folder, "nvidia-smi.txt")
    if os.path.exists(smi):
        with open(smi, encoding="utf-8", errors="replace") as file:
            scrubber.learn(file.read())
    with tarfile.open(archive, "w:gz") as tar:
        for at, folders, files in os.walk(folder):
            folders.sort()
            for file in sorted(files):
                path = os.path.join(at, file)
                if os.path.islink(path):
                    continue
                data = readable(scrubber, path)
                info = tarfile.TarInfo(os.path.join(name, os.path.relpath(path, folder)))
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
