"use strict";
// The graph: nodes are clients, with components among them, or blocks; arrows go from who teaches to who learns, or from a
// component to who uses it; and the panel beside it tells facts.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { clients, edges, blocks, components, palette, believed, kind, score } = data;
  // Edges of many clients come as bytes, each client's after another's.
  const unpacked = (text, Numbers) => Array.from(new Numbers(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer));
  if (data.many) {
    edges.from = unpacked(edges.from, clients.name.length <= 2 ** 16 ? Uint16Array : Uint32Array);
    edges.to = edges.counts.flatMap((count, client) => Array(count).fill(client));
    edges.w = unpacked(edges.w, Uint16Array).map((w) => (w / 65535) * edges.highest);
    if (edges.strength) edges.strength = unpacked(edges.strength, Uint16Array).map((w) => w / 65535);
  }
  const MOST = 2500; // arrows that a browser draws at ease
  const [HALF, RADIUS] = [270, 14]; // of the picture's height, and of a client, in pixels
  const MANY = 60; // clients from which on names are seen only when zoomed in
  const [box, facts, slider, level, chooser] = ["network", "facts", "threshold", "level", "who"].map((id) => document.getElementById(id));
  const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const brightness = (hex) => parts(hex).reduce((sum, part, i) => sum + part * [0.299, 0.587, 0.114][i], 0);
  const dark = matchMedia("screen and (prefers-color-scheme: dark)");
  // On dark paper the darkest colours are made lighter, black most of all.
  const colour = (block) => {
    if (blocks.size[block] === 1) return "#8a939d"; // who is alone is no block
    const hex = palette[block % palette.length];
    if (!dark.matches || brightness(hex) > 75) return hex;
    return `#${parts(hex).map((part) => Math.round(part + 0.55 * (255 - part)).toString(16).padStart(2, "0")).join("")}`;
  };
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const digits = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));
  const signed = (value) => (value === null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`);
  const plural = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

  const strength = (of) => of.strength ?? of.w; // from 0 to 1, whatever weights are
  const weight = (place) => {
    const w = `w = ${edges.w[place].toFixed(2)}`;
    return edges.low ? `${w} [${edges.low[place].toFixed(2)}, ${edges.high[place].toFixed(2)}]` : w;
  };
  const sure = (w) => (!data.probabilities ? "" : w >= 0.95 ? ", yes" : w <= 0.05 ? ", no" : ", open");
  const learnsFrom = (client) => edges.to.flatMap((to, place) => (to === client ? [place] : []));
  const teaches = (client) => edges.from.flatMap((from, place) => (from === client ? [place] : []));

  const element = (tag, text, ...children) => {
    const found = document.createElement(tag);
    if (text !== null) found.textContent = text;
    found.append(...children);
    return found;
  };
  const list = (title, places, name, of = edges, names = clients.name, told = (place) => `${weight(place)}${sure(edges.w[place])}`) => {
    const strongest = places.filter((place) => strength(of)[place] > believed).sort((a, b) => of.w[b] - of.w[a]);
    const items = strongest.slice(0, 30).map((place) => element("li", `${names[name[place]]}, ${told(place)}`));
    if (strongest.length > 30) items.push(element("li", `and ${strongest.length - 30} more`));
    return [element("h4", title), items.length ? element("ul", null, ...items) : element("p", "nobody")];
  };
  const share = (place) => `w = ${components.uses.w[place].toFixed(2)}`;
  const usesOf = (end, id) => components.uses[end].flatMap((one, place) => (one === id ? [place] : []));
  const listUses = (client) => (components ? list("uses", usesOf("to", client), components.uses.from, components.uses, components.name, share) : []);
  const pairs = (table) =>
    element("dl", null, ...Object.entries(table).flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
  const fares = (of, place) => ({
    [`${score} together`]: digits(of.with[place]),
    [`${score} alone`]: digits(of.alone[place]),
    gain: signed(of.gain[place]),
  });
  const tellClient = (client, where = facts) => {
    const known = { block: String(clients.block[client]) };
    if (clients.group[client] !== null) known["true group"] = String(clients.group[client]);
    if (clients.samples[client] !== null) known.samples = String(clients.samples[client]);
    const held = data.many ? [element("p", `The page holds each client's strongest links, ${edges.w.length.toLocaleString("en")} of ${edges.total.toLocaleString("en")}; all are in weights.npz.`)] : [];
    where.replaceChildren(
      element("h3", clients.name[client]),
      pairs({ ...known, ...fares(clients, client) }),
      ...listUses(client),
      ...list(`learns from ${plural(clients.learns[client], "client")}`, learnsFrom(client), edges.from),
      ...list(`teaches ${plural(clients.teaches[client], "client")}`, teaches(client), edges.to),
      ...held,
    );
  };
  const tellBlock = (block) => {
    const members = blocks.members[block];
    const more = blocks.size[block] - members.length;
    facts.replaceChildren(
      element("h3", `block ${block}`),
      pairs({ clients: String(blocks.size[block]), "mean w inside": digits(blocks.inside[block]), ...fares(blocks, block) }),
      element("h4", "members"),
      element("p", members.join(", ") + (more > 0 ? ` and ${more} more` : "")),
    );
  };
  const tellComponent = (component) =>
    facts.replaceChildren(
      element("h3", components.name[component]),
      element("p", "A network without data of its own."),
      ...list(`used by ${plural(components.users[component], "client")}`, usesOf("from", component), components.uses.to, components.uses, clients.name, share),
    );
  const sentence = (place) =>
    level.value === "components"
      ? `${clients.name[components.uses.to[place]]} uses ${components.name[components.uses.from[place]]}: ${share(place)}`
      : level.value === "blocks"
      ? `block ${blocks.edges.to[place]} learns from block ${blocks.edges.from[place]}: mean w = ${digits(blocks.edges.w[place])}`
      : `${clients.name[edges.to[place]]} learns from ${clients.name[edges.from[place]]}: ${weight(place)}${sure(edges.w[place])}`;

  // As far apart as most need to have room, but not so far that the whole graph shows them smaller than can be seen.
  const spacing = (of) => {
    const near = of.x.map((x, i) => Math.min(...of.x.map((other, j) => (i === j ? Infinity : Math.hypot(x - other, of.y[i] - of.y[j])))));
    const usual = near.filter(Number.isFinite).sort((a, b) => a - b)[Math.floor(near.length / 10)] || 1;
    const smallest = of.x.length > 300 ? 3 : of.x.length > MANY ? 5 : 9;
    return Math.max(HALF, Math.min((HALF * RADIUS) / smallest, (2.6 * RADIUS) / Math.max(usual, 1e-3)));
  };
  const radius = (size) => 10 + 4 * Math.sqrt(size); // of a block
  // So far apart that no block covers another one.
  const apart = ({ x, y, size }) =>
    Math.max(HALF, ...x.flatMap((here, i) => x.slice(0, i).map((there, j) => (radius(size[i]) + radius(size[j])) / Math.max(Math.hypot(here - there, y[i] - y[j]), 1e-3))));
  const scale = data.many ? { clients: 1, blocks: apart(blocks) } : { clients: spacing(clients), blocks: spacing(blocks) };
  const node = (id, label, block, x, y, title, size) => {
    const [background, border] = [colour(block), ink("--paper")];
    const shown = { background, border: ink("--ink") };
    const inside = label.length <= 3; // a short name stands in its circle, a longer one below
    const font = { color: !inside ? ink("--ink") : brightness(background) > 115 ? "#000000" : "#ffffff", strokeWidth: inside ? 0 : 3, strokeColor: ink("--paper") };
    const look = inside ? { shape: "circle", widthConstraint: 1.4 * size } : { shape: "dot", size };
    return { id, label, x, y, title, ...look, font, color: { background, border, highlight: shown, hover: shown } };
  };
  const clientNodes = () =>
    clients.name.map((name, i) => {
      const title = `${name}\nblock ${clients.block[i]}\n${score} ${digits(clients.with[i])} together, ${digits(clients.alone[i])} alone`;
      return node(i, clients.label[i], clients.block[i], clients.x[i] * scale.clients, clients.y[i] * scale.clients, title, RADIUS);
    });
  const blockNodes = () =>
    blocks.size.slice(0, blocks.x.length).map((size, i) => {
      const title = `block ${i}: ${plural(size, "client")}`;
      return node(i, `${i} (${size})`, i, blocks.x[i] * scale.blocks, blocks.y[i] * scale.blocks, title, radius(size));
    });
  const seat = (component) => `component ${component}`; // ids of clients are numbers
  const componentNodes = () =>
    components.name.map((label, i) => ({
      id: seat(i), label, x: components.x[i] * scale.clients, y: components.y[i] * scale.clients, shape: "star", size: RADIUS,
      title: `${label}, without data\nused by ${plural(components.users[i], "client")}`,
      font: { color: ink("--ink"), strokeWidth: 3, strokeColor: ink("--paper") },
      color: { background: ink("--ink"), border: ink("--paper"), highlight: { background: ink("--ink"), border: ink("--accent") }, hover: { background: ink("--ink"), border: ink("--accent") } },
    }));
  const arrow = (place, of, block, from = (id) => id) => {
    const share = strength(of)[place];
    const inside = block(of.from[place], of.to[place]) === block(of.to[place]);
    return {
      id: place,
      from: from(of.from[place]),
      to: of.to[place],
      title: sentence(place),
      width: 0.5 + 2 * share,
      color: { color: inside ? colour(block(of.to[place])) : ink("--soft"), opacity: 0.15 + 0.6 * share, highlight: ink("--ink"), hover: ink("--ink") },
    };
  };

  const nodes = new vis.DataSet();
  const arrows = new vis.DataSet();
  const many = clients.name.length > MANY;
  const network = new vis.Network(box, { nodes, edges: arrows }, {
    physics: false,
    nodes: { borderWidth: 1.5, font: { size: 14 }, scaling: { label: { drawThreshold: 9 } } },
    edges: { arrows: { to: { enabled: true, scaleFactor: many ? 0.35 : 0.5 } }, smooth: { type: "curvedCW", roundness: 0.13 }, selectionWidth: 1.5, hoverWidth: 0.5 },
    interaction: { hover: true, tooltipDelay: 150, hideEdgesOnDrag: many, hideEdgesOnZoom: many, keyboard: { enabled: true, bindToWindow: false } },
  });

  const refreshNodes = () => {
    const found = level.value === "blocks" ? blockNodes() : level.value === "components" ? [...clientNodes(), ...componentNodes()] : clientNodes();
    const dragged = nodes.length === found.length ? network.getPositions() : {};
    if (nodes.length !== found.length) nodes.clear();
    nodes.update(found.map((one) => ({ ...one, ...dragged[one.id] })));
  };
  const refreshArrows = () => {
    const inBlocks = level.value === "blocks";
    // A component is in the block of whoever uses it.
    const [of, block, from] = {
      blocks: [blocks.edges, (id) => id],
      clients: [edges, (id) => clients.block[id]],
      components: [components?.uses, (id, user = id) => clients.block[user], seat],
    }[level.value];
    const above = strength(of).flatMap((one, place) => (one > Number(slider.value) ? [place] : []));
    const shown = above.slice(0, MOST);
    arrows.clear();
    arrows.add(shown.map((place) => arrow(place, of, block, from)));
    const threshold = Number(slider.value).toPrecision(2);
    const held = of === edges && edges.total > edges.w.length ? ` The page holds each client's strongest, ${edges.w.length.toLocaleString("en")} of ${edges.total.toLocaleString("en")}.` : "";
    const cut = shown.length < above.length ? ` Drawn are each client's strongest, ${shown.length.toLocaleString("en")} of ${above.length.toLocaleString("en")}.` : "";
    document.getElementById("threshold-value").value = threshold;
    const what = inBlocks ? "mean weight between blocks" : "weight";
    const scale = { edges: "", rows: " of the heaviest that the client gives", point: " of the heaviest" }[kind];
    document.getElementById("shown").textContent = `${plural(above.length, "link")} of ${what} above ${threshold}${scale}.${cut}${held}`;
  };
  const refresh = () => { refreshNodes(); refreshArrows(); };

  const tellNode = (id) => (level.value === "blocks" ? tellBlock(id) : typeof id === "string" ? tellComponent(Number(id.split(" ")[1])) : tellClient(id));
  const tellArrow = (place) => facts.replaceChildren(element("h3", "link"), element("p", sentence(place)));
  network.on("hoverNode", ({ node }) => tellNode(node));
  network.on("hoverEdge", ({ edge }) => tellArrow(edge));
  network.on("selectNode", ({ nodes: [id] }) => tellNode(id));
  network.on("selectEdge", ({ nodes: chosen, edges: [place] }) => { if (!chosen.length && place !== undefined) tellArrow(place); });

  const NS = "http://www.w3.org/2000/svg";
  const mark = (shape, attributes) => {
    const [found, part] = ["svg", shape].map((tag) => document.createElementNS(NS, tag));
    found.setAttribute("viewBox", "0 0 14 14");
    found.setAttribute("aria-hidden", "true");
    for (const [name, value] of Object.entries(attributes)) part.setAttribute(name, value);
    found.append(part);
    return found;
  };
  const dot = (fill) => mark("circle", { cx: 7, cy: 7, r: 6, fill });
  const corner = (i) => [Math.sin, Math.cos].map((f, axis) => 7 + (axis ? -1 : 1) * (i % 2 ? 2.7 : 6.5) * f((Math.PI * i) / 5)).join(",");
  const star = (fill) => mark("polygon", { points: Array.from({ length: 10 }, (_, i) => corner(i)).join(" "), fill });
  const paintLegend = () => {
    const several = blocks.size.filter((size) => size > 1); // they come first
    const alone = blocks.size.length - several.length;
    const lines = several.slice(0, 40).map((size, block) => element("li", null, dot(colour(block)), element("span", `block ${block} (${plural(size, "client")})`)));
    if (several.length > 40) lines.push(element("li", `and ${several.length - 40} more blocks`));
    if (alone) lines.push(element("li", null, dot("#8a939d"), element("span", `on their own (${plural(alone, "client")})`)));
    if (components && !data.many) lines.push(element("li", null, star(ink("--ink")), element("span", `component, without data (${components.name.length})`)));
    document.getElementById("legend").replaceChildren(...lines);
  };

  if (!data.many) clients.name.forEach((name, place) => { const option = element("option", name); option.value = place; chooser.append(option); });
  slider.value = believed;
  if (!data.many && blocks.size.length > 1 && blocks.size.length < clients.name.length) document.getElementById("level-label").hidden = false;
  if (components && !data.many) document.getElementById("level-label").hidden = false;
  if (data.many || data.startWithBlocks) level.value = "blocks";
  const whole = () => network.fit({ animation: false });
  slider.addEventListener("input", refreshArrows);
  level.addEventListener("change", () => { nodes.clear(); arrows.clear(); refresh(); whole(); });
  document.getElementById("believed").addEventListener("click", () => { slider.value = believed; refreshArrows(); });
  document.getElementById("fit").addEventListener("click", whole);
  chooser.addEventListener("change", () => {
    if (chooser.value === "") return;
    if (level.value === "blocks") { level.value = "clients"; nodes.clear(); arrows.clear(); refresh(); whole(); }
    network.selectNodes([Number(chooser.value)]);
    tellClient(Number(chooser.value));
  });
  dark.addEventListener("change", () => { refresh(); paintLegend(); });
  refresh();
  paintLegend();
  whole();
  window.report = { network, nodes, arrows, tellClient, held: edges };
})();
