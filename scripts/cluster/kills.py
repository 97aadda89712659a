"""Kills executors while a query runs. The query must end with the same rows as on the embedded engine.

Killing an idle executor would prove nothing. Each trial therefore waits, with Spark's REST interface, for an active
stage of the wanted kind with finished, running and waiting tasks, and kills the process of an executor that runs some
of its tasks. It fails unless Spark then lists that executor as lost, those tasks as failed by the loss, and each of
them as done by another attempt. In a shuffle stage, the executor also held outputs of earlier stages: parts of those
stages must have run again.
"""

import os
import signal
import threading
import time
from datetime import datetime, timedelta, timezone

from compare import asked, difference

# To run for long, the queries multiply a view's rows by those of `rank_steps` for ranks below {joined}, which are in
# one file. With ten of 64 ranks, a stage has 150 million rows. The first query computes the product in the stage that
# reads files, and the second in the stage after a window's shuffle.
QUERIES = {
    "scan": "SELECT d.rank AS rank, d.call AS call, count(*) AS pairs, sum(d.delay_ns + q.rank * q.step) AS weighed "
            "FROM rank_steps q JOIN launch_delays d ON q.run = d.run WHERE q.rank < {joined} GROUP BY d.rank, d.call",
    "shuffle": "SELECT d.rank AS rank, count(*) AS pairs, sum(d.end_ns - d.start_ns + q.rank * q.step) AS weighed "
               "FROM rank_steps q JOIN device_time d ON q.run = d.run WHERE d.computing > 0 AND q.rank < {joined} GROUP BY d.rank",
}
# The expected rows. They are computed without the product, which would take the embedded engine minutes: each side is
# summed first.
ADDED_UP = "(SELECT run, count(*) AS rows_, sum(rank * step) AS weight FROM rank_steps WHERE rank < {joined} GROUP BY run) q"
SUMS = {
    "scan": "SELECT d.rank AS rank, d.call AS call, sum(q.rows_) AS pairs, sum(d.delay_ns * q.rows_ + q.weight) AS weighed "
            f"FROM launch_delays d JOIN {ADDED_UP} ON q.run = d.run GROUP BY d.rank, d.call",
    "shuffle": "SELECT d.rank AS rank, sum(q.rows_) AS pairs, sum((d.end_ns - d.start_ns) * q.rows_ + q.weight) AS weighed "
               f"FROM device_time d JOIN {ADDED_UP} ON q.run = d.run WHERE d.computing > 0 GROUP BY d.rank",
}
# Stages with fewer tasks belong to the small table.
TASKS = 16
# A stage that has run for longer than this is the one with the product.
AGE = timedelta(seconds=1)
END_S = 300


def moment(before=timedelta(0)):
    """Returns the time now, or `before` earlier, as Spark writes it."""
    return (datetime.now(timezone.utc) - before).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "GMT"


def kind_of(stage):
    """Returns the kind of a stage, judged by the data that its finished and running tasks have read so far."""
    if stage["inputRecords"] and not stage["shuffleReadRecords"]:
        return "scan"
    if stage["shuffleReadRecords"] and not stage["inputRecords"]:
        return "shuffle"
    return None


def place(stage):
    return f"/stages/{stage['stageId']}/{stage['attemptId']}"


def tasks(spark, stage):
    return spark.rest(f"{place(stage)}/taskList?length=10000")


class Query(threading.Thread):
    """A query on the cluster, in a thread of its own."""

    def __init__(self, ask, text):
        super().__init__(daemon=True)
        self.ask, self.text, self.rows, self.error = ask, text, None, None

    def run(self):
        try:
            self.rows = self.ask(self.text)
        except Exception as error:  # The client's library raises many kinds; each is a failed query.
            self.error = error


def caught(spark, kind, before, query):
    """Returns a stage of this query that is in progress: of the wanted kind, with finished, running and waiting
    tasks."""
    while query.is_alive():
        for stage in spark.rest("/stages?status=active"):
            waits = stage["numTasks"] - stage["numCompleteTasks"] - stage["numActiveTasks"]
            if (stage["stageId"] > before and stage["numTasks"] >= TASKS and kind_of(stage) == kind
                    and stage["numCompleteTasks"] and stage["numActiveTasks"] and waits
                    and stage["submissionTime"] < moment(before=AGE)):
                return stage
        time.sleep(0.1)
    raise RuntimeError(f"the query ended before a {kind} stage was active: {query.error or 'with rows'}")


