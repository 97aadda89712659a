"""A job that spends its time in one known way, and measures it itself.

Proves: `tprof report host` divides the main thread's time as the job does, and names the
line; `tprof report findings` names the cause. The first argument chooses the way. The reports must
name the line that ends in `# HERE` and the way. The job prints lines `expect KEY=SECONDS` (or
bytes). With `calm` as second argument it does the same without the cause.
"""

import _thread
import os
import socket
import sys
import threading
import time

WAY = sys.argv[1]
CALM = "calm" in sys.argv[2:]
PASSES = 40
PAUSE_S = 0.03


class Watch:
    """Measures the wall and CPU time of this thread in the block that it surrounds."""

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


print(f"pid {os.getpid()}", flush=True)


def expect(**parts):
    for key, seconds in parts.items():
        print(f"expect {key}={seconds:.6f}", flush=True)


def victim_spins(cpu_s):
    end = time.thread_time() + cpu_s
    # Longer than a tick: a busy machine preempts the thread when it enters the kernel, and its stack is read
    # there.
    numbers = range(20_000 if CALM else 200_000)
    while time.thread_time() < end:
        for number in numbers:
            (number * number + 7) % 11 // 3 * number - (number ^ 5) * (number | 1)  # HERE hot


def hot():
    with WATCH:
        victim_spins(0.02 if CALM else 1.0)
    if CALM:
        time.sleep(1)
    expect(cpu=WATCH.cpu)


def victim_counts(cpu_s):
    end, total = time.thread_time() + cpu_s, 0
    while time.thread_time() < end:
        # Each number is a block in one of the interpreter's pools, for which it doesn't call malloc.
        for number in range(20000):
            total += number * number % 7000
    return total


def pools():
    with WATCH:
        victim_counts(1.0)
    expect(cpu=WATCH.cpu)


def victim_makes_data(queue):
    for _ in range(PASSES):
        time.sleep(0 if CALM else PAUSE_S)  # SLOW
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
        if CALM:
            time.sleep(PAUSE_S)
    worker.join()
    expect(data=WATCH.waited)


def victim_attends(orders):
    orders.recv()


def victim_looks():
    while True:
        time.sleep(0.1)


def helped():
    """Runs beside worker processes that wait on purpose: for orders, or for a fixed time."""
    import multiprocessing
    import subprocess

    fork = multiprocessing.get_context("fork")
    theirs, ours = fork.Pipe(False)
    helpers = [
        fork.Process(target=victim_attends, args=(theirs,), daemon=True),
        fork.Process(target=victim_looks, daemon=True),
        subprocess.Popen([sys.executable, "-c", "import sys\nsys.stdin.read()"], stdin=subprocess.PIPE),
    ]
    for helper in helpers[:2]:
        helper.start()
    data()
    for helper in helpers:
        helper.kill()
    ours.close()


def victim_contends(cpu_s):
    end = time.thread_time() + cpu_s
    # Longer than a tick: a busy machine preempts the thread when it enters the kernel, and its stack is read
    # there.
    numbers = range(20_000 if CALM else 200_000)
    while time.thread_time() < end:
        for number in numbers:
            (number * number + 7) % 11 // 3 * number - (number ^ 5) * (number | 1)  # HERE gil


def spins_between(begin, end):
    begin.wait()
    while not end.is_set():
        victim_spins(0.01)


def gil():
    begin, end = threading.Event(), threading.Event()
    # The threads begin together, because otherwise the start of the second would also wait for the first, on
    # another line. They end with the loop, because work after it would be a wait at the join.
    hogs = [threading.Thread(target=spins_between, args=(begin, end), name="hog") for _ in range(2)]
    for hog in hogs:
        if not CALM:
            hog.start()
    begin.set()
    with WATCH:
        victim_contends(0.4)
    end.set()
    for hog in hogs:
        if not CALM:
            hog.join()
    expect(cpu=WATCH.cpu, gil=WATCH.waited)


