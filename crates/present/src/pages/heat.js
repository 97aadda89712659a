// Draws a heat map on a canvas, with ranks from top to bottom, and time or steps from left to
// right. The colour of a cell stands for its value.

// Colours of the scale, from the smallest to the largest value. Equal differences of value look
// equally large, even without colour vision.
const HEAT_STOPS = [[0, 34, 78], [43, 63, 107], [87, 93, 109], [123, 121, 119], [165, 151, 108], [210, 184, 84], [253, 231, 55]];
function heatColour(part) {
  const at = Math.max(0, Math.min(1, part)) * (HEAT_STOPS.length - 1), low = Math.min(HEAT_STOPS.length - 2, Math.floor(at)), rest = at - low;
  return HEAT_STOPS[low].map((one, i) => Math.round(one + (HEAT_STOPS[low + 1][i] - one) * rest));
}

// Returns the value with the last colour of the scale. It is below the largest value if otherwise a
// few very large values would leave a single colour for all others.
function topOf({ values, least, most }) {
  if (most === null || most === undefined) return most;
  const all = values.flat().filter((value) => value !== null && value !== undefined).sort((a, b) => a - b), high = all[Math.floor(all.length * 0.98)];
  return most - least > 2 * (high - least) && high > least ? high : most;
}

function rowText(row) {
  return straight(row.label.replace(/^ranks /, "").slice(0, 28));
}

class HeatMap {
  // `open(row, column)` follows a click or Enter.
  constructor({ open, columnText }) {
    Object.assign(this, { open, columnText });
    this.data = null;
    this.cell = null;
    this.canvas = element("canvas", { class: "heat", tabindex: 0, role: "img" });
    this.legend = element("div", { class: "legend" });
    this.foot = element("p", { class: "dim" });
    this.element = element("div", { class: "heatmap" }, this.legend, this.canvas, this.foot);
    this.canvas.addEventListener("pointermove", (event) => { const cell = this.cellAt(event); if (cell) this.show(...cell, event.clientX, event.clientY); else this.leave(); });
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("blur", () => this.leave());
    this.canvas.addEventListener("click", (event) => { const cell = this.cellAt(event); if (cell) this.open?.(...cell); });
    this.canvas.addEventListener("keydown", (event) => this.keys(event));
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(this.canvas);
    onTheme(this);
  }
  close() { this.observer.disconnect(); painted.delete(this); }

  set(data) {
    const [rows, columns] = [data.rows.length, data.columns.length];
    this.data = data;
    this.top = topOf(data);
    this.measure();
    this.canvas.style.height = `${this.height()}px`;
    this.canvas.setAttribute("aria-label", `${heading(data.metric.replace("gauge:", ""))}: ${rows} rows, ${columns} columns, ${data.least === null ? "nothing measured" : `from ${shown(data.least, data.unit)} to ${shown(data.most, data.unit)}`}. Arrows read cells.`);
    this.foot.textContent = [data.folded ? `A cell is the ${data.folded}.` : "", data.values.some((row) => row.some((value) => value === null)) ? "Hatched: not measured." : ""].filter(Boolean).join(" ");
    this.paintLegend();
    this.paint();
  }
  rowHeight() { return Math.max(2, Math.min(26, Math.floor(560 / this.data.rows.length))); }
  height() { return this.rowHeight() * this.data.rows.length + 18; }
  labelWidth() { return this.left; }
  // Makes the column of labels as wide as the widest label, within a limit.
  measure() {
    const pen = this.canvas.getContext("2d");
    pen.font = `11px ${inkOf("--sans") || "sans-serif"}`;
    this.left = Math.min(170, Math.max(40, ...this.data.rows.map((row) => pen.measureText(rowText(row)).width))) + 12;
  }

