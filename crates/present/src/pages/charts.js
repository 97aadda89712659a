// Draws charts: lines over time on a canvas, columns and shares as SVG and HTML. A chart's label
// describes its content to screen readers. The arrow keys move a cursor over a chart, as the
// pointer does.

const LINE_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7b4fb5", "#8a929c"];
const NOTCH = 5;

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== null && value !== undefined) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
// Colours of series: eight that everyone can distinguish, then hues between them.
const DARK_COLOURS = ["#4a9bc9", "#e8834a", "#2aa583", "#d99bbf", "#e0b34a", "#8fd0f5", "#a98bd6", "#9aa3ad"];
function lineColour(at) {
  if (isDark() && at < DARK_COLOURS.length) return DARK_COLOURS[at];
  return at < LINE_COLOURS.length ? LINE_COLOURS[at] : `hsl(${(at * 47) % 360} 55% 52%)`;
}
function inkOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Charts to paint again when the theme changes, because they read its colours while they are
// painted.
const painted = new Set();
function onTheme(chart) { painted.add(chart); }
function repaint() { for (const chart of painted) chart.paint(); }

// Returns round numbers for an axis, from 0 (or the smallest value) to the largest value.
function notches(least, most, count = NOTCH, base = 10) {
  const span = most - least || Math.abs(most) || 1;
  const power = base ** Math.floor(Math.log(span / count) / Math.log(base));
  const step = (base === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]).map((by) => by * power).find((by) => span / by <= count) || power * base;
  const out = [];
  for (let at = Math.ceil(least / step) * step; at <= most + step * 1e-6; at += step) out.push(at);
  return out;
}

// Lines over x: series are { label, values }, with null where nothing is known.
class LineChart {
  constructor({ title, unit, height = 150, xText = (x) => duration(x), stepped = false }) {
    Object.assign(this, { title, unit, height, xText, stepped });
    this.x = [];
    this.series = [];
    this.marks = [];
    this.at = -1;
    this.canvas = element("canvas", { tabindex: 0, role: "img", "aria-label": title });
    this.now = element("span", { class: "now" });
    this.caption = element("figcaption", {}, element("span", {}, title), this.now);
    this.element = element("figure", { class: "chart" }, this.caption, this.canvas);
    this.canvas.style.height = `${height}px`;
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("blur", () => this.leave());
    this.canvas.addEventListener("click", () => { if (this.at >= 0) this.open?.(this.at); });
    this.canvas.addEventListener("keydown", (event) => this.keys(event));
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(this.canvas);
    onTheme(this);
  }
  close() { this.observer.disconnect(); painted.delete(this); }

  set(x, series, { from = x[0], to = x[x.length - 1], marks = [], label = "" } = {}) {
    Object.assign(this, { x, series, marks, from, to });
    this.canvas.setAttribute("aria-label", label || this.describe());
    this.paint();
  }
  describe() {
    const last = this.series.map((one) => one.values.findLast((value) => value !== null && value !== undefined)).filter((value) => value !== undefined);
    if (!last.length) return `${this.title}: nothing is known`;
    const [least, most] = [Math.min(...last), Math.max(...last)];
    return `${this.title}: ${this.series.length} line${this.series.length === 1 ? "" : "s"}, last ${shown(least, this.unit)}${most > least ? ` to ${shown(most, this.unit)}` : ""}. Arrows read values.`;
  }

  range() {
    let least = Infinity, most = -Infinity;
    for (const one of this.series) for (const value of one.values) if (value !== null && value !== undefined) { if (value < least) least = value; if (value > most) most = value; }
    if (most === -Infinity) return null;
    // The axis includes zero unless all values are far from it.
    if (least > 0 && least < most * 0.7 || least === most) least = Math.min(0, least);
    // The axis spans at least a tenth of the largest value, so that noise does not look like a
    // change.
    if (most - least < 0.1 * Math.abs(most)) { const by = (0.1 * Math.abs(most) - (most - least)) / 2; most += by; least = least >= 0 ? Math.max(0, least - by) : least - by; }
    if (most === least) most = least + 1;
    if (this.unit === "share" && most > 0.8 && most <= 1) most = 1;
    return [least, most + (most - least) * 0.04];
  }
  placeX(x) {
    const pad = this.dots ? 8 : 0;
    return this.left + pad + (this.to > this.from ? (x - this.from) / (this.to - this.from) : 0.5) * (this.width - this.left - 10 - 2 * pad);
  }

