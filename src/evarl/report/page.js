"use strict";

// Headers become buttons here, not in the HTML: without a script there is nothing to press.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  if (original.length < 2) continue;
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // Ascending, descending, and back to the order in which the rows were given.
      const next = { ascending: "descending", descending: undefined }[head.ariaSort ?? ""];
      const order = head.ariaSort ? next : "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      if (order) head.setAttribute("aria-sort", order);
      const rows = order ? sorted(original, column, order === "ascending" ? 1 : -1) : original;
      body.append(...rows);
    });
  });
}

function sorted(rows, column, sign) {
  const keyed = rows.map((row) => ({ row, key: keyOf(row.cells[column]) }));
  return keyed.sort((a, b) => compare(a.key, b.key, sign)).map((entry) => entry.row);
}

function keyOf(cell) {
  if ("missing" in cell.dataset) return null;
  const value = cell.dataset.value;
  if (value === undefined) return cell.textContent;
  // Python's spelling of infinity is not JavaScript's.
  return Number(value.replace("inf", "Infinity"));
}

// Numbers before words, and what is missing last whatever the direction.
function compare(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a !== typeof b) return sign * (typeof a === "number" ? -1 : 1);
  return sign * (typeof a === "number" ? (a > b) - (a < b) : a.localeCompare(b, "en", { numeric: true }));
}

// Tables that are wider than the screen show to which side they go on.
for (const box of document.querySelectorAll(".scroll")) {
  const show = () => {
    const rest = box.scrollWidth - box.clientWidth;
    box.parentElement.classList.toggle("scrolls", rest > 1);
    box.classList.toggle("more-left", box.scrollLeft > 1);
    box.classList.toggle("more-right", rest - box.scrollLeft > 1);
  };
  box.addEventListener("scroll", show, { passive: true });
  new ResizeObserver(show).observe(box);
  show();
}

// Paper does not unfold.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach((details) => (details.open = true));
});
addEventListener("afterprint", () => {
  folded.forEach((details) => (details.open = false));
  folded = [];
});
