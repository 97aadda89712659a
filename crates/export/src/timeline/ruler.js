// Draws the area above the lanes: an overview of the whole run, and the ruler with its steps.

function ruler2d(ruler, overview, trace, view, state, label) {
  const contexts = [ruler.getContext("2d"), overview.getContext("2d")];
  let colours = {}, glance = null;

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    colours = { ink: colour("--ink"), dim: colour("--dim"), line: colour("--line"), panel: colour("--panel"),
      accent: colour("--accent"), font: colour("--sans"), cpu: kindColour("operator", isDark()), gpu: kindColour("kernel", isDark()) };
  }
  function resize() {
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [ruler, overview]) {
      canvas.width = Math.round(canvas.clientWidth * ratio);
      canvas.height = Math.round(canvas.clientHeight * ratio);
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    glance = null;
  }

  // Computes, for each pixel of the overview, the share of its time in which any host thread ran
  // and in which any GPU had work. Both are averaged over the ranks that have such lanes.
  function measure(width) {
    const shares = { cpu: new Float64Array(width), gpu: new Float64Array(width) };
    const ranks = { cpu: 0, gpu: 0 };
    const per = (trace.most - trace.least) / width;
    for (const lanes of byRank(trace).values()) {
      for (const [kind, times] of [["cpu", cpuTimes], ["gpu", gpuTimes]]) {
        const busy = times(trace, lanes, trace.least, trace.most);
        if (!busy) continue;
        ranks[kind]++;
        for (let i = 0, x = 0; x < width && i < busy.length; x++) {
          const a = trace.least + x * per, b = a + per;
          let sum = 0;
          while (i < busy.length && busy[i] < b) {
            sum += Math.max(0, Math.min(b, busy[i + 1]) - Math.max(a, busy[i]));
            if (busy[i + 1] > b) break;
            i += 2;
          }
          shares[kind][x] += sum / per;
        }
      }
    }
    for (const kind of ["cpu", "gpu"]) for (let x = 0; x < width; x++) shares[kind][x] /= Math.max(1, ranks[kind]);
    return { shares, ranks };
  }

  function drawOverview() {
    const context = contexts[1], width = overview.clientWidth, height = overview.clientHeight, left = label();
    const wide = Math.max(1, Math.floor(width - left));
    glance ||= measure(wide);
    context.clearRect(0, 0, width, height);
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, left, height);
    context.font = `11px ${colours.font}`;
    context.textBaseline = "middle";
    const rows = [["cpu", "CPU active", colours.cpu], ["gpu", "GPU active", colours.gpu]].filter(([kind]) => glance.ranks[kind]);
    rows.forEach(([kind, text, colour], i) => {
      const room = (height - 4) / rows.length, base = 2 + room * (i + 1);
      context.fillStyle = colours.dim;
      context.fillText(text, 8, base - room / 2);
      context.fillStyle = colour;
      const shares = glance.shares[kind];
      for (let x = 0; x < wide; x++) {
        const tall = Math.min(1, shares[x]) * (room - 3);
        if (tall > 0.2) context.fillRect(left + x, base - Math.max(1, tall), 1, Math.max(1, tall));
      }
    });
    const x = (time) => left + (time - trace.least) * wide / (trace.most - trace.least);
    const [a, b] = [x(view.from), x(view.to)];
    context.fillStyle = colours.ink;
    context.globalAlpha = 0.14;
    context.fillRect(left, 0, a - left, height);
    context.fillRect(b, 0, width - b, height);
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(Math.min(a, width - 3) + 0.5, 1, Math.max(2, b - a - 1), height - 2);
  }

  function drawRuler() {
    const context = contexts[0], width = ruler.clientWidth, height = ruler.clientHeight, left = label();
    const wide = Math.max(1, width - left), span = view.to - view.from;
    const x = (time) => left + (time - view.from) * wide / span;
    context.clearRect(0, 0, width, height);
    context.font = `11px ${colours.font}`;
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(left, 0, wide, height);
    context.clip();
    const room = Math.max(2, Math.floor(wide / 110));
    const rough = span / room, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    // Labels must be short. If they would need many digits, they count from a base.
    const fits = (size) => TIME_UNITS.filter(([, least]) => size >= least).pop() || TIME_UNITS[0];
    let base = 0, unit = fits(view.to);
    if (step < unit[1] / 1000) {
      base = Math.floor(view.from / (power * 1000)) * power * 1000;
      unit = fits(step * 10);
    }
    const places = Math.max(0, Math.ceil(-Math.log10(step / unit[1]) - 1e-9));
    context.strokeStyle = colours.line;
    for (let time = Math.ceil(view.from / step) * step; time < view.to; time += step) {
      const at = Math.round(x(time)) + 0.5;
      context.beginPath();
      context.moveTo(at, height - 7);
      context.lineTo(at, height);
      context.stroke();
      context.fillStyle = colours.dim;
      context.fillText(`${base ? "+" : ""}${((time - base) / unit[1]).toFixed(Math.min(places, 9))} ${unit[0]}`, at + 4, height - 9);
    }
    steps(context, x, wide);
    context.restore();
    context.fillStyle = colours.dim;
    const about = base ? `${(base / fits(base)[1]).toFixed(6).replace(/0+$/, "")} ${fits(base)[0]}` : left > 140 ? "since the run began" : "";
    context.fillText(about, 8, height - 9);
  }

  // Draws the steps of the first rank that has steps as bands, and marks as flags.
  function steps(context, x, wide) {
    const first = state.steps.find((mark) => mark.step !== undefined);
    let free = 0;
    for (const mark of state.steps) {
      const at = x(mark.at);
      if (mark.step === undefined) {
        context.fillStyle = colours.accent;
        context.fillRect(at, 0, 1.5, 18);
        // The names of steps take precedence over the names of marks, which also appear on hover.
        if (!first && at > free) {
          const text = mark.name.slice(0, 60);
          context.fillText(text, at + 4, 9);
          free = at + 12 + context.measureText(text).width;
        }
        continue;
      }
      if (mark.rank !== first.rank) continue;
      const end = x(mark.end);
      if (end < 0 || at > ruler.clientWidth) continue;
      context.fillStyle = colours.line;
      if (end - at < 3) {
        context.fillRect(at, 6, Math.max(0.5, end - at), 6);
        continue;
      }
      context.fillRect(at, 2, Math.max(1, end - at - 1), 14);
      const text = `step ${mark.step}`, from = Math.max(at, label());
      if (end - from > context.measureText(text).width + 8) {
        context.fillStyle = colours.ink;
        context.fillText(text, from + 4, 9);
      }
    }
  }

  // Handles dragging. On the overview, it selects the visible part; on the ruler, it moves that
  // part.
  function pointers(show) {
    const timeOf = (event) => {
      const area = overview.getBoundingClientRect(), left = area.left + label();
      return trace.least + Math.max(0, Math.min(1, (event.clientX - left) / (area.right - left))) * (trace.most - trace.least);
    };
    let from = null;
    overview.addEventListener("pointerdown", (event) => { from = timeOf(event); overview.setPointerCapture(event.pointerId); });
    overview.addEventListener("pointermove", (event) => {
      if (from !== null && Math.abs(timeOf(event) - from) > (trace.most - trace.least) / 400) show(Math.min(from, timeOf(event)), Math.max(from, timeOf(event)));
    });
    overview.addEventListener("pointerup", (event) => {
      const to = timeOf(event), span = view.to - view.from;
      if (from !== null && Math.abs(to - from) <= (trace.most - trace.least) / 400) show(to - span / 2, to + span / 2);
      from = null;
    });
    ruler.addEventListener("pointermove", (event) => {
      const left = label(), wide = Math.max(1, ruler.clientWidth - left), span = view.to - view.from;
      const near = trace.marks.filter((mark) => mark.name && Math.abs(left + (mark.at - view.from) * wide / span - event.offsetX) < 5);
      ruler.title = near.map((mark) => `${mark.rank}: ${mark.name}`).join("\n");
    });
    let grip = null;
    ruler.addEventListener("pointerdown", (event) => { grip = { x: event.clientX, ...view }; ruler.setPointerCapture(event.pointerId); });
    ruler.addEventListener("pointermove", (event) => {
      if (!grip) return;
      const by = (grip.x - event.clientX) * (grip.to - grip.from) / Math.max(1, ruler.clientWidth - label());
      show(grip.from + by, grip.to + by);
    });
    ruler.addEventListener("pointerup", () => { grip = null; });
  }

  return { ruler: drawRuler, overview: drawOverview, theme, resize, pointers };
}
