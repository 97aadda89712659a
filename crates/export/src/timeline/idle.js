// Finds lanes in which hardly anything happened in the time that the page judges; the page folds
// them into one line. A thread that was only busy earlier, while the program started, also counts
// as idle.

// A thread is idle if it was active for less than this share of the time of the busiest thread of
// its process.
const IDLE_SHARE = 0.02;
const BUSY_KINDS = new Set(KINDS.map((_, kind) => kind).filter((kind) => KINDS[kind] !== "waiting"));

function idleLanes(trace) {
  return new Set(trace.launches.flatMap((launched, process) => idleOf(trace, trace.lanes.filter((lane) => lane.process === process), launched)));
}

function idleOf(trace, lanes, launched) {
  const { from, to } = trace.scopes.chosen;
  const times = new Map();
  for (const lane of lanes.filter((lane) => lane.thread !== null)) times.set(lane.thread, Math.max(times.get(lane.thread) || 0, active(trace, lane, from, to)));
  const most = Math.max(0, ...times.values());
  // A thread that launches most of a device's work is never idle, because its lane is shown above
  // that work.
  const launching = new Set([...launched.values()].map(mostLaunching));
  const there = (lane) => lane.rows.some((row) => { const i = trace.after(row.from, row.to, from); return i < row.to && trace.start[i] < to; });
  return lanes.filter((lane) => {
    if (lane.thread !== null) return times.get(lane.thread) < most * IDLE_SHARE && !launching.has(lane.thread);
    return DEVICE_ROWS.includes(lane.kind) && !there(lane);
  });
}

// Returns how long, within [from, to], a lane shows that its thread did anything except wait.
function active(trace, lane, from, to) {
  if (lane.kind === "samples") return total(running(trace, lane, from, to));
  return lane.rows.length ? total(within(trace, lane.rows[0], from, to, BUSY_KINDS)) : 0;
}
