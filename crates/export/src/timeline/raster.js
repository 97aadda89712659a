// Draws rows into a pixel buffer. The cost of a row depends on its pixels and its wide events, but
// not on the number of narrow events. All events that start within a pixel become one column, whose
// strength is the share of the pixel's time that was busy.

// Hue, saturation and lightness on a light background, and lightness on a dark one. The hues are from
// Okabe and Ito's palette for the colour-blind; rows and labels distinguish the kinds as well. Code has the
// colours of the flame graph.
const COLOURS = {
  own: [42, 92, 64, 34], python: [262, 44, 84, 38], operator: [202, 66, 74, 42], range: [326, 44, 78, 46], call: [41, 82, 64, 44],
  overhead: [0, 45, 74, 44], other: [215, 12, 76, 42], kernel: [164, 50, 62, 38], collective: [20, 86, 66, 48],
  copy: [203, 68, 56, 46], memset: [230, 45, 72, 50], "device range": [326, 30, 82, 36], native: [262, 20, 80, 33],
  waiting: [0, 0, 84, 30], synchronisation: [285, 30, 74, 46], graph: [164, 24, 84, 30],
};
const TINTS = 8;
// If lines of steps and marks are at most this many pixels apart, they are not drawn.
const FADED = 6;
// If lines are at least this many pixels apart, they are drawn with their full strength.
const CLEAR = 28;

