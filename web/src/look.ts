// A closer look at a value: where in the tensor its error lies, and how values and errors are distributed.

import { colour, context, h } from "./dom";
import type { Portrait } from "./report";
import { count, error, number } from "./text";
import { say, w } from "./words";

const MAP = 220;
const BARS = { width: 280, height: 96 };

export function look(portrait: Portrait, shape: number[]): HTMLElement {
  const { elements, lanes } = portrait;
  if (lanes) return lanesOf(lanes);
  if (!elements) return h("div");
  return h("div", { class: "looks" }, heat(elements, shape), values(elements), errors(elements));
}

type Elements = NonNullable<Portrait["elements"]>;

/** Index of a row of the map in all dimensions but the last. */
function unfold(row: number, shape: number[]): string {
  const outer = shape.slice(0, -1);
  const at: number[] = [];
  for (const size of outer.reverse()) {
    at.unshift(size ? row % size : 0);
    row = size ? Math.floor(row / size) : 0;
  }
  return at.map((index) => `${index}, `).join("");
}

function heat(look: Elements, shape: number[]): HTMLElement {
  const { rows, columns, cells, height, width } = look;
  const canvas = h("canvas", { role: "img", "aria-label": w().heat, class: "heatmap" });
  const readout = h("output", { class: "hint" });
  const finite = cells.filter((cell): cell is number => cell !== null && cell > 0);
  const high = Math.max(...finite, Number.MIN_VALUE);
  const low = Math.max(Math.min(...finite, high), high * 1e-6);
  const cellWidth = MAP / columns;
  const size = { width: MAP, height: Math.min(MAP, Math.max(24, rows * 18)) };
  const rowHeight = size.height / rows;
  const paint = () => {
    const g = context(canvas, size.width, size.height);
    cells.forEach((cell, index) => {
      const [row, column] = [Math.floor(index / columns), index % columns];
      g.fillStyle = cell === null ? colour("--r-unpaired") : shade(cell, low, high);
      const [x, y] = [Math.floor(column * cellWidth), Math.floor(row * rowHeight)];
      g.fillRect(x, y, Math.ceil((column + 1) * cellWidth) - x, Math.ceil((row + 1) * rowHeight) - y);
    });
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.min(columns - 1, Math.max(0, Math.floor((event.clientX - box.left) / cellWidth)));
    const row = Math.min(rows - 1, Math.max(0, Math.floor((event.clientY - box.top) / rowHeight)));
    const span = (index: number, of: number, all: number) => {
      const [from, to] = [Math.ceil((index * all) / of), Math.ceil(((index + 1) * all) / of)];
      return [from, Math.max(from + 1, to)] as const;
    };
    const [top, bottom] = span(row, rows, height);
    const [left, right] = span(column, columns, width);
    const outer = bottom - top > 1 ? `${top}:${bottom} → ` : unfold(top, shape);
    const cell = cells[row * columns + column];
    readout.textContent = `[${outer}${right - left > 1 ? `${left}:${right}` : left}] ${cell === null ? w().heatNaN : error(cell)}`;
  });
  paint();
  return h(
    "figure",
    {},
    h("figcaption", {}, w().heat),
    canvas,
    ramp(low, high),
    readout,
    h("p", { class: "hint" }, say(w().heatText, { height: count(height), width: count(width) })),
  );
}

/** Colours of the map, from no error to the largest: lightness grows all the way, so that they tell in grey as well. */
const RAMP = [
  [68, 1, 84],
  [72, 40, 120],
  [62, 74, 137],
  [49, 104, 142],
  [38, 130, 142],
  [31, 158, 137],
  [53, 183, 121],
  [109, 205, 89],
  [180, 222, 44],
  [253, 231, 37],
] as const;

function shade(value: number, low: number, high: number): string {
  if (value <= 0) return colour("--well");
  const share = high > low ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : 1;
  const at = Math.min(1, Math.max(0, share)) * (RAMP.length - 1);
  const [a, b] = [RAMP[Math.floor(at)] ?? RAMP[0], RAMP[Math.ceil(at)] ?? RAMP[0]];
  const mix = (index: 0 | 1 | 2) => Math.round(a[index] + (b[index] - a[index]) * (at % 1));
  return `rgb(${mix(0)} ${mix(1)} ${mix(2)})`;
}

