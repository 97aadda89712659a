// Lays out groups of lanes and curves, from top to bottom.

const ROW = 17;
const GROUP = 22;
const CURVE = 40;
const GAP = 4;
const SHALLOW = 10; // rows of a lane that is not opened; fewer where ranks share the screen
const LEAST_SHALLOW = 4;

class Layout {
  constructor(trace, labels, changed) {
    Object.assign(this, { trace, labels, changed, closed: new Set(), opened: new Set(), unfolded: new Set(), items: [], height: 0 });
    this.groups = trace.processes.map((process, index) => {
      const lanes = trace.lanes.filter((lane) => lane.process === index), curves = trace.curves.filter((curve) => curve.process === index);
      const rows = inOrder(lanes, curves.filter((curve) => curve.device !== null), trace.launches[index]);
      return { index, process, lanes, rows, curves: curves.filter((curve) => curve.device === null), idle: lanes.filter((lane) => trace.idle.has(lane)) };
    });
    const run = trace.curves.filter((curve) => curve.process === null);
    if (run.length) this.groups.push({ index: -1, process: { rank: "host", name: "" }, lanes: [], rows: [], curves: run, idle: [] });
    // Sort the groups: the busiest process of each rank comes first, rank by rank, and then the
    // other processes.
    const events = (group) => group.lanes.reduce((sum, lane) => sum + lane.count, 0);
    const ranks = trace.processes.map((process) => process.rank);
    const place = (group) => group.index < 0 ? ranks.length : ranks.indexOf(group.process.rank);
    const mains = new Map();
    for (const group of this.groups.filter((group) => /^rank \d/.test(group.process.rank))) {
      const known = mains.get(group.process.rank);
      if (!known || events(group) > events(known)) mains.set(group.process.rank, group);
    }
    const first = (group) => mains.get(group.process.rank) === group ? 0 : 1;
    this.groups.sort((a, b) => first(a) - first(b) || place(a) - place(b) || events(b) - events(a) || a.index - b.index);
    const most = Math.max(...this.groups.map(events));
    const open = this.groups.filter((group) => !first(group) || events(group) >= most / 10).slice(0, Math.max(4, Math.min(mains.size, 8)));
    if (this.groups.length > 4) this.groups.forEach((group) => { if (!open.includes(group)) this.closed.add(group.index); });
    const screen = Math.floor(innerHeight * 0.5 / ROW / Math.max(1, Math.min(mains.size, 8))) - 3;
    this.shallow = mains.size > 1 ? Math.max(LEAST_SHALLOW, Math.min(SHALLOW, screen)) : SHALLOW;
    this.arrange();
  }

  arrange() {
    const items = [];
    this.spans = []; // rank, top and bottom of each group
    let y = 0;
    for (const group of this.groups) {
      const top = y;
      items.push({ type: "group", group, y, height: GROUP });
      y += GROUP;
      if (this.closed.has(group.index)) continue;
      const place = (lane) => {
        const rows = this.opened.has(lane.index) ? lane.depth : Math.min(lane.depth, this.shallow);
        const height = Math.max(1, rows) * ROW + GAP;
        items.push({ type: "lane", lane, rows, y, height });
        y += height;
      };
      const draw = (curve) => {
        items.push({ type: "curve", curve, y, height: CURVE });
        y += CURVE + GAP;
      };
      const shown = group.rows.filter((row) => !group.idle.includes(row));
      shown.forEach((row) => row.time ? draw(row) : place(row));
      if (group.idle.length) {
        items.push({ type: "idle", group, y, height: GROUP });
        y += GROUP;
        if (this.unfolded.has(group.index)) group.idle.forEach(place);
      }
      group.curves.forEach(draw);
      this.spans.push([group.process.rank, top + GROUP, y]);
    }
    Object.assign(this, { items, height: y + 12 });
    this.name();
  }

  // Creates labels as elements, so that a keyboard and a screen reader can find them.
  name() {
    this.labels.replaceChildren(...this.items.map((item) => {
      const made = this.label(item);
      made.style.top = `${item.y}px`;
      made.style.height = `${item.height}px`;
      return made;
    }));
  }

  label(item) {
    if (item.type === "group") {
      const { process, index } = item.group, closed = this.closed.has(index);
      return element("button", { class: "group", "aria-expanded": String(!closed), onclick: () => { this.toggle(this.closed, index); } },
        `${closed ? "▸" : "▾"} ${process.rank} `, element("span", {}, process.name));
    }
    if (item.type === "idle") {
      const { idle, index } = item.group, folded = !this.unfolded.has(index);
      const threads = new Set(idle.filter((lane) => lane.thread !== null).map((lane) => lane.thread)).size, streams = idle.filter((lane) => lane.thread === null).length;
      const counted = [[threads, "thread"], [streams, "stream"]].filter(([count]) => count).map(([count, what]) => `${count} idle ${what}${count === 1 ? "" : "s"}`);
      const title = [...new Set(idle.map((lane) => lane.name))].join(", ");
      return element("button", { class: "lane deep idle", title, "aria-expanded": String(!folded), onclick: () => { this.toggle(this.unfolded, index); } },
        `${folded ? "▸" : "▾"} ${counted.join(", ")}`);
    }
    if (item.type === "curve") {
      return element("div", { class: "curve", title: item.curve.name }, item.curve.name, element("br"), `${item.curve.total ? "in all" : "peak"} ${formatValue(item.curve.most, item.curve.unit)}`);
    }
    const { lane } = item, hidden = lane.depth - item.rows;
    const text = lane.kind === "samples" ? `${lane.name} sampled` : lane.kind === "ranges" || lane.kind === "waits" ? `${lane.name} ${lane.kind}` : lane.name;
    const title = `${text}: ${formatCount(lane.count)} events`;
    if (lane.depth <= this.shallow) return element("div", { class: "lane", title }, text);
    return element("button", { class: "lane deep", title, "aria-expanded": String(hidden === 0), onclick: () => { this.toggle(this.opened, lane.index); } },
      `${hidden ? "▸" : "▾"} ${text}`, hidden ? element("span", { class: "dim" }, ` +${hidden} rows`) : null);
  }

  toggle(set, key) {
    if (!set.delete(key)) set.add(key);
    this.arrange();
    this.changed();
  }

  // Unfolds everything that hides a row. Returns the row's position.
  show(row) {
    let changed = this.closed.delete(row.lane.process);
    const group = this.groups.find((group) => group.index === row.lane.process);
    if (group.idle.includes(row.lane) && !this.unfolded.has(group.index)) { this.unfolded.add(group.index); changed = true; }
    if (row.depth >= this.shallow && !this.opened.has(row.lane.index)) { this.opened.add(row.lane.index); changed = true; }
    if (changed) { this.arrange(); this.changed(); }
    return this.y(row);
  }

  // Returns the top of a row; null if the row is hidden.
  y(row) {
    const item = this.items.find((item) => item.lane === row.lane);
    return item && row.depth < item.rows ? item.y + row.depth * ROW : null;
  }

  at(y) {
    return this.items.find((item) => y >= item.y && y < item.y + item.height) || null;
  }
}
