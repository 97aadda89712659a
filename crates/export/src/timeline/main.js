// Connects the timeline page to its controls: moving, zooming, selecting, searching.

// Largest number of arrows, and the smallest distance in pixels between the ends of two. More
// arrows would hide the events that they point at.
const MOST_ARROWS = 80;
const ARROWS_APART = 8;

async function start() {
  const data = await readPayload();
  const trace = new Trace(data);
  const raster = new Raster(trace, $("canvas"));
  const { run, chosen } = trace.scopes;
  const around = ({ from, to }) => [Math.max(trace.least, from - (to - from) * 0.02), Math.min(trace.most, to + (to - from) * 0.02)];
  const view = { from: around(chosen)[0], to: around(chosen)[1] };
  const state = { selected: -1, hover: -1, range: null, scope: chosen, steps: trace.marks, arrows: [], showArrows: true };
  const scroll = $("scroll");
  let waiting = false, pointer = null;
  const paint = () => { if (!waiting) { waiting = true; requestAnimationFrame(draw); } };
  const layout = new Layout(trace, $("labels"), () => { size(); paint(); });
  const panel = new Panel(trace, (event) => { select(event); reveal(event); });
  const label = () => $("labels").offsetWidth || 0;
  const width = () => Math.max(1, scroll.clientWidth - label());
  const timeAt = (clientX) => view.from + (clientX - scroll.getBoundingClientRect().left - label()) * (view.to - view.from) / width();

  function size() {
    $("spacer").style.height = `${Math.max(layout.height, scroll.clientHeight)}px`;
    raster.size(scroll.clientWidth, scroll.clientHeight, window.devicePixelRatio || 1);
  }
  function draw() {
    waiting = false;
    arrows();
    raster.paint(layout, view, scroll.scrollTop, scroll.clientHeight, label(), state);
    ruler();
    overviewWindow();
    $("span").textContent = formatTime(view.to - view.from);
  }

  // Returns the arrows of the selected event. Without a selection, returns the arrows of all
  // kernels if few events are shown.
  function arrows() {
    state.arrows = [];
    const add = (event, strong) => { if (trace.launch[event] >= 0) state.arrows.push([trace.launch[event], event, strong]); };
    if (state.showArrows) {
      const few = [];
      for (const lane of trace.lanes) {
        if (lane.kind !== "stream") continue;
        for (const row of lane.rows) {
          const a = trace.after(row.from, row.to, view.from), b = trace.startsAt(a, row.to, view.to);
          if (few.length + b - a > MOST_ARROWS) { few.length = MOST_ARROWS + 1; break; }
          // The nodes of a graph have no arrows of their own, because the graph's bar has one.
          for (let i = a; i < b; i++) if (!(trace.parent[i] >= 0 && KINDS[trace.kind[trace.parent[i]]] === "graph")) few.push(i);
        }
        if (few.length > MOST_ARROWS) break;
      }
      const taken = new Set(), column = (event) => Math.floor((trace.start[event] - view.from) / (view.to - view.from) * width() / ARROWS_APART);
      if (few.length <= MOST_ARROWS) for (const event of few) if (taken.size < taken.add(column(event)).size) add(event, false);
    }
    if (state.selected >= 0) {
      add(state.selected, true);
      trace.launched(state.selected).slice(0, 200).forEach((event) => add(event, true));
      trace.related(state.selected).slice(1, 200).forEach((event) => state.arrows.push([trace.related(event)[0], event, true]));
    }
  }

  function show(from, to) {
    const least = 200, whole = trace.most - trace.least;
    let span = Math.min(whole, Math.max(least, to - from));
    const middle = (from + to) / 2;
    from = Math.max(trace.least, Math.min(trace.most - span, middle - span / 2));
    Object.assign(view, { from, to: from + span });
    paint();
    hold();
  }
  const zoom = (factor, time) => show(time - (time - view.from) * factor, time + (view.to - time) * factor);
  const move = (share) => { const by = (view.to - view.from) * share; show(view.from + by, view.to + by); };
  const middle = () => (view.from + view.to) / 2;
  const aim = () => pointer && pointer.inside ? timeAt(pointer.x) : state.selected >= 0 ? clampTime(state.selected) : middle();
  const clampTime = (event) => Math.max(view.from, Math.min(view.to, (trace.start[event] + trace.end[event]) / 2));

  function select(event) {
    state.selected = event;
    state.range = null;
    panel.event(event);
    paint();
  }
  // Moves the view to an event. Changes the zoom only if necessary.
  function reveal(event) {
    const y = layout.show(trace.rowOf(event));
    if (y < scroll.scrollTop || y + ROW > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = Math.max(0, y - scroll.clientHeight / 2);
    const [a, b] = [trace.start[event], trace.end[event]], span = view.to - view.from;
    const wide = (b - a) / span * width();
    if (wide < 3) show((a + b) / 2 - (b - a + 200) * 60, (a + b) / 2 + (b - a + 200) * 60);
    else if (b < view.from || a > view.to || b - a > span * 1.5) show(a - Math.max(span, b - a) * 0.3, a - Math.max(span, b - a) * 0.3 + Math.max(span, (b - a) * 1.6));
    paint();
  }
  function selectRange(from, to) {
    state.range = [Math.min(from, to), Math.max(from, to)];
    state.selected = -1;
    panel.range(...state.range);
    paint();
  }
  function clear() {
    state.range = null;
    state.selected = -1;
    introduce();
    paint();
  }
  function introduce() {
    panel.range(state.scope.from, state.scope.to, state.scope.title);
  }
  // Shows a stretch of the run. If nothing is selected, also shows the statistics of that stretch.
  function enter(scope) {
    state.scope = scope;
    if (scope === run) show(trace.least, trace.most); else show(...around(scope));
    if (state.selected < 0 && !state.range) introduce();
  }

  // Returns the event at a point of the window, or the nearest one within two pixels.
  function eventAt(clientX, clientY) {
    const area = scroll.getBoundingClientRect();
    if (clientX < area.left + label()) return -1;
    const y = clientY - area.top + scroll.scrollTop, item = layout.at(y);
    if (!item || item.type !== "lane") return -1;
    const row = item.lane.rows[Math.floor((y - item.y) / ROW)];
    if (!row || row.depth >= item.rows) return -1;
    const time = timeAt(clientX), slack = 2 * (view.to - view.from) / width();
    const i = trace.after(row.from, row.to, time - slack);
    if (i >= row.to || trace.start[i] > time + slack) return -1;
    if (i + 1 < row.to && trace.start[i + 1] <= time && trace.end[i] < time) return i + 1;
    return i;
  }
  function curveAt(clientX, clientY) {
    const item = layout.at(clientY - scroll.getBoundingClientRect().top + scroll.scrollTop);
    if (!item || item.type !== "curve") return null;
    const { time, value } = item.curve, now = timeAt(clientX);
    let low = 0, high = time.length;
    while (low < high) { const m = (low + high) >> 1; if (time[m] > now) high = m; else low = m + 1; }
    return low ? `${item.curve.name}: ${formatValue(value[low - 1], item.curve.unit)}` : null;
  }

  function tip(event) {
    const tip = $("tip");
    const at = event ? eventAt(event.clientX, event.clientY) : -1;
    const curve = event && at < 0 ? curveAt(event.clientX, event.clientY) : null;
    if (at !== state.hover) { state.hover = at; paint(); }
    if (at < 0 && !curve) { tip.style.visibility = "hidden"; return; }
    if (curve) tip.replaceChildren(curve);
    else tip.replaceChildren(element("b", {}, trace.names[trace.name[at]].slice(0, 300)), element("br"),
      [KINDS[trace.kind[at]], formatTime(trace.end[at] - trace.start[at]), trace.detail[at] ? readable(trace.details[trace.detail[at]]) : ""].filter(Boolean).join(" · "));
    const { width: w, height: h } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(innerWidth - w - 4, event.clientX + 12))}px`;
    tip.style.top = `${event.clientY + 18 + h > innerHeight ? event.clientY - h - 8 : event.clientY + 18}px`;
    tip.style.visibility = "visible";
  }

  const ruled = ruler2d($("ruler"), $("overview"), trace, view, state, label);
  const ruler = ruled.ruler, overviewWindow = ruled.overview;

  function search() {
    const test = matcher($("search").value);
    const matches = test && Uint8Array.from(trace.names, (name) => test(name) ? 1 : 0);
    const hits = raster.search(matches);
    $("found").textContent = test ? hits ? `${formatCount(hits)} events` : "no match" : "";
    $("next").disabled = $("back").disabled = !hits;
    paint();
  }
  // Selects the next match after the selection, in order of time.
  function step(back) {
    if (!raster.matched) return;
    const from = state.selected >= 0 ? trace.start[state.selected] : back ? view.to : view.from;
    let best = -1, round = -1;
    const later = (a, b) => back ? trace.start[a] > trace.start[b] || (trace.start[a] === trace.start[b] && a > b) : trace.start[a] < trace.start[b] || (trace.start[a] === trace.start[b] && a < b);
    for (let i = 0; i < trace.count; i++) {
      if (!raster.matched[trace.name[i]] || i === state.selected) continue;
      const s = trace.start[i], tie = s === from && (back ? i < state.selected : i > state.selected);
      if ((back ? s < from : s > from) || tie) { if (best < 0 || later(i, best)) best = i; }
      else if (round < 0 || later(i, round)) round = i;
    }
    const found = best >= 0 ? best : round;
    if (found >= 0) { select(found); reveal(found); }
  }
  function stepTo(back) {
    const starts = [...new Set(trace.marks.filter((mark) => mark.step !== undefined).map((mark) => mark.at))].sort((a, b) => a - b);
    const now = middle();
    const mark = back ? starts.filter((at) => at < now - (view.to - view.from) * 0.51).pop() : starts.find((at) => at > now);
    const found = trace.marks.find((one) => one.at === (mark ?? (back ? starts[0] : starts[starts.length - 1])) && one.step !== undefined);
    if (found) show(found.at - (found.end - found.at) * 0.03, found.end + (found.end - found.at) * 0.03);
  }

  // Moves from the selected event to a neighbour: the next one in its row, its caller, or its first
  // callee.
  function walk(key) {
    const at = state.selected;
    if (at < 0) {
      const item = layout.items.find((item) => item.type === "lane" && item.y + item.height > scroll.scrollTop);
      const row = item && item.lane.rows[0];
      const first = row ? trace.after(row.from, row.to, view.from) : -1;
      if (row && first < row.to) { select(first); reveal(first); }
      return;
    }
    const row = trace.rowOf(at);
    let to = -1;
    if (key === "ArrowLeft" && at > row.from) to = at - 1;
    if (key === "ArrowRight" && at + 1 < row.to) to = at + 1;
    if (key === "ArrowUp") to = row.depth > 0 ? trace.parent[at] : otherLane(row.lane, -1, at);
    if (key === "ArrowDown") {
      const below = row.lane.rows[row.depth + 1];
      const first = below ? trace.after(below.from, below.to, trace.start[at]) : -1;
      to = below && first < below.to && trace.start[first] < trace.end[at] ? first : otherLane(row.lane, 1, at);
    }
    if (to >= 0) { select(to); reveal(to); }
  }
  function otherLane(lane, by, at) {
    const lanes = layout.items.filter((item) => item.type === "lane").map((item) => item.lane);
    const next = lanes[lanes.indexOf(lane) + by];
    if (!next) return -1;
    const row = next.rows[0];
    return Math.min(row.to - 1, trace.after(row.from, row.to, trace.start[at]));
  }
  function jump() {
    const at = state.selected;
    if (at < 0) return;
    const to = trace.launch[at] >= 0 ? trace.launch[at] : trace.launched(at)[0] ?? -1;
    if (to >= 0) { select(to); reveal(to); }
  }

  // A held key moves the view at a steady speed, which does not depend on the rate of key repeat.
  const held = new Set();
  let last = 0;
  function glide(now) {
    if (!held.size) { last = 0; return; }
    const seconds = last ? Math.min(0.1, (now - last) / 1000) : 0.016;
    last = now;
    const speed = held.has("Shift") ? 3 : 1;
    if (held.has("w")) zoom(Math.exp(-3.2 * seconds * speed), aim());
    if (held.has("s")) zoom(Math.exp(3.2 * seconds * speed), aim());
    if (held.has("a")) move(-1.1 * seconds * speed);
    if (held.has("d")) move(1.1 * seconds * speed);
    requestAnimationFrame(glide);
  }
  function keys(event, help) {
    if (typing(event) || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 && "WASD".includes(event.key) ? event.key.toLowerCase() : event.key;
    if ("wasd".includes(key)) {
      event.preventDefault();
      if (event.repeat) return;
      const idle = !held.size;
      held.add(key);
      if (event.shiftKey) held.add("Shift");
      if (idle) requestAnimationFrame(glide);
      return;
    }
    const acts = {
      ArrowLeft: () => walk(key), ArrowRight: () => walk(key), ArrowUp: () => walk(key), ArrowDown: () => walk(key),
      Enter: () => walk(key), 0: fit, Home: fit, 1: () => enter(chosen), Escape: clear, f: focus, r: () => { if (state.selected >= 0) selectRange(trace.start[state.selected], trace.end[state.selected]); },
      g: jump, l: toggleArrows, "/": () => $("search").select(), n: () => step(false), N: () => step(true),
      "[": () => stepTo(true), "]": () => stepTo(false), "?": help, "+": () => zoom(0.5, aim()), "-": () => zoom(2, aim()),
    };
    if (!acts[key] || ((key === "Enter" || key.startsWith("Arrow")) && event.target !== scroll && event.target !== document.body)) return;
    event.preventDefault();
    acts[key]();
  }
  const fit = () => enter(run);
  function focus() {
    const [a, b] = state.range || (state.selected >= 0 ? [trace.start[state.selected], trace.end[state.selected]] : [state.scope.from, state.scope.to]);
    show(a - (b - a) * 0.05, b + (b - a) * 0.05);
  }
  function toggleArrows() {
    state.showArrows = !state.showArrows;
    $("arrows").setAttribute("aria-pressed", state.showArrows);
    paint();
  }

  // Stores the view in the address, so that a link shows it again. The address changes only when
  // movement pauses.
  let holding = 0;
  function hold() {
    clearTimeout(holding);
    holding = setTimeout(() => {
      try { history.replaceState(null, "", `#from=${Math.round(view.from)}&to=${Math.round(view.to)}`); } catch { /* not allowed in this frame */ }
    }, 300);
  }
  function recall() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const [from, to] = [Number(parts.get("from")), Number(parts.get("to"))];
    if (to > from) show(from, to);
    if (parts.get("search")) $("search").value = parts.get("search");
    const thread = parts.get("thread");
    if (/^\d+$/.test(thread || "")) {
      const lane = trace.lanes.find((lane) => lane.rows.length && lane.name.split(/\D+/).includes(thread));
      if (lane) scroll.scrollTop = Math.max(0, layout.show(lane.rows[0]) - ROW);
    }
  }

  function pointers() {
    const down = new Map();
    let mode = null, from = null;
    scroll.addEventListener("pointerdown", (event) => {
      if (event.button > 1 || event.target.closest("#labels")) return;
      down.set(event.pointerId, event);
      const touch = event.pointerType === "touch";
      mode = down.size === 2 ? "pinch" : touch || event.shiftKey || event.button === 1 ? "move" : "select";
      from = { x: event.clientX, y: event.clientY, time: timeAt(event.clientX), view: { ...view }, top: scroll.scrollTop, far: false };
      if (event.button === 1) event.preventDefault();
      scroll.setPointerCapture(event.pointerId);
    });
    scroll.addEventListener("pointermove", (event) => {
      pointer = { x: event.clientX, y: event.clientY, inside: true };
      if (!down.has(event.pointerId)) { tip(event); return; }
      tip(null);
      const before = down.get(event.pointerId);
      down.set(event.pointerId, event);
      if (mode === "pinch" && down.size === 2) {
        const [a, b] = [...down.values()];
        const other = a === event ? b : a;
        const was = Math.abs(before.clientX - other.clientX), is = Math.abs(event.clientX - other.clientX);
        if (was > 8 && is > 8) zoom(was / is, timeAt((a.clientX + b.clientX) / 2));
        return;
      }
      from.far ||= Math.abs(event.clientX - from.x) > 4 || (mode === "move" && Math.abs(event.clientY - from.y) > 4);
      if (!from.far) return;
      if (mode === "move") {
        const by = (from.x - event.clientX) * (from.view.to - from.view.from) / width();
        show(from.view.from + by, from.view.to + by);
        if (event.pointerType !== "touch") scroll.scrollTop = from.top + from.y - event.clientY;
      }
      if (mode === "select") {
        state.range = [Math.min(from.time, timeAt(event.clientX)), Math.max(from.time, timeAt(event.clientX))];
        state.selected = -1;
        paint();
      }
    });
    const up = (event) => {
      if (!down.delete(event.pointerId)) return;
      if (mode === "select" && from.far) selectRange(from.time, timeAt(event.clientX));
      else if (mode !== "pinch" && !from.far) {
        const at = eventAt(event.clientX, event.clientY);
        if (at >= 0) select(at); else clear();
        scroll.focus({ preventScroll: true });
      }
    };
    scroll.addEventListener("pointerup", up);
    scroll.addEventListener("pointercancel", (event) => down.delete(event.pointerId));
    scroll.addEventListener("pointerleave", () => { if (pointer) pointer.inside = false; tip(null); });
    scroll.addEventListener("wheel", (event) => {
      const unit = event.deltaMode === 1 ? 16 : 1;
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoom(Math.exp(Math.max(-0.6, Math.min(0.6, event.deltaY * unit * 0.004))), timeAt(event.clientX));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        move((event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX) * unit / width());
      }
    }, { passive: false });
  }

  function legend() {
    const there = new Set();
    for (const row of trace.rows) for (let i = row.from; i < row.to && there.size < KINDS.length; i += Math.max(1, (row.to - row.from) >> 10)) there.add(trace.kind[i]);
    const about = { own: "own code, sampled", python: "Python", call: "CUDA call", range: "range or annotation", native: "native code, sampled", waiting: "waiting, sampled", graph: "CUDA graph" };
    $("legend").replaceChildren(...[...there].sort((a, b) => a - b).map((kind) => {
      const box = element("i");
      box.style.background = kindColour(KINDS[kind], isDark());
      return element("span", {}, box, about[KINDS[kind]] || KINDS[kind]);
    }));
  }

  $("title").textContent = $("title").title = data.run;
  $("note").textContent = data.notes.join(" ");
  $("empty").hidden = trace.count > 0 || trace.curves.length > 0;
  $("fit").addEventListener("click", fit);
  $("scope").addEventListener("click", () => enter(chosen));
  $("scope").textContent = chosen.button;
  $("scope").hidden = chosen === run;
  $("zoom-in").addEventListener("click", () => zoom(0.5, middle()));
  $("zoom-out").addEventListener("click", () => zoom(2, middle()));
  $("arrows").addEventListener("click", toggleArrows);
  $("next").addEventListener("click", () => step(false));
  $("back").addEventListener("click", () => step(true));
  $("search").addEventListener("input", search);
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") { step(event.shiftKey); event.preventDefault(); }
    if (event.key === "Escape") { event.target.value = ""; search(); scroll.focus(); }
  });
  const help = startHelp();
  addEventListener("keydown", (event) => keys(event, help));
  addEventListener("keyup", (event) => { held.delete(event.key.toLowerCase()); if (event.key === "Shift" || !["w", "a", "s", "d"].some((key) => held.has(key))) held.delete("Shift"); });
  addEventListener("blur", () => held.clear());
  scroll.addEventListener("scroll", paint, { passive: true });
  pointers();
  ruled.pointers(show);
  new ResizeObserver(() => { size(); ruled.resize(); paint(); }).observe(scroll);
  startTheme(() => { raster.theme(); ruled.theme(); legend(); paint(); });
  raster.theme();
  ruled.theme();
  size();
  ruled.resize();
  legend();
  recall();
  search();
  draw();
  document.documentElement.dataset.painted = String(Math.round(performance.now()));
  introduce();
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => { fail(error); throw error; });