  paint() {
    const { canvas } = this, ratio = devicePixelRatio || 1, width = canvas.clientWidth;
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(this.height * ratio)) canvas.height = Math.round(this.height * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, this.height);
    pen.font = `11px ${inkOf("--sans") || "sans-serif"}`;
    this.width = width;
    const range = this.range(), bottom = this.height - 17;
    const lines = range && notches(...range, 5, this.unit?.startsWith("bytes") ? 1024 : 10);
    this.left = Math.max(58, ...(lines || []).map((value) => pen.measureText(shown(value, this.unit)).width + 12));
    if (!range) { pen.fillStyle = inkOf("--dim"); pen.fillText("no values yet", this.left, bottom / 2); return; }
    const y = (value) => bottom - (value - range[0]) / (range[1] - range[0]) * (bottom - 8);
    this.placeY = y;
    this.axes(pen, lines, bottom, y);
    pen.save();
    pen.beginPath(); pen.rect(this.left, 0, width - this.left, bottom + 4); pen.clip();
    this.series.forEach((one, at) => this.line(pen, one, lineColour(one.colour ?? at), y));
    pen.restore();
    for (const mark of this.marks) this.mark(pen, mark, bottom);
    this.cursor(pen, y, bottom);
  }
  axes(pen, lines, bottom, y) {
    pen.strokeStyle = inkOf("--line");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    for (const value of lines) {
      const at = Math.round(y(value)) + 0.5;
      pen.beginPath(); pen.moveTo(this.left, at); pen.lineTo(this.width - 10, at); pen.stroke();
      pen.fillStyle = inkOf("--dim");
      pen.fillText(shown(value, this.unit), this.left - 6, Math.max(9, at + 4));
    }
    pen.textAlign = "left";
    pen.fillText(this.xText(this.from), this.left, this.height - 3);
    pen.textAlign = "right";
    pen.fillText(this.xText(this.to), this.width - 10, this.height - 3);
  }
  line(pen, one, colour, y) {
    pen.strokeStyle = colour;
    pen.fillStyle = colour;
    pen.lineWidth = this.series.length > 8 ? 1 : 1.6;
    pen.beginPath();
    let drawing = false, last = 0;
    one.values.forEach((value, i) => {
      if (value === null || value === undefined) { drawing = false; return; }
      const at = this.placeX(this.x[i]);
      if (drawing && this.stepped) pen.lineTo(at, last);
      last = y(value);
      if (drawing) pen.lineTo(at, last); else pen.moveTo(at, last);
      drawing = true;
    });
    pen.stroke();
    if (!this.dots) return;
    one.values.forEach((value, i) => {
      if (value === null || value === undefined) return;
      pen.beginPath(); pen.arc(this.placeX(this.x[i]), y(value), 3.2, 0, 7); pen.fill();
    });
  }
  // Marks a moment, and with `until` the time that began then. Whether that is bad may be nobody's
  // to say (`null`).
  mark(pen, { x, until, text, bad }, bottom) {
    const at = Math.round(this.placeX(x)) + 0.5;
    pen.strokeStyle = pen.fillStyle = inkOf(bad === null ? "--dim" : bad ? "--bad" : "--good");
    if (until) {
      pen.globalAlpha = 0.08;
      pen.fillRect(at, 0, this.placeX(Math.min(until, this.to)) - at, bottom);
      pen.globalAlpha = 1;
    }
    pen.setLineDash([4, 3]);
    pen.beginPath(); pen.moveTo(at, 0); pen.lineTo(at, bottom); pen.stroke();
    pen.setLineDash([]);
    const right = at + pen.measureText(text).width > this.width - 8;
    pen.textAlign = right ? "right" : "left";
    pen.fillText(text, at + (right ? -4 : 4), 10);
  }
  cursor(pen, y, bottom) {
    if (this.at < 0 || this.at >= this.x.length) return;
    const at = this.placeX(this.x[this.at]);
    pen.strokeStyle = inkOf("--faint");
    pen.beginPath(); pen.moveTo(at, 0); pen.lineTo(at, bottom); pen.stroke();
    this.series.forEach((one, i) => {
      const value = one.values[this.at];
      if (value === null || value === undefined) return;
      pen.fillStyle = lineColour(one.colour ?? i);
      pen.beginPath(); pen.arc(at, y(value), 3, 0, 7); pen.fill();
    });
  }

  hover(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left;
    let best = -1;
    this.x.forEach((value, at) => { if (best < 0 || Math.abs(this.placeX(value) - x) < Math.abs(this.placeX(this.x[best]) - x)) best = at; });
    this.show(best, event.clientX, event.clientY);
  }
  show(at, clientX, clientY) {
    this.at = at;
    this.paint();
    if (at < 0 || !this.series.length) { hideTip(); return; }
    const box = this.canvas.getBoundingClientRect();
    showTip(clientX ?? box.left + this.placeX(this.x[at]), clientY ?? box.top + this.height / 2, ...this.read(at));
  }
  // Returns the values at a point, for the tip: of all series if there are few, otherwise the
  // largest ones.
  read(at) {
    const there = this.series.map((one, i) => [one.label, one.values[at], i, one.why]).filter(([, value]) => value !== null && value !== undefined);
    const most = there.length > 10 ? there.slice().sort((a, b) => b[1] - a[1]).slice(0, 8) : there;
    return [element("b", {}, this.tipHead?.(at) ?? this.xText(this.x[at])),
      ...most.flatMap(([label, value, i]) => {
        const dot = element("i", { class: "dot" });
        dot.style.background = lineColour(this.series[i].colour ?? i);
        return [element("br"), dot, label ? `${label}  ` : "", shown(value, this.unit)];
      }),
      ...(there.length > most.length ? [element("br"), `the largest 8 of ${there.length}`] : []), ...(there.length ? [] : [element("br"), "not known"])];
  }
  leave() {
    if (this.at < 0) return;
    this.at = -1;
    hideTip();
    this.paint();
  }
  keys(event) {
    const last = this.x.length - 1, to = { ArrowLeft: this.at < 0 ? last : this.at - 1, ArrowRight: this.at < 0 ? last : this.at + 1, Home: 0, End: last }[event.key];
    if (event.key === "Enter" && this.at >= 0 && this.open) { event.preventDefault(); this.open(this.at); return; }
    if (event.key === "Escape" && this.at >= 0) { event.preventDefault(); event.stopPropagation(); this.leave(); return; }
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.show(Math.max(0, Math.min(last, to)));
    $("spoken").textContent = [...$("tip").childNodes].map((node) => node.textContent).join(" ").slice(0, 300);
  }
}