def victim_holds(lock, asked, holds):
    while os.read(asked, 1):
        with lock:
            os.write(holds, b"x")
            time.sleep(0 if CALM else PAUSE_S)  # HELD
    os.close(holds)


def victim_locks(lock):
    lock.acquire()  # HERE lock
    lock.release()


def lock():
    # The threads tell each other by pipes when to go on: `threading` uses locks of its own for that,
    # and waits of a millisecond each, of which there would be many, are too short to be read.
    mutex, (asked, ask), (held, holds) = threading.Lock(), os.pipe(), os.pipe()
    _thread.start_new_thread(victim_holds, (mutex, asked, holds))
    for _ in range(PASSES):
        os.write(ask, b"x")
        os.read(held, 1)
        with WATCH:
            victim_locks(mutex)
        if CALM:
            time.sleep(PAUSE_S)
    os.close(ask)
    os.read(held, 1)
    expect(lock=WATCH.waited)


def victim_writes(path):
    with open(path, "wb", buffering=0) as pipe:
        for _ in range(PASSES):
            if not CALM:
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
        if CALM:
            time.sleep(PAUSE_S)
    os.waitpid(child, 0)
    expect(file_io=WATCH.waited)


def victim_serves(end):
    for _ in range(PASSES):
        if not CALM:
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
        if CALM:
            time.sleep(PAUSE_S)
    server.join()
    expect(socket=WATCH.waited)


def victim_requests(end):
    end.sendall(b"?" * 40)
    return end.recv(1 << 16)  # HERE requests


def requests():
    """Many small requests to another process, each of which waits for its answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        if (child := os.fork()) == 0:
            theirs = server.accept()[0]
            while theirs.recv(40):
                time.sleep(0.002)
                theirs.sendall(bytes(1024))
            os._exit(0)
        ours = socket.create_connection(server.getsockname())
    with WATCH:
        for _ in range(400):
            victim_requests(ours)
    ours.close()
    os.waitpid(child, 0)
    expect(socket=WATCH.waited)


def core():
    children = []
    for _ in range(0 if CALM else 2 * len(os.sched_getaffinity(0))):
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
        module.write(f"import time\nend = time.thread_time() + {0.01 if CALM else 0.6}\n")
        module.write("while time.thread_time() < end:\n    pass\n")
    sys.path.insert(0, os.getcwd())
    with WATCH:
        import victim_slow  # noqa: F401
    after = Watch()
    with after:
        victim_spins(0.8)
    expect(start_up=WATCH.wall, imported=WATCH.cpu, after=after.cpu)


def victim_makes_objects(kept, many):
    for number in range(many):
        kept.append([number, {}])  # HERE gc


def collected():
    import gc

    spent, began = 0.0, 0.0

    def on_collection(phase, _):
        nonlocal spent, began
        if phase == "start":
            began = time.thread_time()
        else:
            spent += time.thread_time() - began

    gc.callbacks.append(on_collection)
    gc.set_threshold(1000, 2, 1)
    if CALM:
        gc.disable()
    with WATCH:
        victim_makes_objects([], 1_000_000)
    expect(gc=spent, cpu=WATCH.cpu)


def victim_keeps(kept):
    kept.append(bytearray(512 << 10))  # HERE leak


def leak():
    kept = []
    for _ in range(PASSES):
        victim_keeps(kept)
        if CALM:
            kept.clear()
        time.sleep(PAUSE_S)
    expect(kept=len(kept) * (512 << 10))


OBJECTS = 4000


def victim_keeps_objects(kept, at):
    kept[at : at + OBJECTS] = [(n, f"value {n}", {n: n}) for n in range(at + 1000, at + 1000 + OBJECTS)]  # HERE objects


def resident():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def objects():
    """Keeps small objects, which lie in the interpreter's arenas. The list has its size before."""
    kept = [None] * (PASSES * OBJECTS)
    before = resident()
    for number in range(PASSES):
        victim_keeps_objects(kept, 0 if CALM else number * OBJECTS)
        time.sleep(PAUSE_S)
    expect(kept=resident() - before)


