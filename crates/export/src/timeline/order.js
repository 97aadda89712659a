// Sorts the rows of a process. The streams and memory of a device come directly below the thread
// that launches most of its work. Threads that launched for the device earlier come above that
// thread. Below are the samples of these threads, and then the other threads.

const DEVICE_ROWS = ["ranges", "stream", "waits"];
// A thread counts as launching for a device if it launches at least this share of the device's
// work.
const LEAST_LAUNCHED = 0.05;

// Counts the kernels and copies of each device that each thread of a process launches.
function launches(trace, lanes) {
  const counts = new Map();
  for (const { device, rows } of lanes.filter((lane) => lane.kind === "stream")) {
    const threads = counts.get(device) || counts.set(device, new Map()).get(device);
    for (const { from, to } of rows) {
      let row = null, count = 0;
      const done = () => { if (row) threads.set(row.lane.thread, (threads.get(row.lane.thread) || 0) + count); count = 0; };
      for (let i = from; i < to; i++) {
        const launch = trace.launch[i];
        if (launch < 0) continue;
        // The next launch is usually in the same row, so look there first.
        if (!row || launch < row.from || launch >= row.to) { done(); row = trace.rowOf(launch); }
        count++;
      }
      done();
    }
  }
  return counts;
}

// Returns the thread that launches most; null if no launch is known.
function mostLaunching(threads) {
  return [...threads].reduce((best, one) => one[1] > best[1] ? one : best, [null, 0])[0];
}

// Groups devices by the thread that launches most of their work, together with earlier threads that
// launch for them.
function byLead(threads, devices, launched) {
  const groups = new Map();
  for (const device of devices) {
    const counts = launched.get(device) || new Map(), lead = mostLaunching(counts) ?? threads[0];
    const least = LEAST_LAUNCHED * [...counts.values()].reduce((a, b) => a + b, 0);
    const group = groups.get(lead) || groups.set(lead, { lead, devices: [], helpers: new Set() }).get(lead);
    group.devices.push(device);
    const before = threads.slice(0, threads.indexOf(lead));
    for (const [thread, count] of counts) if (before.includes(thread) && count >= least) group.helpers.add(thread);
  }
  for (const group of groups.values()) for (const helper of group.helpers) if (groups.has(helper)) group.helpers.delete(helper);
  return groups;
}

// Returns the lanes of a process and the curves of its devices, from top to bottom.
function inOrder(lanes, curves, launched) {
  const threads = [...new Set(lanes.filter((lane) => lane.thread !== null).map((lane) => lane.thread))];
  const devices = [...new Set([...lanes.filter((lane) => DEVICE_ROWS.includes(lane.kind)), ...curves].map((row) => row.device))];
  devices.sort((a, b) => (a === null) - (b === null) || a - b);
  const groups = byLead(threads, devices, launched);
  const out = [], placed = new Set();
  const of = (thread, kind) => lanes.filter((lane) => lane.thread === thread && lane.kind === kind);
  const place = (lead, own, helpers) => {
    const members = [...threads.filter((thread) => helpers.has(thread) && !placed.has(thread)), ...threads.filter((thread) => thread === lead)];
    const spans = members.flatMap((thread) => of(thread, "thread")), sampled = members.flatMap((thread) => of(thread, "samples"));
    // If the thread has no spans, its samples are shown in their place.
    const below = of(lead, "thread").length > 0;
    out.push(...spans, ...(below ? [] : sampled));
    for (const device of own) {
      for (const kind of DEVICE_ROWS) out.push(...lanes.filter((lane) => lane.kind === kind && lane.device === device));
      out.push(...curves.filter((curve) => curve.device === device));
    }
    if (below) out.push(...sampled);
    for (const thread of [lead, ...members]) placed.add(thread);
  };
  // The first thread is the program's main thread, so it comes before the others.
  const [first, ...others] = threads;
  for (const thread of [first, ...groups.keys(), ...others]) {
    if (placed.has(thread)) continue;
    const group = groups.get(thread) || [...groups.values()].find(({ helpers, lead }) => helpers.has(thread) && !placed.has(lead));
    if (group) place(group.lead, group.devices, group.helpers); else place(thread, [], new Set());
  }
  out.push(...lanes.filter((lane) => lane.kind === "compilations"));
  return out;
}
