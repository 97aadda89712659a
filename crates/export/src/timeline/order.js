// The order of a process's rows: thread by thread; right below the thread that launches most
// of a device's work come that device's streams, and then its memory.

const DEVICE_ROWS = ["ranges", "stream", "waits"];

// The thread that launches most of the work of each device, by the device.
function launchers(trace, lanes) {
  const counts = new Map();
  for (const { device, rows } of lanes.filter((lane) => lane.kind === "stream")) {
    const threads = counts.get(device) || counts.set(device, new Map()).get(device);
    for (const { from, to } of rows) {
      for (let i = from; i < to; i++) {
        if (trace.launch[i] < 0) continue;
        const { thread } = trace.rowOf(trace.launch[i]).lane;
        threads.set(thread, (threads.get(thread) || 0) + 1);
      }
    }
  }
  const most = (threads) => [...threads].reduce((best, one) => one[1] > best[1] ? one : best, [null, 0])[0];
  return new Map([...counts].map(([device, threads]) => [device, most(threads)]));
}

// Lanes of a process and curves of its devices, from top to bottom.
function inOrder(lanes, curves, launchedBy) {
  const threads = [...new Set(lanes.filter((lane) => lane.thread !== null).map((lane) => lane.thread))];
  const devices = [...new Set([...lanes.filter((lane) => DEVICE_ROWS.includes(lane.kind)), ...curves].map((row) => row.device))];
  devices.sort((a, b) => (a === null) - (b === null) || a - b);
  const place = (device) => Math.max(0, threads.indexOf(launchedBy.get(device)));
  const out = [];
  const add = (test) => out.push(...lanes.filter(test));
  const device = (one) => {
    for (const kind of DEVICE_ROWS) add((lane) => lane.kind === kind && lane.device === one);
    out.push(...curves.filter((curve) => curve.device === one));
  };
  threads.forEach((thread, at) => {
    const spans = lanes.some((lane) => lane.kind === "thread" && lane.thread === thread);
    add((lane) => lane.thread === thread && lane.kind === (spans ? "thread" : "samples"));
    devices.filter((one) => place(one) === at).forEach(device);
    if (spans) add((lane) => lane.thread === thread && lane.kind === "samples");
  });
  if (!threads.length) devices.forEach(device);
  add((lane) => lane.kind === "compilations");
  return out;
}
