// What lies where: groups of lanes and curves, from top to bottom.

const ROW = 17;
const GROUP = 22;
const CURVE = 40;
const GAP = 4;
const SHALLOW = 10; // rows of a lane that is not opened

class Layout {
  constructor(trace, labels, changed) {
    Object.assign(this, { trace, labels, changed, closed: new Set(), opened: new Set(), items: [], height: 0 });
    const order = { ranges: 2, stream: 3, waits: 4, thread: 0, samples: 1 };
    this.groups = trace.processes.map((process, index) => ({
      index, process,
      lanes: trace.lanes.filter((lane) => lane.process === index).sort((a, b) => order[a.kind] - order[b.kind]),
      curves: trace.curves.filter((curve) => curve.process === index),
    }));
    const run = trace.curves.filter((curve) => curve.process === null);
    if (run.length) this.groups.push({ index: -1, process: { rank: "host", name: "" }, lanes: [], curves: run });
    // Of a rank's processes the one that did most comes first; the first few that
    // did much are open.
    const events = (group) => group.lanes.reduce((sum, lane) => sum + lane.count, 0);
    const ranks = trace.processes.map((process) => process.rank);
    const place = (group) => group.index < 0 ? ranks.length : ranks.indexOf(group.process.rank);
    this.groups.sort((a, b) => place(a) - place(b) || events(b) - events(a) || a.index - b.index);
    const most = Math.max(...this.groups.map(events));
    const open = this.groups.filter((group) => events(group) >= most / 10).slice(0, 4);
    if (this.groups.length > 4) this.groups.forEach((group) => { if (!open.includes(group)) this.closed.add(group.index); });
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
      for (const lane of group.lanes) {
        const rows = this.opened.has(lane.index) ? lane.depth : Math.min(lane.depth, SHALLOW);
        const height = Math.max(1, rows) * ROW + GAP;
        items.push({ type: "lane", lane, rows, y, height });
        y += height;
      }
      for (const curve of group.curves) {
        items.push({ type: "curve", curve, y, height: CURVE });
        y += CURVE + GAP;
      }
      this.spans.push([group.process.rank, top + GROUP, y]);
    }
    Object.assign(this, { items, height: y + 12 });
    this.name();
  }

  // Labels are elements, so that a keyboard and a screen reader find them.
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
    if (item.type === "curve") {
      return element("div", { class: "curve", title: item.curve.name }, item.curve.name, element("br"), `peak ${formatValue(item.curve.most, item.curve.unit)}`);
    }
    const { lane } = item, hidden = lane.depth - item.rows;
    const text = lane.kind === "samples" ? `${lane.name} sampled` : lane.kind === "ranges" || lane.kind === "waits" ? `${lane.name} ${lane.kind}` : lane.name;
    const title = `${text}: ${formatCount(lane.count)} events`;
    if (lane.depth <= SHALLOW) return element("div", { class: "lane", title }, text);
    return element("button", { class: "lane deep", title, "aria-expanded": String(hidden === 0), onclick: () => { this.toggle(this.opened, lane.index); } },
      `${hidden ? "▸" : "▾"} ${text}`, hidden ? element("span", { class: "dim" }, ` +${hidden} rows`) : null);
  }

  toggle(set, key) {
    if (!set.delete(key)) set.add(key);
    this.arrange();
    this.changed();
  }

  // Opens what hides a row; returns where it is.
  show(row) {
    let changed = this.closed.delete(row.lane.process);
    if (row.depth >= SHALLOW && !this.opened.has(row.lane.index)) { this.opened.add(row.lane.index); changed = true; }
    if (changed) { this.arrange(); this.changed(); }
    return this.y(row);
  }

  // Top of a row, or null if it is not shown.
  y(row) {
    const item = this.items.find((item) => item.lane === row.lane);
    return item && row.depth < item.rows ? item.y + row.depth * ROW : null;
  }

  at(y) {
    return this.items.find((item) => y >= item.y && y < item.y + item.height) || null;
  }
}
