// Draws the tree on a canvas, which is only as large as the visible part of the tree.

const ROW = 19;
const LEAST = 1; // pixels; narrower boxes become a hatched rest

// Hue, saturation and lightness on a light and a dark background, by kind. Hues are those of Okabe
// and Ito. No meaning depends only on colour: the legend and the detail line name each kind.
const COLOURS = {
  rank: [215, 10, 84, 26], process: [215, 10, 81, 29], thread: [215, 10, 78, 32],
  native: [262, 20, 80, 33], python: [262, 44, 84, 38], own: [42, 92, 64, 34], operator: [202, 66, 75, 33],
  range: [326, 42, 79, 36], call: [41, 80, 66, 36], kernel: [164, 48, 68, 29],
  collective: [20, 84, 70, 39], copy: [203, 62, 62, 40], unknown: [0, 0, 83, 27],
  group: [0, 0, 83, 27], overhead: [0, 40, 78, 33],
};

function hash(text) {
  let h = 2166136261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
  return ((h ^ h >>> 13) >>> 0) / 4294967296;
}

function frameColour(kind, name, dark) {
  const [hue, saturation, light, night] = COLOURS[kind];
  const spread = kind === "rank" || kind === "unknown" || kind === "group" ? 0 : hash(name) - 0.5;
  return `hsl(${(hue + spread * 8).toFixed(0)} ${saturation}% ${((dark ? night : light) + spread * 9).toFixed(1)}%)`;
}

// Returns the colour of a change: orange for more, blue for less, grey for no change.
function changeColour(now, before, dark) {
  const most = Math.max(now, before);
  const change = most > 0 ? (now - before) / most : 0;
  const size = Math.min(1, Math.sqrt(Math.abs(change)));
  const hue = change > 0 ? 26 : 208;
  return dark ? `hsl(${hue} ${Math.round(85 * size)}% ${Math.round(27 + 12 * size)}%)`
    : `hsl(${hue} ${Math.round(88 * size)}% ${Math.round(88 - 24 * size)}%)`;
}

class View {
  constructor(canvas, scroll, spacer, frames) {
    Object.assign(this, { canvas, scroll, spacer, frames, boxes: [], rest: 0, depth: 0 });
    this.context = canvas.getContext("2d");
    this.widths = new Map();
  }

  // Computes the boxes of `top`'s ancestors, and of everything below `top` that is wide enough.
  layout(top, weigh) {
    this.width = Math.max(1, this.scroll.clientWidth);
    const boxes = [];
    let rest = 0, deepest = 0;
    const above = [];
    for (let node = top; node; node = node.parent) above.unshift(node);
    above.forEach((node) => boxes.push({ node, x: 0, width: this.width, above: node !== top }));
    const whole = weigh(top);
    const visit = whole > 0 ? [[top, 0, this.width]] : [];
    while (visit.length) {
      const [node, x, width] = visit.pop();
      deepest = Math.max(deepest, node.depth);
      sortKids(node, weigh);
      let at = x, small = 0, smallCount = 0;
      for (const kid of kidsOf(node)) {
        const wide = weigh(node) > 0 ? width * weigh(kid) / weigh(node) : 0;
        if (wide < LEAST) {
          if (wide > 0) { small += wide; smallCount++; }
          continue;
        }
        boxes.push({ node: kid, x: at, width: wide });
        visit.push([kid, at, wide]);
        at += wide;
      }
      rest += smallCount;
      if (small >= LEAST) {
        boxes.push({ node, x: at, width: small, rest: smallCount });
        deepest = Math.max(deepest, node.depth + 1);
      }
    }
    this.depth = Math.max(deepest, top.depth);
    for (const box of boxes) box.row = box.node.depth + (box.rest ? 1 : 0);
    Object.assign(this, { boxes, rest });
    this.spacer.style.height = `${(this.depth + 1) * ROW + 4}px`;
  }

  // `state`: { colour(node), label(node), matches: Set | null, focus, hover }
  draw(state) {
    const { canvas, context, scroll } = this;
    const height = scroll.clientHeight, ratio = window.devicePixelRatio || 1;
    const pixels = [Math.round(this.width * ratio), Math.round(height * ratio)];
    if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) [canvas.width, canvas.height] = pixels;
    canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink"), paper = style.getPropertyValue("--paper");
    const mark = style.getPropertyValue("--mark"), line = style.getPropertyValue("--strong");
    context.fillStyle = paper;
    context.fillRect(0, 0, this.width, height);
    context.font = `12px ${style.getPropertyValue("--sans")}`;
    context.textBaseline = "middle";
    const top = scroll.scrollTop;
    for (const box of this.boxes) {
      const y = box.row * ROW - top;
      if (y + ROW < 0 || y > height) continue;
      if (box.rest) { this.hatch(box, y, line); continue; }
      const wide = Math.max(0.5, box.width - (box.width > 3 ? 1 : 0));
      context.globalAlpha = box.above ? 0.55 : state.matches && !state.matches.has(box.node.frame) ? 0.28 : 1;
      context.fillStyle = state.colour(box.node);
      context.fillRect(box.x, y, wide, ROW - 1);
      context.globalAlpha = state.matches && !state.matches.has(box.node.frame) ? 0.55 : 1;
      if (state.matches && state.matches.has(box.node.frame)) {
        context.fillStyle = mark;
        context.fillRect(box.x, y + ROW - 4, wide, 3);
      }
      if (box.width > 26) {
        context.fillStyle = ink;
        this.text(state.label(box.node), box.x + 4, y + ROW / 2, wide - 7);
      }
      context.globalAlpha = 1;
    }
    for (const [node, colour, width] of [[state.hover, ink, 1], [state.focus, mark, 2]]) {
      const box = node && this.boxes.find((box) => box.node === node && !box.rest);
      if (!box) continue;
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.strokeRect(box.x + width / 2, box.row * ROW - top + width / 2, Math.max(2, box.width - 1 - width), ROW - 1 - width);
    }
  }

  hatch(box, y, line) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(box.x, y, Math.max(1, box.width - 1), ROW - 1);
    context.clip();
    context.strokeStyle = line;
    context.lineWidth = 1;
    context.beginPath();
    for (let x = box.x - ROW; x < box.x + box.width; x += 5) {
      context.moveTo(x, y + ROW);
      context.lineTo(x + ROW, y);
    }
    context.stroke();
    context.restore();
  }

  // Draws the text. If the text doesn't fit, cuts it with an ellipsis.
  text(text, x, y, room) {
    let width = this.widths.get(text);
    if (width === undefined) this.widths.set(text, width = this.context.measureText(text).width);
    if (width > room) {
      let keep = Math.floor(text.length * room / width) - 1;
      while (keep >= 2 && this.context.measureText(`${text.slice(0, keep)}…`).width > room) keep--;
      if (keep < 2) return;
      text = `${text.slice(0, keep)}…`;
    }
    this.context.fillText(text, x, y);
  }

  // Returns the box at a point of the window.
  at(clientX, clientY) {
    const area = this.canvas.getBoundingClientRect();
    const x = clientX - area.left, row = Math.floor((clientY - area.top + this.scroll.scrollTop) / ROW);
    return this.boxes.find((box) => box.row === row && box.x <= x && x < box.x + box.width) || null;
  }
}