// Makes bars whose parts are shares of a whole.
function stacksChart(title, parts, rows) {
  const key = element("div", { class: "key" }, ...parts.map((part) => element("span", {}, element("i", { class: part.class }), part.name)));
  const bars = rows.flatMap(({ label, shares }) => [element("span", {}, label), element("div", {}, ...shares.map((share, at) => {
    if (!(share > 0)) return null;
    const part = element("b", { class: parts[at].class, title: `${parts[at].name} ${percentText(share)}` }, share >= 0.06 ? `${Math.round(share * 100)} %` : "");
    part.style.width = `${(share * 100).toFixed(2)}%`;
    return part;
  }))]);
  return element("figure", {}, element("figcaption", {}, title), key, element("div", { class: "stacks", role: "img", "aria-label": title }, ...bars));
}

// Makes a chart with a column per value. `out` marks a column that stands out.
function columnsChart(title, columns) {
  const most = Math.max(...columns.map((column) => column.value)), wide = Math.min(90, 900 / columns.length), tall = 150;
  if (!(most > 0)) return null;
  const every = Math.ceil(columns.length / 16);
  return element("figure", {}, element("figcaption", {}, title), svg("svg", { viewBox: `0 0 900 ${tall + 20}`, role: "img", "aria-label": title },
    ...columns.flatMap((column, at) => {
      const high = tall * column.value / most, x = wide * at;
      return [svg("rect", { class: column.out ? "column out" : "column", x: (x + wide * 0.1).toFixed(1), y: (tall - high).toFixed(1), width: (wide * 0.8).toFixed(1), height: high.toFixed(1) }, svg("title", {}, `${column.label}: ${column.text}`)),
        at % every === 0 ? svg("text", { class: "axis", x: (x + wide / 2).toFixed(1), y: tall + 14, "text-anchor": "middle" }, column.short || column.label) : null];
    }), svg("path", { class: "base", d: `M0 ${tall}H900` })));
}

// Draws a change with its confidence interval around zero. All rows have the same scale.
function whisker(change, interval, scale, good) {
  const x = (value) => 50 + Math.max(-48, Math.min(48, value / scale * 48));
  const [from, to] = [x(change - (interval || 0)), x(change + (interval || 0))];
  return svg("svg", { class: `whisker ${good}`, viewBox: "0 0 100 14", "aria-hidden": "true" },
    svg("path", { class: "axis", d: "M50 0V14" }),
    interval ? svg("path", { class: "reach", d: `M${from.toFixed(1)} 7H${to.toFixed(1)}M${from.toFixed(1)} 4V10M${to.toFixed(1)} 4V10` }) : null,
    svg("circle", { cx: x(change).toFixed(1), cy: 7, r: 3 }));
}
