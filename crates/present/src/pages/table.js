// A table that can be sorted, filtered and used by keyboard. If it is long, only the visible rows
// are in the page, so that a thousand rows cost as much as thirty.

const ROW_HEIGHT = 31;
const BEYOND_SIGHT = 12;

// Columns are { key, heading, about, words, value(row), cell(row), class, width }. A cell is {
// content, title, class, share }, or only its content.
class Table {
  constructor(how) {
    Object.assign(this, { columns: [], label: "", rowKey: (row) => row, text: () => "", sort: null, windowed: false, limit: Infinity, empty: "", ...how });
    this.rows = [];
    this.shown = [];
    this.test = null;
    this.made = new Map();
    this.active = null;
    this.expanded = new Set();
    this.head = element("thead", {}, element("tr", {}, ...this.columns.map((column) => this.headCell(column))));
    this.body = element("tbody", {});
    this.above = element("tr", { class: "spacer", "aria-hidden": "true" }, element("td", {}));
    this.below = this.above.cloneNode(true);
    const widths = this.windowed ? element("colgroup", {}, ...this.columns.map((column) => element("col", { class: column.class || null, width: column.width || null }))) : "";
    this.grid = element("table", { role: this.choose ? "grid" : null, "aria-multiselectable": this.choose ? "true" : null, "aria-label": this.label, class: this.windowed ? "fixed" : null }, widths, this.head, this.body);
    this.more = element("p", { class: "unfold", hidden: true }, element("button", { onclick: () => this.unfold() }));
    this.none = element("p", { class: "none", hidden: true });
    this.element = element("div", { class: this.windowed ? "rows" : "table" }, this.grid, this.none);
    this.body.addEventListener("keydown", (event) => this.keys(event));
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.body.addEventListener("focusin", (event) => this.activate(event.target.closest("tr")));
    if (this.windowed) {
      this.look = () => { if (!this.waiting) { this.waiting = true; requestAnimationFrame(() => { this.waiting = false; this.paint(); }); } };
      $("main").addEventListener("scroll", this.look, { passive: true });
      addEventListener("resize", this.look);
    }
    this.marks();
  }

  close() {
    if (!this.windowed) return;
    $("main").removeEventListener("scroll", this.look);
    removeEventListener("resize", this.look);
  }