function hslBytes(hue, saturation, lightness) {
  const s = saturation / 100, l = lightness / 100;
  const channel = (n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [channel(0), channel(8), channel(4)];
}
const pack = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;

function kindColour(kind, dark) {
  const [hue, saturation, light, night] = COLOURS[kind];
  return `hsl(${hue} ${dark ? saturation * 0.82 : saturation}% ${dark ? night * 0.92 : light}%)`;
}

class Raster {
  constructor(trace, canvas) {
    Object.assign(this, { trace, canvas, context: canvas.getContext("2d", { alpha: false }), widths: new Map() });
    this.tint = Uint8Array.from(trace.names, (name) => {
      let h = 0;
      for (let i = 0; i < name.length; i++) h = Math.imul(h, 31) + name.charCodeAt(i) | 0;
      return (h ^ h >>> 9) & (TINTS - 1);
    });
    this.matched = null;
    this.before = null;
  }

  // Reads the colours of the theme, and computes the colours of pixels from them.
  theme() {
    const style = getComputedStyle(document.documentElement);
    const parse = (name) => {
      const hex = style.getPropertyValue(name).trim();
      return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    };
    const dark = isDark();
    this.paper = parse("--paper");
    this.ink = style.getPropertyValue("--ink").trim();
    this.line = style.getPropertyValue("--line").trim();
    this.dim = style.getPropertyValue("--dim").trim();
    this.accent = style.getPropertyValue("--accent").trim();
    this.mark = style.getPropertyValue("--mark").trim();
    this.markBytes = parse("--mark");
    this.font = style.getPropertyValue("--sans");
    this.colours = KINDS.flatMap((kind) => Array.from({ length: TINTS }, (_, tint) => {
      const [hue, saturation, light, night] = COLOURS[kind];
      return hslBytes(hue + (tint - 3.5) * 1.2, dark ? saturation * 0.82 : saturation, (dark ? night * 0.92 : light) + (tint - 3.5) * (kind === "waiting" ? 0 : 1.5));
    }));
    this.solid = Uint32Array.from(this.colours, pack);
    const fade = (colour, share) => pack(colour.map((c, i) => Math.round(this.paper[i] + (c - this.paper[i]) * share)));
    this.faded = Uint32Array.from(this.colours, (colour) => fade(colour, 0.3));
    // Each colour has sixteen strengths.
    this.strengths = new Uint32Array(this.colours.length * 16);
    this.colours.forEach((colour, i) => { for (let s = 0; s < 16; s++) this.strengths[i * 16 + s] = fade(colour, 0.25 + 0.75 * s / 15); });
    this.marks = Uint32Array.from({ length: 16 }, (_, s) => fade(this.markBytes, 0.4 + 0.6 * s / 15));
    this.background = pack(this.paper);
  }

  // Stores which names match the search. Returns the number of their events. `before[i]` is the
  // number of matching events before event i.
  search(matches) {
    this.matched = matches;
    if (!matches) { this.before = null; return 0; }
    const { name, count } = this.trace;
    this.before ||= new Uint32Array(count + 1);
    for (let i = 0; i < count; i++) this.before[i + 1] = this.before[i] + matches[name[i]];
    return this.before[count];
  }

  size(width, height, ratio) {
    this.ratio = ratio;
    const w = Math.max(1, Math.round(width * ratio)), h = Math.max(1, Math.round(height * ratio));
    if (this.canvas.width !== w || this.canvas.height !== h || !this.image) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.image = this.context.createImageData(w, h);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.canvas.style.height = `${height}px`;
  }

  // Draws the events of a row into one line of pixels. `left` is the pixel of the time `t0`.
  scan(row, line, left, width, t0, perNs, labels, top) {
    const { trace, tint, solid, strengths, before, faded, marks } = this;
    const { start, end, name, kind, busy } = trace;
    const nsPer = 1 / perNs, t1 = t0 + width * nsPer;
    const least = 34 * this.ratio;
    let j = trace.after(row.from, row.to, t0);
    while (j < row.to && start[j] < t1) {
      const from = (start[j] - t0) * perNs, to = (end[j] - t0) * perNs;
      const colour = kind[j] * TINTS + tint[name[j]];
      if (to - from >= 1.5) {
        const a = Math.max(0, Math.round(from)), b = Math.min(width, Math.round(to));
        const gap = b - a > 2 && to < width ? 1 : 0;
        const hit = before && before[j + 1] > before[j];
        line.fill(before ? (hit ? marks[15] : faded[colour]) : solid[colour], left + a, left + b - gap);
        if (b - a > least) labels.push(j, a, b - gap, top);
        j++;
        continue;
      }
      const x = Math.max(0, Math.floor(from)), next = t0 + (x + 1) * nsPer;
      let k = Math.max(j + 1, trace.startsAt(j, row.to, next));
      // If the last event is wide, it is drawn separately.
      if (k - 1 > j && (end[k - 1] - start[k - 1]) * perNs >= 1.5) k--;
      const strength = Math.min(15, Math.ceil(15 * (busy[k] - busy[j]) * perNs));
      if (before) line[left + x] = before[k] > before[j] ? marks[Math.max(8, strength)] : faded[colour];
      else line[left + x] = strengths[colour * 16 + strength];
      j = k;
    }
  }

  // Draws everything that is visible.
  paint(layout, view, scrollTop, height, label, state) {
    const { context, ratio, pixels } = this;
    const W = this.canvas.width, H = this.canvas.height;
    const left = Math.round(label * ratio), width = W - left;
    const perNs = width / (view.to - view.from);
    pixels.fill(this.background);
    const labels = [];
    for (const item of layout.items) {
      if (item.type !== "lane" || item.y + item.height < scrollTop || item.y > scrollTop + height) continue;
      for (let depth = 0; depth < item.rows; depth++) {
        const y0 = Math.round((item.y + depth * ROW - scrollTop) * ratio), y1 = Math.round((item.y + depth * ROW + ROW - 1 - scrollTop) * ratio);
        if (y1 <= 0 || y0 >= H) continue;
        const a = Math.max(0, y0), b = Math.min(H, y1);
        const line = pixels.subarray(a * W, a * W + W);
        this.scan(item.lane.rows[depth], line, left, width, view.from, perNs, labels, y0);
        for (let y = a + 1; y < b; y++) pixels.copyWithin(y * W, a * W, a * W + W);
      }
    }
    context.putImageData(this.image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.text(labels, left);
    this.lines(layout, view, scrollTop, height, label, state);
  }

  text(labels, left) {
    const { context, trace, ratio } = this;
    context.font = `11px ${this.font}`;
    context.textBaseline = "middle";
    context.fillStyle = this.ink;
    const most = Math.min(labels.length, 4 * 1200);
    for (let i = 0; i < most; i += 4) {
      const name = trace.name[labels[i]];
      const room = (labels[i + 2] - labels[i + 1]) / ratio - 6;
      let text = trace.names[name];
      let wide = this.widths.get(name);
      if (wide === undefined) this.widths.set(name, wide = context.measureText(text.slice(0, 400)).width);
      if (wide > room) {
        const keep = Math.floor(Math.min(text.length, 400) * room / wide * 0.95) - 1;
        if (keep < 2) continue;
        text = `${text.slice(0, keep)}…`;
      }
      context.fillText(text, (left + labels[i + 1]) / ratio + 3, labels[i + 3] / ratio + ROW / 2);
    }
  }

  // Draws curves, marks, selection and arrows over the rows.
  lines(layout, view, scrollTop, height, label, state) {
    const { context } = this, wide = this.canvas.width / this.ratio;
    const x = (time) => label + (time - view.from) * (wide - label) / (view.to - view.from);
    context.save();
    context.beginPath();
    context.rect(label, 0, wide - label, height);
    context.clip();
    for (const item of layout.items) {
      const y = item.y - scrollTop;
      if (y + item.height < 0 || y > height) continue;
      if (item.type === "curve") this.curve(item.curve, y, x, view, label, wide);
      if (item.type === "group") { context.fillStyle = this.line; context.fillRect(label, y, wide, 1); }
    }
    this.marks2d(layout, x, scrollTop, label, wide);
    if (state.range) {
      const [a, b] = state.range.map(x);
      context.fillStyle = this.accent;
      context.globalAlpha = 0.12;
      context.fillRect(a, 0, b - a, height);
      context.globalAlpha = 1;
      context.fillRect(a, 0, 1, height);
      context.fillRect(b, 0, 1, height);
    }
    for (const [from, to, strong] of state.arrows) this.arrow(from, to, layout, x, scrollTop, strong);
    for (const [event, colour, weight] of [[state.hover, this.ink, 1], [state.selected, this.mark, 2]]) {
      if (event < 0) continue;
      const y = layout.y(this.trace.rowOf(event));
      if (y === null) continue;
      const a = Math.max(label - 4, x(this.trace.start[event])), b = Math.min(wide + 4, x(this.trace.end[event]));
      context.strokeStyle = colour;
      context.lineWidth = weight;
      context.strokeRect(a - 0.5, y - scrollTop + 0.5, Math.max(2, b - a), ROW - 2);
    }
    context.restore();
  }

  // Draws the beginnings of a rank's steps and its marks over the rank's own lanes. Lines that are
  // close together would hide the events, so they fade, and disappear at a small distance.
  marks2d(layout, x, scrollTop, label, wide) {
    const { context } = this;
    context.strokeStyle = this.dim;
    for (const [rank, top, bottom] of layout.spans) {
      for (const steps of [true, false]) {
        const marks = this.trace.marks.filter((mark) => mark.rank === rank && (mark.step !== undefined) === steps);
        const at = marks.map((mark) => Math.round(x(mark.at)) + 0.5).filter((at) => at > label && at < wide);
        const apart = at.length > 1 ? (at[at.length - 1] - at[0]) / (at.length - 1) : wide;
        const strength = Math.min(1, (apart - FADED) / (CLEAR - FADED));
        if (strength <= 0) continue;
        context.globalAlpha = 0.35 * strength;
        context.beginPath();
        for (const px of at) { context.moveTo(px, top - scrollTop); context.lineTo(px, bottom - scrollTop); }
        context.stroke();
      }
    }
    context.globalAlpha = 1;
  }

  arrow(from, to, layout, x, scrollTop, strong) {
    const { context, trace } = this;
    const y0 = layout.y(trace.rowOf(from)), y1 = layout.y(trace.rowOf(to));
    if (y0 === null || y1 === null) return;
    const a = [x(trace.start[from]), y0 + ROW - 2 - scrollTop], b = [x(trace.start[to]), y1 + 1 - scrollTop];
    if (y1 < y0) { a[1] = y0 - scrollTop; b[1] = y1 + ROW - 2 - scrollTop; }
    context.strokeStyle = context.fillStyle = strong ? this.mark : this.dim;
    context.globalAlpha = strong ? 1 : 0.45;
    context.lineWidth = strong ? 1.6 : 1;
    const bend = Math.max(14, Math.min(120, Math.abs(b[0] - a[0]) / 2));
    context.beginPath();
    context.moveTo(a[0], a[1]);
    context.bezierCurveTo(a[0] + bend, a[1], b[0] - bend, b[1], b[0], b[1]);
    context.stroke();
    context.beginPath();
    context.moveTo(b[0], b[1]);
    context.lineTo(b[0] - 6, b[1] - 3);
    context.lineTo(b[0] - 6, b[1] + 3);
    context.fill();
    context.globalAlpha = 1;
  }

  // Draws a step curve. Each pixel shows the highest value of its time.
  curve(curve, y, x, view, label, wide) {
    const { context } = this, { time, value } = curve;
    if (!time.length || !(curve.most > 0)) return;
    const base = y + CURVE - 4, scale = (CURVE - 10) / curve.most;
    let i = 0, high = time.length;
    while (i < high) { const middle = (i + high) >> 1; if (time[middle] > view.from) high = middle; else i = middle + 1; }
    i = Math.max(0, i - 1);
    context.beginPath();
    let px = Math.max(label, x(time[i])), level = value[i];
    context.moveTo(px, base);
    context.lineTo(px, base - level * scale);
    for (i++; i < time.length; i++) {
      const at = x(time[i]);
      if (at > wide) break;
      const column = Math.floor(at);
      let most = value[i];
      while (i + 1 < time.length && Math.floor(x(time[i + 1])) === column) most = Math.max(most, value[++i]);
      context.lineTo(at, base - level * scale);
      context.lineTo(at, base - most * scale);
      level = value[i];
      context.lineTo(at, base - level * scale);
      px = at;
    }
    const last = Math.min(wide, Math.max(px, i >= time.length ? x(time[time.length - 1]) : wide));
    context.lineTo(last, base - level * scale);
    context.lineTo(last, base);
    context.closePath();
    context.fillStyle = context.strokeStyle = this.accent;
    context.globalAlpha = 0.18;
    context.fill();
    context.globalAlpha = 0.9;
    context.lineWidth = 1;
    context.stroke();
    context.globalAlpha = 1;
  }
}
