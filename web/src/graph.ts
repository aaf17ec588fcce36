// The ops around one: who made what it was given, and who read what it made, two steps up and down.

import type { App } from "./app";
import { h, replace, s } from "./dom";
import { type Edge, Graphs } from "./links";
import { outline } from "./role";
import { error, shorten, visible } from "./text";
import { named, say, w } from "./words";

/** Ops of a row that are drawn; more are counted. */
const MOST = 5;
const BOX = { width: 150, height: 42, gap: 10, rise: 30 };

/** The ops around one. */
interface Around {
  /** Two rows above it, its own, and two below. */
  rows: number[][];
  edges: Edge[];
  /** It makes or takes values of others; else its neighbours in the order of execution stand in for them. */
  connected: boolean;
}

interface Placed {
  x: number;
  y: number;
}

export function graph(app: App, ready: Promise<void>): HTMLElement {
  const title = h("h2", { id: "graph-title" });
  const hint = h("span", { class: "hint" });
  const box = h("div", { class: "graphbox" });
  const section = h("section", { class: "card graph", "aria-labelledby": "graph-title" }, h("header", {}, title, hint), box);
  const graphs = new Graphs(app);
  let isReady = false;

  function paint(): void {
    replace(title, w().graph);
    const op = app.selected();
    if (op < 0) {
      replace(hint);
      replace(box, h("p", { class: "hint" }, w().pick));
      return;
    }
    if (!isReady) {
      replace(box, h("p", { class: "hint" }, w().waiting));
      return;
    }
    const found = around(app, graphs, op);
    replace(hint, found.connected ? w().graphHint : w().graphNone);
    const { drawing, placed } = draw(app, found, op);
    replace(box, drawing);
    const chosen = placed.get(op);
    if (chosen) box.scrollTo({ left: chosen.x - box.clientWidth / 2 + BOX.width / 2, top: chosen.y - box.clientHeight / 2 + BOX.height / 2 });
  }

  app.on((changed) => {
    if (changed.has("op") || changed.has("part") || changed.size > 5) paint();
  });
  void ready.then(() => {
    isReady = true;
    paint();
  });
  paint();
  return section;
}

function around(app: App, graphs: Graphs, op: number): Around {
  const part = app.part();
  const up = graphs.producers(part, op);
  const down = graphs.consumers(part, op);
  const connected = up.length > 0 || down.length > 0;
  const edges: Edge[] = [...up, ...down];
  const rows: number[][] = [[], [], [op], [], []];
  const seen = new Set([op]);
  const take = (row: number, found: number[]) => {
    for (const next of found) {
      if (seen.has(next)) continue;
      seen.add(next);
      rows[row]?.push(next);
    }
  };
  if (connected) {
    take(1, up.map(({ from }) => from));
    take(3, down.map(({ to }) => to));
    for (const near of (rows[1] ?? []).slice(0, MOST)) {
      const found = graphs.producers(part, near);
      take(0, found.map(({ from }) => from));
      edges.push(...found);
    }
    for (const near of (rows[3] ?? []).slice(0, MOST)) {
      const found = graphs.consumers(part, near);
      take(4, found.map(({ to }) => to));
      edges.push(...found);
    }
  } else {
    if (op > part.start) take(1, [op - 1]);
    if (op + 1 < part.start + part.count) take(3, [op + 1]);
    for (const [from, to] of [[op - 1, op], [op, op + 1]] as const) edges.push({ from, to, label: "" });
  }
  return { rows, edges, connected };
}

