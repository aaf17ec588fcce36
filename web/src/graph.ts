// The ops around one: who made what it was given, and who read what it made, two steps up and down.

import type { App } from "./app";
import type { Model, Part } from "./data";
import { h, replace, s } from "./dom";
import { outline } from "./role";
import { error, shorten, visible } from "./text";
import { named, say, w } from "./words";

/** Ops of a row that are drawn; more are counted. */
const MOST = 5;
const BOX = { width: 150, height: 42, gap: 10, rise: 30 };

interface Edge {
  from: number;
  to: number;
  label: string;
}

/** No slot. */
const NONE = -1;

/** Slots of a part that hold the same value, chained in the order of execution. */
class Links {
  /** First slot of the part among all. */
  private readonly base: number;
  /** By value: its first slot. */
  private readonly first: Int32Array;
  /** By slot: the next one with the same value, its op, its value (and one, 0 for none), the number of its path, and whether the op made it. */
  private readonly next: Int32Array;
  private readonly op: Uint32Array;
  private readonly value: Uint32Array;
  private readonly path: Uint32Array;
  private readonly made: Uint8Array;

  constructor(
    private readonly model: Model,
    part: Part,
  ) {
    this.base = model.slotStart[part.start] ?? 0;
    const count = (model.slotStart[part.start + part.count] ?? 0) - this.base;
    this.next = new Int32Array(count).fill(NONE);
    this.op = new Uint32Array(count);
    this.value = new Uint32Array(count);
    this.path = new Uint32Array(count);
    this.made = new Uint8Array(count);
    // Few paths are shared by very many slots.
    const makes = new Map<number, number>();
    let most = 0;
    model.identities(part, (op, slot, path, identity) => {
      const at = slot - this.base;
      let made = makes.get(path);
      if (made === undefined) makes.set(path, (made = /^(output|grad|value)/.test(model.texts[path] ?? "") ? 1 : 0));
      [this.op[at], this.value[at], this.path[at], this.made[at]] = [op, identity + 1, path, made];
      if (identity > most) most = identity;
    });
    this.first = new Int32Array(most + 2).fill(NONE);
    for (let at = count - 1; at >= 0; at--) {
      const value = this.value[at] ?? 0;
      if (!value) continue;
      this.next[at] = this.first[value] ?? NONE;
      this.first[value] = at;
    }
  }

  /** For each value that `op` was given, or made: the path it has there, and the others that made it, or were given it. */
  *neighbours(op: number, made: boolean): Generator<{ path: string; others: { op: number; path: string }[] }> {
    const [start, end] = [(this.model.slotStart[op] ?? 0) - this.base, (this.model.slotStart[op + 1] ?? 0) - this.base];
    for (let at = start; at < end; at++) {
      const value = this.value[at] ?? 0;
      if (!value || (this.made[at] === 1) !== made) continue;
      const others: { op: number; path: string }[] = [];
      for (let other = this.first[value] ?? NONE; other !== NONE; other = this.next[other] ?? NONE) {
        const where = this.op[other] ?? 0;
        // The inputs of an op were made before it, and its results are read after it.
        if ((this.made[other] === 1) === made || (made ? where <= op : where >= op)) continue;
        others.push({ op: where, path: this.text(other) });
      }
      yield { path: this.text(at), others };
    }
  }

  private text(at: number): string {
    return this.model.texts[this.path[at] ?? 0] ?? "";
  }
}

export class Graphs {
  private links = new Map<Part, Links>();

  constructor(private readonly app: App) {}

  /** Everything must be unpacked. */
  private of(part: Part): Links {
    let links = this.links.get(part);
    if (!links) this.links.set(part, (links = new Links(this.app.model, part)));
    return links;
  }

  private isModule(op: number): boolean {
    return this.app.model.name(op).startsWith("Module.");
  }

