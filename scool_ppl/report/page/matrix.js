"use strict";
// The matrix of weights, a pixel a cell, for the round that the slider is at.
(() => {
  const { matrix, clients, colours } = JSON.parse(document.getElementById("data").textContent);
  const { size, order, first, highest } = matrix;
  const frames = Object.entries(matrix.frames).map(([name, cells]) => [name, Uint8Array.from(atob(cells), (c) => c.charCodeAt(0))]);
  const [canvas, slider, readout] = ["matrix", "frame", "cell"].map((id) => document.getElementById(id));
  const colour = (value) => colours[Math.round((value / 255) * (colours.length - 1))];
  const paint = (target, values) => {
    const context = target.getContext("2d");
    const image = context.createImageData(target.width, target.height);
    values.forEach((value, place) => image.data.set([...colour(value), 255], 4 * place));
    context.putImageData(image, 0, 0);
  };
  const draw = () => {
    const [name, cells] = frames[slider.value];
    document.getElementById("frame-name").value = name;
    paint(canvas, cells);
  };
  const who = (place) => {
    const end = place + 1 < size ? first[place + 1] : order.length;
    const names = [clients.name[order[first[place]]], clients.name[order[end - 1]]];
    return end - first[place] === 1 ? names[0] : `${names[0]} … ${names[1]}`;
  };
  const at = [0, 0];
  const tell = () => {
    const [name, cells] = frames[slider.value];
    const weight = (cells[at[0] * size + at[1]] / 255) * highest;
    readout.textContent = `${name}: ${who(at[0])} learns from ${who(at[1])}, w = ${weight.toFixed(2)}`;
  };
  const move = (row, column) => {
    at[0] = Math.max(0, Math.min(size - 1, row));
    at[1] = Math.max(0, Math.min(size - 1, column));
    tell();
  };
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    move(Math.floor(((event.clientY - box.top) / box.height) * size), Math.floor(((event.clientX - box.left) / box.width) * size));
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    move(at[0] + step[0], at[1] + step[1]);
  });
  slider.addEventListener("input", () => { draw(); tell(); });
  document.getElementById("scale-end").textContent = highest.toPrecision(2);
  paint(document.getElementById("scale"), Uint8Array.from({ length: 64 }, (_, place) => Math.round((255 * place) / 63)));
  draw();
})();