def kill(spark, stage, everyone):
    """Kills an executor with a running task of the stage, or all executors, and returns their ids."""
    pids = spark.executor_pids()
    running = [task["executorId"] for task in tasks(spark, stage) if task["status"] == "RUNNING" and task["executorId"] in pids]
    if not running:
        raise RuntimeError("no executor had a running task of the stage")
    victims = sorted(pids) if everyone else running[:1]
    for victim in victims:
        os.kill(pids[victim], signal.SIGKILL)
    return victims


def proofs(spark, stage, victims, killed):
    """Returns the facts that prove the loss, as text. Raises RuntimeError if one does not hold."""
    executors = spark.executors(gone=True)
    facts = []
    for victim in victims:
        if executors[victim]["isActive"]:
            raise RuntimeError(f"Spark has not lost executor {victim}")
        facts.append(f"executor {victim}: {executors[victim]['removeReason'].splitlines()[0]}")
    attempts = spark.rest(f"/stages/{stage['stageId']}")
    every = [task for attempt in attempts for task in tasks(spark, attempt)]
    lost = [task for task in every if task["executorId"] in victims and task["status"] == "FAILED"]
    lost = [task for task in lost if "ExecutorLostFailure" in task.get("errorMessage", "")]
    # The stage's other attempts renumber their tasks, but partitions keep their numbers.
    done = {task["partitionId"] for task in every if task["status"] == "SUCCESS" and task["executorId"] not in victims}
    if not lost:
        raise RuntimeError(f"no task of stage {stage['stageId']} failed by the loss: the executor was idle")
    missing = [task["partitionId"] for task in lost if task["partitionId"] not in done]
    if missing:
        raise RuntimeError(f"partitions {missing} of stage {stage['stageId']} were not computed again")
    facts.append(f"{len(lost)} tasks failed by it and were done again")
    again = [row for row in spark.rest("/stages") if row.get("submissionTime", "") > killed
             and (row["stageId"] < stage["stageId"] or row["stageId"] == stage["stageId"] and row["attemptId"] > stage["attemptId"])]
    if again:
        facts.append("ran again: " + ", ".join(f"{row['numCompleteTasks']} tasks of stage {row['stageId']}" for row in again))
    elif kind_of(stage) == "shuffle":
        raise RuntimeError(f"no stage before stage {stage['stageId']} ran again")
    return facts


def trial(spark, ask, kind, text, wanted, everyone):
    before = max((stage["stageId"] for stage in spark.rest("/stages")), default=-1)
    query = Query(ask, text)
    query.start()
    stage = caught(spark, kind, before, query)
    killed, began = moment(), time.monotonic()
    victims = kill(spark, stage, everyone)
    query.join(END_S)
    if query.is_alive():
        raise RuntimeError(f"the query goes on {END_S} s after the kill")
    seconds = time.monotonic() - began
    if query.error:
        raise query.error
    if problem := difference(wanted, query.rows):
        raise RuntimeError(problem)
    at = f"{kind} stage {stage['stageId']}, {stage['numCompleteTasks']} of {stage['numTasks']} tasks done"
    print(f"ok  killed {'all executors' if everyone else 'an executor'} in {at}: right result after {seconds:.1f} s")
    for fact in proofs(spark, stage, victims, killed):
        print(f"    {fact}", flush=True)
    # The next trial begins with all executors.
    spark.wait("the executors", lambda: len(spark.executor_pids()) == len(spark.executors()) == spark.count)


def kills(spark, ask, sql, dataset, joined, victims):
    """Runs a trial for each of `victims` and each kind of stage. A trial kills one executor, or all if the victim is
    true. Returns the number of trials that failed."""
    failed = 0
    for kind, query in QUERIES.items():
        text = query.format(joined=joined)
        wanted, _ = asked(sql, dataset, SUMS[kind].format(joined=joined))
        for everyone in victims:
            try:
                trial(spark, ask, kind, text, wanted, everyone)
            except Exception as error:
                failed += 1
                print(f"WRONG  {kind}{', all executors' if everyone else ''}: {error}", flush=True)
    return failed
