"""A job that spends its time in one known way, and measures it itself.

Proves: `tprof report host` divides the main thread's time as the job does, and names the
line. The first argument is the way; printed are lines `expect KEY=SECONDS`. A line that
ends in `# HERE way` is the one to be named.
"""

import os
import socket
import sys
import threading
import time

WAY = sys.argv[1]
PASSES = 40
PAUSE_S = 0.03


class Watch:
    """Wall and CPU time of this thread in what it surrounds."""

    def __init__(self):
        self.wall = self.cpu = 0.0

    def __enter__(self):
        self.began = time.monotonic(), time.thread_time()

    def __exit__(self, *_):
        self.wall += time.monotonic() - self.began[0]
        self.cpu += time.thread_time() - self.began[1]

    @property
    def waited(self):
        return self.wall - self.cpu


WATCH = Watch()


def expect(**parts):
    for key, seconds in parts.items():
        print(f"expect {key}={seconds:.6f}", flush=True)


def victim_spins(cpu_s):
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        for number in range(500):
            (number * number + 7) % 11 // 3 * number - (number ^ 5) * (number | 1)  # HERE hot


def hot():
    with WATCH:
        victim_spins(1.0)
    expect(cpu=WATCH.cpu)


def victim_makes_data(queue):
    for _ in range(PASSES):
        time.sleep(PAUSE_S)
        queue.put(bytes(1000))


def victim_takes(queue):
    return queue.get()  # HERE data


def data():
    import multiprocessing

    fork = multiprocessing.get_context("fork")
    queue = fork.Queue(1)
    worker = fork.Process(target=victim_makes_data, args=(queue,))
    worker.start()
    for _ in range(PASSES):
        with WATCH:
            victim_takes(queue)
    worker.join()
    expect(data=WATCH.waited)


def victim_contends(cpu_s):
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        for number in range(500):
            (number * number + 7) % 11 // 3 * number - (number ^ 5) * (number | 1)  # HERE gil


def gil():
    hogs = [threading.Thread(target=victim_spins, args=(0.8,), name="hog") for _ in range(2)]
    for hog in hogs:
        hog.start()
    with WATCH:
        victim_contends(0.4)
    for hog in hogs:
        hog.join()
    expect(cpu=WATCH.cpu, gil=WATCH.waited)


def victim_holds(lock, held, stop):
    while not stop:
        with lock:
            held.append(True)
            time.sleep(PAUSE_S)
        while held and not stop:
            time.sleep(0.001)


def victim_locks(lock):
    lock.acquire()  # HERE lock
    lock.release()


def lock():
    mutex, held, stop = threading.Lock(), [], []
    holder = threading.Thread(target=victim_holds, args=(mutex, held, stop), name="holder")
    holder.start()
    for _ in range(PASSES):
        while not held:
            time.sleep(0.001)
        with WATCH:
            victim_locks(mutex)
        held.clear()
    stop.append(True)
    holder.join()
    expect(lock=WATCH.waited)


def victim_writes(path):
    with open(path, "wb", buffering=0) as pipe:
        for _ in range(PASSES):
            time.sleep(PAUSE_S)
            pipe.write(b"x")


def victim_reads(pipe):
    return os.read(pipe, 1)  # HERE file


def file():
    os.mkfifo("fifo")
    if (child := os.fork()) == 0:
        victim_writes("fifo")
        os._exit(0)
    pipe = os.open("fifo", os.O_RDONLY)
    for _ in range(PASSES):
        with WATCH:
            victim_reads(pipe)
    os.waitpid(child, 0)
    expect(file_io=WATCH.waited)


def victim_serves(end):
    for _ in range(PASSES):
        time.sleep(PAUSE_S)
        end.sendall(b"x")


def victim_receives(end):
    return end.recv(1)  # HERE socket


def peer():
    ours, theirs = socket.socketpair()
    server = threading.Thread(target=victim_serves, args=(theirs,), name="server")
    server.start()
    for _ in range(PASSES):
        with WATCH:
            victim_receives(ours)
    server.join()
    expect(socket=WATCH.waited)


def core():
    children = []
    for _ in range(2 * len(os.sched_getaffinity(0))):
        if (child := os.fork()) == 0:
            end = time.monotonic() + 2.5
            while time.monotonic() < end:
                pass
            os._exit(0)
        children.append(child)
    with WATCH:
        victim_spins(0.5)
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    expect(no_core=WATCH.waited, cpu=WATCH.cpu)


def imports():
    with open("victim_slow.py", "w") as module:
        module.write("import time\nend = time.thread_time() + 0.6\n")
        module.write("while time.thread_time() < end:\n    pass\n")
    sys.path.insert(0, os.getcwd())
    with WATCH:
        import victim_slow  # noqa: F401
    after = Watch()
    with after:
        victim_spins(0.8)
    expect(start_up=WATCH.wall, imported=WATCH.cpu, after=after.cpu)


WAYS = {
    "hot": hot,
    "data": data,
    "gil": gil,
    "lock": lock,
    "file": file,
    "socket": peer,
    "core": core,
    "imports": imports,
}
WAYS[WAY]()
