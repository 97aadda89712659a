// Lets the reader sort tables, show folded rows and print. Without scripts, a page lacks only these functions.

startTheme(() => {});
$("print").addEventListener("click", () => print());
for (const button of document.querySelectorAll("button[data-more]")) {
  button.addEventListener("click", () => {
    const table = button.closest("p").previousElementSibling;
    const open = table.classList.toggle("open");
    button.textContent = open ? "fewer rows" : `${button.dataset.more} more rows`;
    button.setAttribute("aria-expanded", String(open));
  });
}
for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = element("button", { title: "Sort by this column" }, ...cell.childNodes);
    cell.replaceChildren(button);
    button.addEventListener("click", () => sortBy(table, cell, column));
  });
}

function sortBy(table, cell, column) {
  const words = cell.classList.contains("words");
  const down = cell.getAttribute("aria-sort") ? cell.getAttribute("aria-sort") === "ascending" : !words;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  cell.setAttribute("aria-sort", down ? "descending" : "ascending");
  const body = table.tBodies[0];
  const folded = [...body.rows].filter((row) => row.classList.contains("more")).length;
  const number = (row) => row.cells[column].dataset.number === undefined ? NaN : Number(row.cells[column].dataset.number);
  // Cells without a number are compared as text. In a column of numbers they are unknown values and come last in
  // either direction.
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [number(a), number(b)];
    if (Number.isNaN(x) && Number.isNaN(y)) {
      const order = a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", { numeric: true });
      return down ? -order : order;
    }
    if (Number.isNaN(x)) return 1;
    if (Number.isNaN(y)) return -1;
    return down ? y - x : x - y;
  });
  rows.forEach((row, i) => row.classList.toggle("more", i >= rows.length - folded));
  body.replaceChildren(...rows);
}
document.documentElement.dataset.ready = "true";
