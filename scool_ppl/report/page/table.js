"use strict";
// Tables whose headings sort their rows: numbers by size, texts with their numbers in order, blanks last.
(() => {
  const order = new Intl.Collator(undefined, { numeric: true });
  const key = (row, place) => {
    const cell = row.cells[place];
    return cell.dataset.number === undefined ? cell.dataset.value : Number(cell.dataset.number);
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : order.compare(String(a), String(b)));
  const sort = (table, head) => {
    const rising = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows].map((row) => [key(row, head.cellIndex), row]);
    rows.sort(([a], [b]) => {
      if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
      return rising ? compare(a, b) : compare(b, a);
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };
  for (const table of document.querySelectorAll("table.sortable"))
    for (const head of table.tHead.rows[0].cells)
      head.querySelector("button").addEventListener("click", () => sort(table, head));
})();
