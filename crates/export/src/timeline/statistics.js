// Computes statistics of a stretch of time. Shares come from unions of intervals, so that overlaps
// count once.

// Kinds that count as host work: operators, Python and calls. Ranges are excluded, because a range
// only names a stretch of time, and nothing may have happened in it.
const HOST_WORK = new Set(["python", "own", "operator", "call"].map((kind) => KINDS.indexOf(kind)));
// A sampled call lasts through the waits in it. The waits are calls of their own, so they can be
// subtracted.
const SAMPLED = new Set(["python", "own", "native"].map((kind) => KINDS.indexOf(kind)));
const WAITING = new Set([KINDS.indexOf("waiting")]);

// Returns a row's intervals of these kinds within [from, to], as starts and ends in turn.
function within(trace, row, from, to, kinds) {
  const { start, end, kind } = trace, wanted = KINDS.map((_, one) => kinds.has(one));
  const first = trace.after(row.from, row.to, from), last = trace.startsAt(first, row.to, to);
  const out = new Float64Array(2 * Math.max(0, last - first));
  let n = 0;
  for (let i = first; i < last; i++) {
    if (!wanted[kind[i]]) continue;
    const a = Math.max(from, start[i]), b = Math.min(to, end[i]);
    if (n && a <= out[n - 1]) out[n - 1] = Math.max(b, out[n - 1]);
    else if (b > a) { out[n++] = a; out[n++] = b; }
  }
  return out.subarray(0, n);
}

// Returns the union of two lists. The intervals of a list must be disjoint and rising.
function union(one, other) {
  if (!one.length) return other;
  if (!other.length) return one;
  const out = new Float64Array(one.length + other.length);
  let i = 0, j = 0, n = 0;
  while (i < one.length || j < other.length) {
    const first = j >= other.length || (i < one.length && one[i] <= other[j]);
    const a = first ? one[i] : other[j], b = first ? one[i + 1] : other[j + 1];
    if (first) i += 2; else j += 2;
    if (n && a <= out[n - 1]) out[n - 1] = Math.max(b, out[n - 1]);
    else { out[n++] = a; out[n++] = b; }
  }
  return out.subarray(0, n);
}

function unionOfAll(lists) {
  while (lists.length > 1) {
    const next = [];
    for (let i = 0; i < lists.length; i += 2) next.push(i + 1 < lists.length ? union(lists[i], lists[i + 1]) : lists[i]);
    lists = next;
  }
  return lists[0] || [];
}

function total(intervals) {
  let sum = 0;
  for (let i = 0; i < intervals.length; i += 2) sum += intervals[i + 1] - intervals[i];
  return sum;
}

// Returns the parts of the first list that are not in the second list.
function without(one, other) {
  const out = [];
  let j = 0;
  for (let i = 0; i < one.length; i += 2) {
    let a = one[i];
    while (j < other.length && other[j + 1] <= a) j += 2;
    for (let k = j; k < other.length && other[k] < one[i + 1]; k += 2) {
      if (other[k] > a) out.push(a, other[k]);
      a = Math.max(a, other[k + 1]);
    }
    if (a < one[i + 1]) out.push(a, one[i + 1]);
  }
  return out;
}

// Returns when samples found a thread on a core: the time of its calls without the waits.
function running(trace, lane, from, to) {
  const sampled = lane.rows.length ? within(trace, lane.rows[0], from, to, SAMPLED) : [];
  return without(sampled, unionOfAll(lane.rows.map((row) => within(trace, row, from, to, WAITING))));
}

// Groups lanes by rank.
function byRank(trace) {
  const ranks = new Map(trace.processes.map(({ rank }) => [rank, []]));
  for (const lane of trace.lanes) ranks.get(trace.processes[lane.process].rank).push(lane);
  return ranks;
}

// Returns when any lane of a kind had events of these kinds; null if there is no such lane.
function busyTimes(trace, lanes, kind, from, to, kinds) {
  const there = lanes.filter((lane) => lane.kind === kind);
  return there.length ? unionOfAll(there.flatMap((lane) => lane.rows.map((row) => within(trace, row, from, to, kinds)))) : null;
}
const gpuTimes = (trace, lanes, from, to) => busyTimes(trace, lanes, "stream", from, to, DEVICE_KINDS);
// Returns when operators, Python functions or calls ran, if spans of these kinds were recorded.
const spanTimes = (trace, lanes, from, to) => busyTimes(trace, lanes, "thread", from, to, HOST_WORK);
const isSampled = (lanes) => lanes.some((lane) => lane.kind === "samples");
// Returns when any host thread ran, estimated from samples. Without samples, spans are used.
function cpuTimes(trace, lanes, from, to) {
  if (!isSampled(lanes)) return spanTimes(trace, lanes, from, to);
  return unionOfAll(lanes.filter((lane) => lane.kind === "samples").map((lane) => running(trace, lane, from, to)));
}

// Returns the duration of each activity per rank, and how long host and GPU were active at the same
// time. A value is null if no lane shows the activity.
function activity(trace, from, to) {
  return [...byRank(trace)].map(([rank, lanes]) => {
    const guessed = isSampled(lanes), spans = spanTimes(trace, lanes, from, to);
    const cpu = guessed ? cpuTimes(trace, lanes, from, to) : spans, gpu = gpuTimes(trace, lanes, from, to);
    const sums = [cpu && total(cpu), gpu && total(gpu)];
    return { rank, guessed, cpu: sums[0], spans: spans && total(spans), gpu: sums[1], both: cpu && gpu ? sums[0] + sums[1] - total(union(cpu, gpu)) : null };
  });
}

// Returns for each name and kind: the number of events that touch the stretch, their time in it,
// and their time without nested events, clipped in proportion. Idle threads are excluded, because
// otherwise their waits would be at the top.
function names(trace, from, to) {
  const rows = new Map();
  for (const row of trace.rows) {
    if (row.lane.thread !== null && trace.idle.has(row.lane)) continue;
    for (let i = trace.after(row.from, row.to, from); i < row.to && trace.start[i] < to; i++) {
      const key = trace.name[i] * 16 + trace.kind[i];
      let sum = rows.get(key);
      if (!sum) rows.set(key, sum = { name: trace.name[i], kind: trace.kind[i], count: 0, total: 0, self: 0, longest: -1 });
      const whole = trace.end[i] - trace.start[i];
      const part = Math.min(to, trace.end[i]) - Math.max(from, trace.start[i]);
      sum.count++;
      sum.total += part;
      sum.self += whole > 0 ? Math.max(0, trace.self[i]) * part / whole : 0;
      if (sum.longest < 0 || whole > trace.end[sum.longest] - trace.start[sum.longest]) sum.longest = i;
    }
  }
  return [...rows.values()];
}
