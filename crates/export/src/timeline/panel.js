// Fills the panel for an event or a stretch of time.

const MOST_NAMES = 40;

// Formats the byte counts in a detail text for people.
function readable(detail) {
  return detail.replace(/(\d+) bytes/g, (_, bytes) => formatBytes(Number(bytes)));
}

class Panel {
  constructor(trace, go) {
    Object.assign(this, { trace, go });
  }

  head(...titles) {
    $("table").tHead.replaceChildren(element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title))));
  }

  link(event, text) {
    return element("button", { onclick: () => this.go(event) }, text);
  }

  event(event) {
    const { trace } = this;
    const lane = trace.rowOf(event).lane, process = trace.processes[lane.process];
    const start = trace.start[event], duration = trace.end[event] - start;
    const launch = trace.launch[event], launched = trace.launched(event);
    const facts = [
      ["Kind", KINDS[trace.kind[event]]],
      ["On", `${process.rank}, ${process.name}, ${lane.name}`],
      ["Starts", `${formatTime(start)} after the run began`],
      ["Lasts", formatTime(duration)],
    ];
    if (trace.self[event] < duration - 0.5) facts.push(["Itself", `${formatTime(Math.max(0, trace.self[event]))} (${formatShare(trace.self[event], duration)})`]);
    if (trace.detail[event]) facts.push(["Details", readable(trace.details[trace.detail[event]])]);
    if (launch >= 0) {
      facts.push(["Launched by", this.link(launch, `${trace.names[trace.name[launch]]}, ${formatTime(start - trace.start[launch])} before`)]);
      const within = [];
      for (let up = trace.parent[launch]; up >= 0 && within.length < 4; up = trace.parent[up]) within.push(up);
      if (within.length) facts.push(["Within", element("span", {}, ...within.flatMap((up, i) => [i ? " ‹ " : "", this.link(up, trace.names[trace.name[up]])]))]);
    } else if (DEVICE_KINDS.has(trace.kind[event])) {
      facts.push(["Launched by", "not recorded"]);
    }
    if (launched.length) facts.push(["Launches", element("span", {}, ...launched.slice(0, 5).flatMap((to, i) => [i ? ", " : "", this.link(to, trace.names[trace.name[to]])]), launched.length > 5 ? ` and ${launched.length - 5} more` : "")]);
    const kin = trace.related(event).filter((other) => other !== event);
    if (kin.length) {
      const of = (other) => `${trace.processes[trace.rowOf(other).lane.process].rank}, ${formatTime(Math.abs(trace.start[other] - start))} ${trace.start[other] < start ? "before" : "after"}`;
      const operator = !DEVICE_KINDS.has(trace.kind[event]);
      const title = operator ? (trace.start[kin[0]] < start ? "Backward of" : "Its backward") : "On other ranks";
      const links = kin.slice(0, 8).flatMap((other, i) => [i ? "; " : "", this.link(other, operator ? trace.names[trace.name[other]] : of(other))]);
      facts.push([title, element("span", {}, ...links, kin.length > 8 ? ` and ${kin.length - 8} more` : "")]);
    }
    const use = trace.use(trace.name[event]);
    facts.push(["Of this name", `${formatCount(use.count)} events, ${formatTime(use.total)} together, ${formatTime(use.total / use.count)} on average`]);
    $("chosen").replaceChildren(element("h2", {}, trace.names[trace.name[event]]), this.list(facts));
    this.alike(event);
  }

  list(facts) {
    return element("dl", {}, ...facts.flatMap(([term, fact]) => [element("dt", {}, term), element("dd", {}, fact)]));
  }

  // Lists the longest events with the same name.
  alike(event) {
    const { trace } = this, name = trace.name[event];
    const same = [];
    for (let i = 0; i < trace.count && same.length < 200000; i++) if (trace.name[i] === name) same.push(i);
    same.sort((a, b) => (trace.end[b] - trace.start[b]) - (trace.end[a] - trace.start[a]));
    this.head("Lasts", "Starts", "Longest of this name, and where");
    $("table").tBodies[0].replaceChildren(...same.slice(0, MOST_NAMES).map((i) => {
      const lane = trace.rowOf(i).lane;
      return this.row(i, formatTime(trace.end[i] - trace.start[i]), formatTime(trace.start[i]), `${trace.processes[lane.process].rank} · ${lane.name}`);
    }));
  }

  row(event, ...cells) {
    const act = () => this.go(event);
    return element("tr", { tabindex: 0, onclick: act, onkeydown: (key) => { if (key.key === "Enter") { key.stopPropagation(); act(); } } },
      ...cells.map((cell) => element("td", {}, cell)));
  }

  range(from, to, title = "Selected time") {
    const { trace } = this;
    const per = activity(trace, from, to);
    const known = (value, guessed) => value === null ? "not recorded" : `${guessed ? "~" : ""}${formatTime(value)}  ${formatShare(value, to - from)}`;
    const only = per.length === 1 ? per[0] : null;
    const facts = [["From", formatTime(from)], ["To", formatTime(to)], ["Length", formatTime(to - from)]];
    if (only) {
      facts.push(["CPU active", known(only.cpu, only.guessed)]);
      if (only.guessed && only.spans !== null) facts.push(["In operators or calls", known(only.spans)]);
      facts.push(["GPU active", known(only.gpu)], ["Both at once", known(only.both, only.guessed)], ["GPU idle", known(only.gpu === null ? null : to - from - only.gpu)]);
    }
    const list = this.list(facts);
    const ranks = only ? null : element("table", { class: "ranks" }, element("thead", {}, element("tr", {}, ...["", "CPU active", "GPU active", "Both at once"].map((t) => element("th", { scope: "col", title: t === "CPU active" ? "any host thread on a core; without samples, within an operator, a Python function or a call" : null }, t)))),
      element("tbody", {}, ...per.map((row) => element("tr", {}, ...[row.rank, row.cpu, row.gpu, row.both].map((cell, i) => element("td", {}, i === 0 ? cell : cell === null ? "not recorded" : `${row.guessed && i !== 2 ? "~" : ""}${formatTime(cell)} · ${formatShare(cell, to - from)}`))))));
    const guessed = per.some((row) => row.guessed) ? element("p", { class: "dim" }, "~ is an estimate: when samples found any thread on a core.") : "";
    $("chosen").replaceChildren(element("h2", {}, title), list, ranks || "", guessed);
    this.head("Time", "Calls", "Average", "Name");
    const rows = names(trace, from, to);
    const section = (title, of, by) => {
      const there = rows.filter(of).sort((a, b) => b[by] - a[by]);
      if (!there.length) return [];
      return [element("tr", { class: "head" }, element("td", { colspan: 4 }, title)),
        ...there.slice(0, MOST_NAMES).map((row) => this.row(row.longest, formatTime(row[by]), formatCount(row.count), formatTime(row.total / row.count), trace.names[row.name]))];
    };
    const device = (row) => DEVICE_KINDS.has(row.kind);
    $("table").tBodies[0].replaceChildren(...section("On the GPU", device, "total"), ...section("On the host, without nested spans and idle threads", (row) => !device(row) && !["device range", "synchronisation", "graph"].includes(KINDS[row.kind]), "self"));
  }
}