function draw(app: App, { rows, edges, connected }: Around, selected: number): { drawing: SVGElement; placed: Map<number, Placed> } {
  const used = rows.map((row) => row.sort((a, b) => a - b)).filter((row) => row.length);
  const widest = Math.max(...used.map((row) => Math.min(row.length, MOST)));
  const width = Math.max(widest * (BOX.width + BOX.gap) + 30, 320);
  const height = used.length * (BOX.height + BOX.rise) - BOX.rise + 12;
  const placed = new Map<number, Placed>();
  const drawing = s("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "group",
    "aria-label": w().graphName,
  });
  const lines = s("g", { class: "edges", "aria-hidden": "true" });
  drawing.append(lines);
  used.forEach((row, level) => {
    const shown = weightiest(app, row);
    const size = shown.length * (BOX.width + BOX.gap) - BOX.gap;
    const left = (width - size) / 2;
    const y = level * (BOX.height + BOX.rise) + 6;
    shown.forEach((op, index) => {
      const x = left + index * (BOX.width + BOX.gap);
      placed.set(op, { x, y });
      drawing.append(node(app, op, x, y, op === selected));
    });
    if (row.length > shown.length)
      drawing.append(
        s("text", { x: width - 4, y: y + BOX.height + 11, class: "more", "text-anchor": "end" }, say(w().more, { n: row.length - shown.length })),
      );
  });
  for (const edge of edges) {
    const [a, b] = [placed.get(edge.from), placed.get(edge.to)];
    if (a && b) lines.append(line(app, edge, a, b, connected));
  }
  return { drawing, placed };
}

/** The ops of a row that are drawn: those at fault, and those with the largest error, come first where not all have room. */
function weightiest(app: App, row: number[]): number[] {
  if (row.length <= MOST) return row;
  const weight = (op: number) => (app.fault[op] ? 1e9 : 0) + (app.error[op] || 0);
  return [...row].sort((a, b) => weight(b) - weight(a)).slice(0, MOST).sort((a, b) => a - b);
}

function line(app: App, { from, label }: Edge, a: Placed, b: Placed, connected: boolean): SVGElement {
  const [x1, y1, x2, y2] = [a.x + BOX.width / 2, a.y + BOX.height, b.x + BOX.width / 2, b.y];
  const bend = Math.max(10, (y2 - y1) / 2);
  const wrong = ["introduces", "amplifies", "propagates"].includes(app.role(from)) ? "wrong" : "";
  return s(
    "path",
    {
      d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`,
      class: `${wrong} ${connected ? "" : "order"}`,
    },
    s("title", {}, visible(label)),
  );
}

function node(app: App, op: number, x: number, y: number, isSelected: boolean): SVGElement {
  const role = app.role(op);
  const name = visible(app.model.name(op));
  const value = app.error[op] ?? NaN;
  const open = () => app.open(op);
  const words = `${name}, ${named("roleNames", role)}, ${Number.isNaN(value) ? "" : error(value)}`;
  return s(
    "g",
    {
      class: `node role-${role}${isSelected ? " selected" : ""}`,
      transform: `translate(${x} ${y})`,
      tabindex: 0,
      role: "button",
      "aria-label": words,
      "data-op": op,
      onclick: open,
      onkeydown: (event: KeyboardEvent) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        open();
      },
    },
    s("rect", { width: BOX.width, height: BOX.height, rx: 6 }),
    s("path", { d: outline(role, 4.5), transform: "translate(13 14)", class: "solid" }),
    s("text", { x: 24, y: 18, class: "nodename" }, shorten(brief(name), 19)),
    s(
      "text",
      { x: 12, y: 34, class: "nodeerror" },
      `${named("roleNames", role)} ${Number.isNaN(value) ? "" : error(value)}`,
    ),
    s("title", {}, words),
  );
}

/** A name without what all ops share: `gelu.1`, `layers.0.mlp`. */
function brief(name: string): string {
  const short = name.replace(/^(Functional|Tensor|Torch|Aten|NPU|VF|Distributed|Module)\./, "").replace(/\.forward$/, "");
  return short.replace(/\.backward$/, " ⟵").replace(/\.backward\.(\d+)$/, ".$1 ⟵").replace(/\.forward\.(\d+)$/, ".$1");
}