function ramp(low: number, high: number): HTMLElement {
  const canvas = h("canvas", { "aria-hidden": "true" });
  const g = context(canvas, 120, 8);
  for (let x = 0; x < 120; x++) {
    g.fillStyle = shade(low * (high / low) ** (x / 119), low, high);
    g.fillRect(x, 0, 1, 8);
  }
  return h("div", { class: "ramp" }, h("span", {}, error(low)), canvas, h("span", {}, error(high)));
}

/** Bars from the bottom, on a logarithmic scale of counts: single elements show beside millions. */
function bars(g: CanvasRenderingContext2D, list: number[], most: number, name: string, filled: boolean): void {
  const step = BARS.width / list.length;
  g.fillStyle = colour(name);
  g.strokeStyle = colour(name);
  g.lineWidth = 1.5;
  g.beginPath();
  list.forEach((n, index) => {
    const size = n > 0 ? Math.max(2, (Math.log1p(n) / Math.log1p(most)) * (BARS.height - 6)) : 0;
    const [x, y] = [index * step, BARS.height - size];
    if (filled) g.fillRect(x, y, Math.max(1, step - 1), size);
    else {
      if (index === 0) g.moveTo(x, y);
      g.lineTo(x, y);
      g.lineTo(x + step, y);
    }
  });
  if (!filled) g.stroke();
}

function values(look: Elements): HTMLElement {
  const canvas = h("canvas", { role: "img", "aria-label": w().histogramName });
  const g = context(canvas, BARS.width, BARS.height);
  const most = Math.max(1, ...look.baseline, ...look.candidate);
  bars(g, look.baseline, most, "--spread", true);
  bars(g, look.candidate, most, "--r-introduces", false);
  return h(
    "figure",
    {},
    h("figcaption", {}, w().histogram),
    canvas,
    h("div", { class: "axis" }, h("span", {}, number(look.min)), h("span", {}, number(look.max))),
    h(
      "p",
      { class: "hint sides" },
      h("span", { class: "key" }, h("i", { class: "base" }), w().baseline),
      h("span", { class: "key" }, h("i", { class: "cand" }), w().candidate),
    ),
  );
}

function errors(look: Elements): HTMLElement {
  const canvas = h("canvas", { role: "img", "aria-label": w().errorsName });
  const g = context(canvas, BARS.width, BARS.height);
  bars(g, look.errors, Math.max(1, ...look.errors), "--r-propagates", true);
  const facts = [say(w().equal, { n: count(look.equal) })];
  if (look.non_finite) facts.push(say(w().nonFinite, { n: count(look.non_finite) }));
  return h(
    "figure",
    {},
    h("figcaption", {}, w().errors),
    canvas,
    h("div", { class: "axis" }, h("span", {}, "1e-10"), h("span", {}, "1e-5"), h("span", {}, "1"), h("span", {}, "1e3")),
    h("p", { class: "hint" }, facts.join("; ")),
  );
}

function lanesOf(lanes: number[]): HTMLElement {
  const canvas = h("canvas", { role: "img", "aria-label": w().lanes });
  const [width, height] = [Math.max(251, lanes.length), 64];
  const g = context(canvas, width, height);
  const most = Math.max(...lanes, Number.MIN_VALUE);
  g.fillStyle = colour("--r-introduces");
  lanes.forEach((lane, index) => {
    const size = (lane / most) * (height - 2);
    g.fillRect((index * width) / lanes.length, height - size, width / lanes.length, size);
  });
  return h(
    "div",
    { class: "looks" },
    h(
      "figure",
      { class: "wide" },
      h("figcaption", {}, w().lanes),
      canvas,
      h("p", { class: "hint" }, say(w().lanesText, { n: lanes.length })),
    ),
  );
}
