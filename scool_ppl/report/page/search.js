"use strict";
// The table of more clients than a page can hold as rows: those whose names have what is searched for, the first of an order.
(() => {
  const { clients, score } = JSON.parse(document.getElementById("data").textContent);
  const MOST = 100; // rows that are shown at once
  const [table, search, found, row] = ["clients", "search", "found", "row"].map((id) => document.getElementById(id));
  const order = new Intl.Collator(undefined, { numeric: true });
  const heads = { name: "client", block: "block", component: "component", group: "true group", samples: "samples", with: score, alone: `${score} alone`, gain: "gain", learns: "learns from", teaches: "teaches" };
  const names = Object.keys(heads).filter((name) => clients[name].some((value) => value !== null));
  const state = { by: "name", rising: true };
  const shown = (value) => (value === null ? "" : typeof value === "string" ? value : Number.isInteger(value) ? String(value) : value.toFixed(3));
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : order.compare(String(a), String(b)));
  const cell = (client, name) => {
    const value = clients[name][client];
    const made = document.createElement(name === "name" ? "th" : "td");
    if (name !== "name") { made.className = "number"; made.textContent = shown(value); return made; }
    made.scope = "row";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = value;
    button.addEventListener("click", () => window.report.tellClient(client, row));
    made.append(button);
    return made;
  };
  const line = (client) => {
    const made = document.createElement("tr");
    made.append(...names.map((name) => cell(client, name)));
    return made;
  };
  const refresh = () => {
    const text = search.value.trim().toLowerCase();
    const values = clients[state.by];
    const among = clients.name.flatMap((name, client) => (name.toLowerCase().includes(text) ? [client] : []));
    among.sort((a, b) => {
      if (values[a] === null || values[b] === null) return (values[a] === null) - (values[b] === null);
      return state.rising ? compare(values[a], values[b]) : compare(values[b], values[a]);
    });
    table.tBodies[0].replaceChildren(...among.slice(0, MOST).map(line));
    const first = among.length > MOST ? `The first ${MOST} of ` : "";
    found.textContent = `${first}${among.length.toLocaleString("en")} client${among.length === 1 ? "" : "s"}${text ? " found" : ""}.`;
  };
  const head = document.createElement("tr");
  for (const name of names) {
    const [cell, button] = ["th", "button"].map((tag) => document.createElement(tag));
    cell.scope = "col";
    if (name !== "name") cell.className = "number";
    button.type = "button";
    button.textContent = heads[name];
    button.addEventListener("click", () => {
      state.rising = state.by === name ? !state.rising : true;
      state.by = name;
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", state.rising ? "ascending" : "descending");
      refresh();
    });
    cell.append(button);
    head.append(cell);
  }
  table.tHead.append(head);
  search.addEventListener("input", refresh);
  refresh();
})();
