// Arranges events by row. Each lane is split into rows of nesting depth, and all columns are
// reordered by row. So a row is a range of indexes whose events do not overlap. Because durations
// are also stored as running sums, the busy time of any stretch of a row is found without visiting
// its events.

const KINDS = ["python", "operator", "range", "call", "overhead", "other", "kernel", "collective", "copy",
  "memset", "device range", "native", "waiting", "synchronisation", "graph", "own"];
// Kinds of device work: kernels, copies and so on. The bar around a graph's nodes is excluded,
// because its nodes are the work.
const DEVICE_KINDS = new Set([6, 7, 8, 9]);

class Trace {
  constructor(data) {
    const { start, duration, name, kind, detail, launch, kin } = data.columns;
    const count = start.length;
    Object.assign(this, { names: data.names, details: data.details, processes: data.processes, marks: data.marks, count });
    const depth = new Uint16Array(count), parent = new Int32Array(count).fill(-1);
    this.lanes = [];
    this.rows = [];
    let first = 0;
    for (const about of data.lanes) {
      const deep = nest(start, duration, depth, parent, first, first + about.count);
      this.lanes.push({ ...about, index: this.lanes.length, first, last: first + about.count, rows: [], depth: deep });
      first += about.count;
    }
    // The new index of each event.
    const place = new Uint32Array(count);
    let next = 0;
    for (const lane of this.lanes) {
      const counts = new Uint32Array(lane.depth + 1);
      for (let i = lane.first; i < lane.last; i++) counts[depth[i] + 1]++;
      for (let d = 0; d < lane.depth; d++) {
        counts[d + 1] += counts[d];
        const row = { lane, depth: d, from: next + counts[d], to: next + counts[d + 1] };
        lane.rows.push(row);
        this.rows.push(row);
      }
      for (let i = lane.first; i < lane.last; i++) place[i] = next + counts[depth[i]]++;
      next += lane.last - lane.first;
    }
    this.start = new Float64Array(count);
    this.end = new Float64Array(count);
    this.name = new Uint32Array(count);
    this.kind = new Uint8Array(count);
    this.detail = new Uint32Array(count);
    this.launch = new Int32Array(count);
    this.kin = new Uint32Array(count);
    this.parent = new Int32Array(count);
    this.self = new Float64Array(count);
    for (let i = 0; i < count; i++) {
      const at = place[i];
      this.start[at] = start[i];
      this.end[at] = start[i] + duration[i];
      this.name[at] = name[i];
      this.kind[at] = kind[i];
      this.detail[at] = detail[i];
      this.launch[at] = launch[i] > 0 ? place[launch[i] - 1] : -1;
      this.kin[at] = kin[i];
      this.parent[at] = parent[i] >= 0 ? place[parent[i]] : -1;
      this.self[at] += duration[i];
    }
    for (let i = 0; i < count; i++) {
      const above = this.parent[i];
      if (above >= 0) this.self[above] -= Math.max(0, Math.min(this.end[i], this.end[above]) - this.start[i]);
    }
    // Busy time from the row's first event up to each event.
    this.busy = new Float64Array(count + 1);
    for (let i = 0; i < count; i++) this.busy[i + 1] = this.busy[i] + this.end[i] - this.start[i];
    this.curves = curves(data);
    this.bounds(data);
    this.uses = new Map();
    this.scopes = scopes(this, data.slice);
    this.launches = data.processes.map((_, process) => launches(this, this.lanes.filter((lane) => lane.process === process)));
    this.idle = idleLanes(this);
  }

  // Returns the first and the last moment of all data.
  bounds(data) {
    let first = Infinity, last = -Infinity;
    for (const { from, to } of this.rows) {
      if (to > from) {
        first = Math.min(first, this.start[from]);
        last = Math.max(last, this.end[to - 1]);
      }
    }
    for (const curve of this.curves) {
      if (curve.time.length) { first = Math.min(first, curve.time[0]); last = Math.max(last, curve.time[curve.time.length - 1]); }
    }
    if (!(last > first)) { first = 0; last = 1000; }
    const margin = (last - first) * 0.01;
    Object.assign(this, { first, last, least: first - margin, most: last + margin });
  }

  rowOf(event) {
    let low = 0, high = this.rows.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.rows[middle].from <= event) low = middle; else high = middle - 1;
    }
    return this.rows[low];
  }

  // Returns the first event in [from, to) that ends after `time`. Ends rise within a row, so a
  // binary search finds it.
  after(from, to, time) {
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.end[middle] > time) to = middle; else from = middle + 1;
    }
    return from;
  }

  // Returns the first event in [from, to) that starts at `time` or later. Searches near the last
  // result first.
  startsAt(from, to, time) {
    let step = 1, low = from;
    while (low + step < to && this.start[low + step] < time) { low += step; step *= 2; }
    let high = Math.min(to, low + step);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start[middle] < time) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Returns the events that an event launched.
  launched(event) {
    if (!this.byLaunch) {
      this.byLaunch = new Map();
      for (let i = 0; i < this.count; i++) {
        const by = this.launch[i];
        if (by >= 0) (this.byLaunch.get(by) || this.byLaunch.set(by, []).get(by)).push(i);
      }
    }
    return this.byLaunch.get(event) || [];
  }

  // Returns the events of an event's group, including the event itself, in order of time.
  related(event) {
    if (this.kin[event] === 0) return [];
    if (!this.groups) {
      this.groups = new Map();
      for (let i = 0; i < this.count; i++) {
        const group = this.kin[i];
        if (group > 0) (this.groups.get(group) || this.groups.set(group, []).get(group)).push(i);
      }
      for (const group of this.groups.values()) group.sort((a, b) => this.start[a] - this.start[b]);
    }
    return this.groups.get(this.kin[event]);
  }

  // Returns the number of events with a name, and their total duration.
  use(name) {
    if (!this.uses.has(name)) {
      let count = 0, total = 0;
      for (let i = 0; i < this.count; i++) if (this.name[i] === name) { count++; total += this.end[i] - this.start[i]; }
      this.uses.set(name, { count, total });
    }
    return this.uses.get(name);
  }
}

// Computes the depth and the parent of each event of a lane. An event is one row below the deepest
// event that is still open, so that crossing events do not overlap. Returns the number of rows.
function nest(start, duration, depth, parent, first, last) {
  const ends = [], latest = [];
  let open = 0, deepest = 0;
  for (let i = first; i < last; i++) {
    while (open > 0 && ends[open - 1] <= start[i]) open--;
    if (open > 4000) open = 4000;
    depth[i] = open;
    if (open > 0) parent[i] = latest[open - 1];
    ends[open] = start[i] + duration[i];
    latest[open] = i;
    open++;
    if (open > deepest) deepest = open;
  }
  return deepest;
}

function curves(data) {
  let at = 0;
  return data.curves.map((about) => {
    const time = data.columns.curveTime.subarray(at, at + about.count);
    const value = Float64Array.from(data.columns.curveValue.subarray(at, at + about.count), (v) => v / about.scale);
    at += about.count;
    return { ...about, time, value, most: value.reduce((a, b) => Math.max(a, b), 0) };
  });
}