  /** Functions where there are any: calls of modules hold the same values as what runs inside them. */
  private plain<T extends { op: number }>(list: T[]): T[] {
    const functions = list.filter(({ op }) => !this.isModule(op));
    return functions.length ? functions : list;
  }

  producers(part: Part, op: number): Edge[] {
    const found = new Map<number, Edge>();
    for (const { path, others } of this.of(part).neighbours(op, false)) {
      // A call of a module comes after what ran inside it, and makes nothing of its own.
      const maker = this.plain(others).at(0);
      if (maker && !found.has(maker.op)) found.set(maker.op, { from: maker.op, to: op, label: path });
    }
    return Array.from(found.values());
  }

  consumers(part: Part, op: number): Edge[] {
    const found = new Map<number, Edge>();
    for (const { others } of this.of(part).neighbours(op, true))
      for (const reader of this.plain(others))
        if (!found.has(reader.op)) found.set(reader.op, { from: op, to: reader.op, label: reader.path });
    return Array.from(found.values());
  }
}

interface Placed {
  op: number;
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
    const part = app.part();
    const up = graphs.producers(part, op);
    const down = graphs.consumers(part, op);
    const connected = up.length > 0 || down.length > 0;
    replace(hint, connected ? w().graphHint : w().graphNone);
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
    draw(rows, edges, op, connected);
  }

  function draw(rows: number[][], edges: Edge[], selected: number, connected: boolean): void {
    const used = rows.map((row, index) => ({ row: row.sort((a, b) => a - b), index })).filter(({ row }) => row.length);
    const widest = Math.max(...used.map(({ row }) => Math.min(row.length, MOST)));
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
    used.forEach(({ row }, level) => {
      // Those at fault, and those with the largest error, come first where not all have room.
      const weight = (op: number) => (app.fault[op] ? 1e9 : 0) + (app.error[op] || 0);
      const shown = row.length > MOST ? [...row].sort((a, b) => weight(b) - weight(a)).slice(0, MOST).sort((a, b) => a - b) : row;
      const size = shown.length * (BOX.width + BOX.gap) - BOX.gap;
      const left = (width - size) / 2;
      const y = level * (BOX.height + BOX.rise) + 6;
      shown.forEach((op, index) => {
        const x = left + index * (BOX.width + BOX.gap);
        placed.set(op, { op, x, y });
        drawing.append(node(op, x, y, op === selected));
      });
      if (row.length > shown.length)
        drawing.append(
          s("text", { x: width - 4, y: y + BOX.height + 11, class: "more", "text-anchor": "end" }, say(w().more, { n: row.length - shown.length })),
        );
    });
    for (const { from, to, label } of edges) {
      const [a, b] = [placed.get(from), placed.get(to)];
      if (!a || !b) continue;
      const [x1, y1, x2, y2] = [a.x + BOX.width / 2, a.y + BOX.height, b.x + BOX.width / 2, b.y];
      const bend = Math.max(10, (y2 - y1) / 2);
      lines.append(
        s(
          "path",
          {
            d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`,
            class: `${["introduces", "amplifies", "propagates"].includes(app.role(from)) ? "wrong" : ""} ${connected ? "" : "order"}`,
          },
          s("title", {}, visible(label)),
        ),
      );
    }
    replace(box, drawing);
    const chosen = placed.get(selected);
    if (chosen) box.scrollTo({ left: chosen.x - box.clientWidth / 2 + BOX.width / 2, top: chosen.y - box.clientHeight / 2 + BOX.height / 2 });
  }

  function node(op: number, x: number, y: number, isSelected: boolean): SVGElement {
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

/** A name without what all ops share: `gelu.1`, `layers.0.mlp`. */
function brief(name: string): string {
  const short = name.replace(/^(Functional|Tensor|Torch|Aten|NPU|VF|Distributed|Module)\./, "").replace(/\.forward$/, "");
  return short.replace(/\.backward$/, " ⟵").replace(/\.backward\.(\d+)$/, ".$1 ⟵").replace(/\.forward\.(\d+)$/, ".$1");
}