  paintLegend() {
    const { least, most, unit } = this.data, { top } = this;
    if (least === null || least === undefined) { this.legend.replaceChildren(); return; }
    const bar = element("canvas", { width: 160, height: 10, "aria-hidden": "true" }), pen = bar.getContext("2d");
    for (let x = 0; x < 160; x++) { pen.fillStyle = `rgb(${heatColour(x / 159)})`; pen.fillRect(x, 0, 1, 10); }
    this.legend.replaceChildren(element("span", { title: exact(least, unit) }, shown(least, unit)), bar, element("span", { title: exact(most, unit) }, top < most ? `${shown(top, unit)} and more, up to ${shown(most, unit)}` : shown(most, unit)));
  }
  paint() {
    const { canvas, data } = this, width = canvas.clientWidth;
    if (!data || !width) return;
    const ratio = devicePixelRatio || 1, height = this.height();
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d"), left = this.labelWidth(), high = this.rowHeight();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = `11px ${inkOf("--sans") || "sans-serif"}`;
    this.wide = (width - left) / Math.max(1, data.columns.length);
    this.image(pen, left, width, high);
    pen.fillStyle = inkOf("--dim");
    pen.textAlign = "right";
    const every = Math.ceil(15 / high);
    data.rows.forEach((row, at) => { if (at % every === 0) pen.fillText(rowText(row), left - 6, at * high + Math.max(9, high / 2 + 4)); });
    const bottom = high * data.rows.length + 13, last = data.columns[data.columns.length - 1];
    pen.textAlign = "left";
    if (last) pen.fillText(this.columnText(data.columns[0], data, true), left, bottom);
    pen.textAlign = "right";
    if (data.columns.length > 1) pen.fillText(this.columnText(last, data, true), width - 2, bottom);
    if (!this.cell) return;
    pen.strokeStyle = inkOf("--mark");
    pen.lineWidth = 2;
    pen.strokeRect(left + this.cell[1] * this.wide - 0.5, this.cell[0] * high - 0.5, Math.max(4, this.wide + 1), Math.max(4, high + 1));
  }
  // Draws one pixel per cell and enlarges the image, so that a map of any size costs the same.
  image(pen, left, width, high) {
    const { data } = this, columns = data.columns.length, rows = data.rows.length;
    if (!columns || !rows) return;
    const small = new OffscreenCanvas(columns, rows), paint = small.getContext("2d"), image = paint.createImageData(columns, rows);
    const least = data.least ?? 0, span = (this.top ?? 0) - least;
    data.values.forEach((row, y) => row.forEach((value, x) => {
      if (value === null || value === undefined) return;
      image.data.set([...heatColour(span > 0 ? (value - least) / span : 0.5), 255], 4 * (y * columns + x));
    }));
    paint.putImageData(image, 0, 0);
    this.hatch(pen, left, width - left, high * rows);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, left, 0, width - left, high * rows);
  }
  hatch(pen, left, width, height) {
    pen.save();
    pen.beginPath(); pen.rect(left, 0, width, height); pen.clip();
    pen.fillStyle = inkOf("--panel");
    pen.fillRect(left, 0, width, height);
    pen.strokeStyle = inkOf("--line");
    pen.beginPath();
    for (let x = left - height; x < left + width; x += 7) { pen.moveTo(x, height); pen.lineTo(x + height, 0); }
    pen.stroke();
    pen.restore();
  }

  cellAt(event) {
    if (!this.data) return null;
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / this.rowHeight()), column = Math.floor((event.clientX - box.left - this.labelWidth()) / this.wide);
    return row >= 0 && row < this.data.rows.length && column >= 0 && column < this.data.columns.length ? [row, column] : null;
  }
  show(row, column, x, y) {
    const { data } = this, value = data.values[row][column], box = this.canvas.getBoundingClientRect();
    const moved = !this.cell || this.cell[0] !== row || this.cell[1] !== column;
    this.cell = [row, column];
    if (moved) this.paint();
    const text = value === null || value === undefined ? `not measured${data.missing ? `: ${data.missing}` : ""}` : `${shown(value, data.unit)}${data.folded ? " at most" : ""}`;
    showTip(x ?? box.left + this.labelWidth() + (column + 0.5) * this.wide, y ?? box.top + (row + 1) * this.rowHeight(),
      element("b", {}, data.rows[row].label), `, ${this.columnText(data.columns[column], data)}`, element("br"), text);
    if (x === undefined) $("spoken").textContent = `${data.rows[row].label}, ${this.columnText(data.columns[column], data)}: ${text}`;
  }
  leave() {
    if (!this.cell) return;
    this.cell = null;
    hideTip();
    this.paint();
  }
  keys(event) {
    if (!this.data || !this.data.rows.length) return;
    const [row, column] = this.cell || [0, -1], [rows, columns] = [this.data.rows.length, this.data.columns.length];
    const to = { ArrowUp: [row - 1, Math.max(0, column)], ArrowDown: [row + 1, Math.max(0, column)], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], Home: [row, 0], End: [row, columns - 1] }[event.key];
    if (event.key === "Enter" && this.cell) { event.preventDefault(); this.open?.(...this.cell); return; }
    if (event.key === "Escape" && this.cell) { event.preventDefault(); event.stopPropagation(); this.leave(); return; }
    if (!to) return;
    event.preventDefault();
    this.show(Math.max(0, Math.min(rows - 1, to[0])), Math.max(0, Math.min(columns - 1, to[1])));
  }
}
