// Loss and gradient norm of both runs over the steps, as far as they were recorded.

import type { App } from "./app";
import type { Part, Slot } from "./data";
import { h, replace, s } from "./dom";
import { number } from "./text";
import { w } from "./words";

interface Point {
  step: number;
  baseline: number;
  candidate: number;
}

const SIZE = { width: 300, height: 70 };

export function training(app: App, ready: Promise<void>): HTMLElement {
  const section = h("section", { class: "card training", hidden: true });
  let curves: { name: "loss" | "gradientNorm"; points: Point[] }[] = [];

  function paint(): void {
    const shown = curves.filter(({ points }) => points.length);
    section.hidden = !shown.length;
    replace(
      section,
      h("header", {}, h("h2", {}, w().training), h("span", { class: "hint" }, w().lossText)),
      h("div", { class: "pairs" }, ...shown.map(({ name, points }) => figure(w()[name], points))),
    );
  }

  void ready.then(async () => {
    const { rank } = app.part();
    const parts = app.model.parts.filter((part) => part.rank === rank).slice(0, 500);
    const loss: Point[] = [];
    const norm: Point[] = [];
    for (const part of parts) {
      const [a, b] = [await lossOf(app, part), await normOf(app, part)];
      if (a) loss.push(a);
      if (b) norm.push(b);
    }
    curves = [
      { name: "loss", points: loss },
      { name: "gradientNorm", points: norm },
    ];
    paint();
  });
  app.on((changed) => changed.size > 5 && paint());
  return section;
}

/** The last scalar that the forward pass makes before the backward pass begins. */
async function lossOf(app: App, part: Part): Promise<Point | null> {
  let end = part.start;
  while (end < part.start + part.count && app.phase(end) !== "backward") end++;
  if (end === part.start + part.count) return null;
  for (let op = end - 1; op >= Math.max(part.start, end - 40); op--) {
    const slot = (await app.model.slots(op)).find(
      (slot) => slot.path.startsWith("output") && slot.text("baseline_shape") === "[]" && /float/.test(slot.text("baseline_dtype")),
    );
    const point = slot && both(slot, "mean", part.step);
    if (point) return point;
  }
  return null;
}

function both(slot: Slot, name: string, step: number): Point | null {
  const [baseline, candidate] = [slot.number(`baseline_${name}`), slot.number(`candidate_${name}`)];
  return baseline === null || candidate === null ? null : { step, baseline, candidate };
}

/** Norm of all gradients of parameters. */
async function normOf(app: App, part: Part): Promise<Point | null> {
  let [baseline, candidate, found] = [0, 0, false];
  for (let op = part.start; op < part.start + part.count; op++) {
    if (app.phase(op) !== "gradient") continue;
    for (const slot of await app.model.slots(op)) {
      const point = slot.path.startsWith("grad") ? both(slot, "norm", part.step) : null;
      if (!point) continue;
      found = true;
      baseline += point.baseline ** 2;
      candidate += point.candidate ** 2;
    }
  }
  return found ? { step: part.step, baseline: Math.sqrt(baseline), candidate: Math.sqrt(candidate) } : null;
}

function figure(name: string, points: Point[]): HTMLElement {
  const last = points.at(-1);
  const head = h(
    "figcaption",
    {},
    h("b", {}, name),
    last ? ` ${w().step} ${last.step}: ${number(last.baseline, 6)} | ${number(last.candidate, 6)}` : "",
  );
  if (points.length < 2) return h("figure", {}, head);
  const all = points.flatMap(({ baseline, candidate }) => [baseline, candidate]).filter(Number.isFinite);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const [first, end] = [points[0]?.step ?? 0, last?.step ?? 1];
  const x = (step: number) => 4 + ((step - first) / Math.max(1, end - first)) * (SIZE.width - 8);
  const y = (value: number) => SIZE.height - 6 - ((value - low) / (high - low || 1)) * (SIZE.height - 12);
  const line = (side: "baseline" | "candidate") =>
    s("polyline", {
      class: side,
      points: points
        .filter((point) => Number.isFinite(point[side]))
        .map((point) => `${x(point.step).toFixed(1)},${y(point[side]).toFixed(1)}`)
        .join(" "),
    });
  const drawing = s(
    "svg",
    { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, width: SIZE.width, height: SIZE.height, role: "img", "aria-label": name },
    line("baseline"),
    line("candidate"),
  );
  return h(
    "figure",
    {},
    head,
    drawing,
    h(
      "p",
      { class: "hint sides" },
      h("span", { class: "key" }, h("i", { class: "base" }), w().baseline),
      h("span", { class: "key" }, h("i", { class: "cand" }), w().candidate),
    ),
  );
}