  headCell(column) {
    const classes = [column.words ? "words" : "", column.class || ""].join(" ").trim();
    const content = column.value ? element("button", { title: column.about || "Sort by this column", onclick: () => this.sortBy(column) }, column.heading) : element("span", { title: column.about || null }, column.heading);
    return element("th", { scope: "col", class: classes || null }, content);
  }
  sortBy(column) {
    const same = this.sort && this.sort.key === column.key;
    this.sort = { key: column.key, down: same ? !this.sort.down : !column.words };
    this.sorted?.(this.sort);
    this.marks();
    this.arrange();
  }
  marks() {
    this.columns.forEach((column, at) => {
      const cell = this.head.rows[0].cells[at];
      if (this.sort && this.sort.key === column.key) cell.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  }

  setRows(rows, keepOrder = false) {
    this.rows = rows;
    if (keepOrder && this.shown.length) {
      const fresh = new Map(rows.map((row) => [this.rowKey(row), row]));
      const kept = this.shown.map((row) => fresh.get(this.rowKey(row)));
      if (kept.every(Boolean) && (this.test || kept.length === rows.length)) { this.shown = kept; this.paint(); return; }
    }
    this.arrange();
  }
  filter(test) {
    this.test = test;
    this.arrange();
  }
  arrange() {
    const column = this.sort && this.columns.find((one) => one.key === this.sort.key);
    let rows = this.test ? this.rows.filter((row) => this.test(this.text(row), row)) : this.rows.slice();
    if (column) rows = sortRows(rows, column, this.sort.down);
    this.shown = rows;
    this.none.hidden = rows.length > 0;
    this.none.textContent = rows.length ? "" : this.test && this.rows.length ? "Nothing matches." : this.empty;
    this.grid.hidden = !rows.length && !this.windowed;
    this.changed?.(rows);
    this.paint();
  }

  // Returns the rows that are visible, or all rows if there are few.
  sight() {
    if (!this.windowed) return [0, Math.min(this.shown.length, this.limit)];
    const main = $("main"), top = this.body.getBoundingClientRect().top - main.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / ROW_HEIGHT) - BEYOND_SIGHT);
    const count = Math.ceil(main.clientHeight / ROW_HEIGHT) + 2 * BEYOND_SIGHT;
    const from = Math.min(first, Math.max(0, this.shown.length - count));
    return [from, Math.min(this.shown.length, from + count)];
  }
  paint() {
    const [from, to] = this.sight();
    const wanted = this.shown.slice(from, to), keys = new Set(wanted.map(this.rowKey));
    const focused = this.body.contains(document.activeElement) ? document.activeElement.closest("tr") : null;
    for (const [key, made] of this.made) if (!keys.has(key) && made !== focused) this.made.delete(key);
    if (!keys.has(this.active)) this.active = wanted.length ? this.rowKey(wanted[0]) : null;
    const rows = wanted.map((row, at) => this.rowElement(row, from + at));
    if (this.windowed) {
      this.above.style.height = `${from * ROW_HEIGHT}px`;
      this.below.style.height = `${(this.shown.length - to) * ROW_HEIGHT}px`;
      rows.unshift(this.above);
      rows.push(this.below);
    }
    const old = this.body.childNodes;
    if (old.length !== rows.length || rows.some((row, at) => row !== old[at])) {
      this.body.replaceChildren(...rows);
      if (focused && focused.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
    }
    this.grid.setAttribute("aria-rowcount", this.shown.length + 1);
    const left = this.shown.length - to;
    this.more.hidden = this.windowed || left <= 0;
    if (left > 0 && !this.windowed) this.more.firstChild.textContent = `${formatCount(left)} more rows`;
  }
  unfold() {
    this.limit = this.limit < 500 ? 500 : this.limit * 4;
    this.element.classList.add("open");
    this.paint();
  }

  rowElement(row, at) {
    const key = this.rowKey(row);
    let made = this.made.get(key);
    if (!made) {
      made = element("tr", {}, ...this.columns.map((column) => element("td", { class: [column.words ? "words" : "", column.class || ""].join(" ").trim() || null })));
      made.rowKey = key;
      this.made.set(key, made);
    }
    made.setAttribute("aria-rowindex", at + 2);
    made.tabIndex = key === this.active ? 0 : -1;
    made.classList.toggle("expanded", this.expanded.has(key));
    const chosen = this.chosen ? this.chosen(row) : null;
    if (chosen !== null) made.setAttribute("aria-selected", chosen);
    const state = this.rowClass?.(row) || "";
    if ((made.dataset.state || "") !== state) made.dataset.state = state;
    this.columns.forEach((column, i) => fillCell(made.cells[i], column.cell(row)));
    return made;
  }

  rowAt(made) {
    return this.shown.find((row) => this.rowKey(row) === made.rowKey);
  }
  activate(made) {
    if (!made || made.rowKey === undefined || made.rowKey === this.active) return;
    for (const other of this.body.rows) if (other.tabIndex === 0) other.tabIndex = -1;
    this.active = made.rowKey;
    made.tabIndex = 0;
  }
  focusFirst() {
    const made = [...this.body.rows].find((row) => row.tabIndex === 0);
    made?.focus();
    return Boolean(made);
  }
  // Scrolls to a row and focuses it.
  focusAt(at) {
    at = Math.max(0, Math.min(this.shown.length - 1, at));
    if (at < 0 || !this.shown.length) return;
    if (!this.windowed && at >= this.limit) at = this.limit - 1;
    this.active = this.rowKey(this.shown[at]);
    if (this.windowed) {
      const main = $("main"), top = this.body.getBoundingClientRect().top - main.getBoundingClientRect().top + main.scrollTop + at * ROW_HEIGHT;
      const head = this.head.offsetHeight;
      if (top - head < main.scrollTop) main.scrollTop = top - head - 4;
      else if (top + ROW_HEIGHT > main.scrollTop + main.clientHeight) main.scrollTop = top + ROW_HEIGHT - main.clientHeight + 4;
      this.paint();
    }
    const made = this.made.get(this.active);
    if (made) { this.activate(made); made.tabIndex = 0; made.focus({ preventScroll: this.windowed }); }
  }
  keys(event) {
    const made = event.target.closest("tr"), inner = event.target !== made;
    if (!made || made.rowKey === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.shown.findIndex((row) => this.rowKey(row) === made.rowKey), page = Math.max(5, Math.floor($("main").clientHeight / ROW_HEIGHT) - 3);
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.shown.length - 1, PageDown: at + page, PageUp: at - page };
    if (event.key in moves) this.focusAt(moves[event.key]);
    else if (event.key === "Enter" && !inner) this.act(made);
    else if (event.key === " " && !inner && this.choose) this.choose(this.shown[at]);
    else return;
    event.preventDefault();
  }
  clicked(event) {
    const made = event.target.closest("tr");
    if (!made || made.rowKey === undefined || event.target.closest("a, button, input, label, select") || String(getSelection())) return;
    this.act(made);
  }
  // Opens a row, or shows its texts in full if there is nothing to open.
  act(made) {
    const row = this.rowAt(made);
    if (!row) return;
    if (this.open) { this.open(row); return; }
    if (!this.expanded.delete(made.rowKey)) this.expanded.add(made.rowKey);
    made.classList.toggle("expanded");
  }
}

// Unknown values come last in either direction.
function sortRows(rows, column, down) {
  const collator = new Intl.Collator("en", { numeric: true });
  const keyed = rows.map((row, at) => [column.value(row), at, row]);
  const lacks = (value) => value === null || value === undefined || Number.isNaN(value);
  keyed.sort(([x, i], [y, j]) => {
    if (lacks(x) || lacks(y)) return lacks(x) && lacks(y) ? i - j : lacks(x) ? 1 : -1;
    const order = typeof x === "number" && typeof y === "number" ? x - y : collator.compare(String(x), String(y));
    return (down ? -order : order) || i - j;
  });
  return keyed.map(([, , row]) => row);
}

// Changes a cell only where it differs, so that focus and tooltips stay.
function fillCell(td, cell) {
  const { content = "", title = null, share = null, mark = "" } = cell !== null && typeof cell === "object" && !(cell instanceof Node) ? cell : { content: cell ?? "" };
  if (content instanceof Node) {
    if (!(td.childNodes.length === 1 && td.firstChild.isEqualNode(content))) td.replaceChildren(content);
  } else if (td.textContent !== straight(String(content)) || td.firstElementChild) td.textContent = straight(String(content));
  if (title) { if (td.title !== straight(title)) td.title = straight(title); } else if (td.hasAttribute("title")) td.removeAttribute("title");
  if ((td.dataset.mark || "") !== mark) td.dataset.mark = mark;
  if (share !== null) td.style.setProperty("--share", `${(Math.max(0, Math.min(1, share)) * 100).toFixed(1)}%`);
  td.classList.toggle("shared", share !== null);
}