def victim_drains(path):
    with open(path, "rb", buffering=0) as pipe:
        while pipe.read(4096):
            time.sleep(PAUSE_S)


def save_checkpoint(pipe, state):
    pipe.write(state)  # HERE checkpoint


def storage():
    os.mkfifo("storage")
    if (child := os.fork()) == 0:
        victim_drains("storage")
        os._exit(0)
    with open("storage", "wb", buffering=0) as pipe:
        for _ in range(0 if CALM else 2):
            with WATCH:
                # The second measured checkpoint drains the rest that the first left in the pipe.
                save_checkpoint(pipe, bytes(144 << 10))
        victim_spins(0.1)
    os.waitpid(child, 0)
    expect(saved=WATCH.wall)


def victim_derives(rounds):
    import hashlib

    return hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", rounds)  # HERE native


def native():
    victim_derives(1)
    with WATCH:
        # Long enough for a hundred samples, so that one or two at its edges, or with an unreadable stack, are
        # less than 5 %.
        for _ in range(1 if CALM else 40):
            victim_derives(150_000)
    if CALM:
        time.sleep(3)
    expect(cpu=WATCH.cpu)


def private_bytes():
    """Returns the bytes of this process's pages that no other process maps."""
    with open("/proc/self/smaps_rollup") as rollup:
        lines = (line.split() for line in rollup)
        return sum(1024 * int(line[1]) for line in lines if line[0].startswith("Private"))


def victim_reads_shared(objects):
    before = private_bytes()
    # Reading an object changes its reference count, which is a write.
    for number in objects:
        if CALM:
            break
        number == 0  # noqa: B015
    # Waits until the sizes, which are read once a second, have been read with everything copied.
    time.sleep(3.2)
    return private_bytes() - before


def forked():
    objects = [[number] for number in range(500_000)]
    time.sleep(0.3)
    pipes = []
    for _ in range(2):
        ours, theirs = os.pipe()
        if os.fork() == 0:
            os.write(theirs, b"%d" % victim_reads_shared(objects))
            os._exit(0)
        pipes.append(ours)
    time.sleep(4)
    copied = sum(int(os.read(pipe, 100)) for pipe in pipes)
    for _ in pipes:
        os.wait()
    expect(copied=copied)


def victim_saves(pipe, part):
    time.sleep(0 if CALM else PAUSE_S)  # MADE
    return os.write(pipe, part)


def victim_collects(parts):
    return [part.result() for part in parts]  # HERE pool


def pool():
    from concurrent.futures import ThreadPoolExecutor

    ours, theirs = os.pipe()
    with ThreadPoolExecutor(1, thread_name_prefix="saver") as executor:
        with WATCH:
            victim_collects([executor.submit(victim_saves, theirs, b"x") for _ in range(PASSES)])
    if CALM:
        time.sleep(1)
    expect(data=WATCH.waited)


def victim_computes(passes):
    began = time.thread_time()
    while time.thread_time() - began < (0 if CALM else 0.025):
        # Longer than a tick, as in `victim_spins`.
        for number in range(20000):
            (number * number + 7) % 11 // 3 * number - (number ^ 5) * (number | 1)  # HERE executor
    passes.append(time.thread_time() - began)


def executor():
    from concurrent.futures import ThreadPoolExecutor

    passes = []
    with ThreadPoolExecutor(2, thread_name_prefix="worker") as pool:
        for _ in range(PASSES):
            task = pool.submit(victim_computes, passes)
            with WATCH:
                task.result()  # WAITS executor
    if CALM:
        time.sleep(1)
    expect(awaited=WATCH.waited, cpu=sum(passes))


def victim_produces(results):
    for _ in range(PASSES):
        began = time.thread_time()
        while time.thread_time() - began < (0 if CALM else 0.025):
            for number in range(20000):
                (number * number + 7) % 11 // 3 * number - (number ^ 5) * (number | 1)  # HERE queue
        results.put(time.thread_time() - began)
        # Without a pause the other thread, which has its result, waits 5 ms for the GIL that this one holds.
        time.sleep(0.0002)


def takes_from_thread():
    import queue

    results, passes = queue.Queue(1), []
    producer = threading.Thread(target=victim_produces, args=(results,), name="producer")
    producer.start()
    for _ in range(PASSES):
        with WATCH:
            passes.append(results.get())  # WAITS queue
    producer.join()
    if CALM:
        time.sleep(1)
    expect(awaited=WATCH.waited, cpu=sum(passes))


def victim_runs_a_program():
    import subprocess

    subprocess.run(["sleep", "0" if CALM else str(PAUSE_S)], check=True)  # HERE child


def child():
    # Imported before the measured passes: on a busy machine the import waits for a core, which counts as
    # start-up.
    import subprocess  # noqa: F401

    # Starting a process takes tens of milliseconds on a busy machine, so the calm job starts only one.
    for _ in range(1 if CALM else PASSES // 2):
        with WATCH:
            victim_runs_a_program()
    if CALM:
        victim_spins(1)
    expect(other=WATCH.waited)


def victim_polls(path):
    while not os.path.exists(path):
        # Long enough for its stack to be read during the wait. Stacks of shorter waits are read by chance.
        time.sleep(PAUSE_S)  # HERE sleep


def sleep():
    if not CALM and (child := os.fork()) == 0:
        time.sleep(1)
        open("there", "w").close()
        os._exit(0)
    if CALM:
        open("there", "w").close()
    with WATCH:
        victim_polls("there")
    if CALM:
        victim_spins(0.3)
    else:
        os.waitpid(child, 0)
    expect(other=WATCH.waited)


def victim_naps_long():
    time.sleep(0.010)


def victim_naps_short():
    time.sleep(0.004)


def naps():
    long, short = Watch(), Watch()
    for _ in range(3 * PASSES):
        with long:
            victim_naps_long()
        victim_spins(0.001)
        with short:
            victim_naps_short()
        victim_spins(0.001)
    expect(long=long.waited, short=short.waited, other=long.waited + short.waited)


def victim_asks(asked, answers, pause_s):
    os.write(asked, b"%f\n" % pause_s)
    return os.read(answers, 1)  # HERE both


def both():
    # Samples of 10 ms measure the CPU time to within a few samples, so this runs twice as many passes as the
    # others.
    passes = 2 * PASSES
    asked, asks = os.pipe()
    answered, answers = os.pipe()
    if (child := os.fork()) == 0:
        for _ in range(passes):
            time.sleep(float(os.read(asked, 64)))
            os.write(answers, b"x")
        os._exit(0)
    spinning = Watch()
    for at in range(passes):
        # The passes have varying lengths. Passes of exactly two sampling periods would always be sampled at
        # the same place, often at their beginning.
        before = time.thread_time()
        with spinning:
            victim_spins(0.005 + 0.02 * (at * 0.618 % 1))
        # Twice the pass's CPU time, so that the waits are the larger cause. They don't follow its wall time: on a
        # busy machine that would leave the CPU time a small share.
        with WATCH:
            victim_asks(asks, answered, 2 * (time.thread_time() - before))
    os.waitpid(child, 0)
    expect(file_io=WATCH.waited, cpu=spinning.cpu)


WAYS = {
    "hot": hot,
    "pools": pools,
    "data": data,
    "gil": gil,
    "lock": lock,
    "file": file,
    "socket": peer,
    "requests": requests,
    "core": core,
    "imports": imports,
    "gc": collected,
    "leak": leak,
    "objects": objects,
    "checkpoint": storage,
    "native": native,
    "forked": forked,
    "pool": pool,
    "helped": helped,
    "executor": executor,
    "queue": takes_from_thread,
    "child": child,
    "sleep": sleep,
    "both": both,
    "naps": naps,
}
WAYS[WAY]()
