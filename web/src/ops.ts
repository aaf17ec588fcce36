// All ops, as far as they match: only the rows that are in view exist.

import type { App } from "./app";
import { h, replace } from "./dom";
import { Filters } from "./filters";
import type { Pane } from "./pane";
import { mark } from "./role";
import type { View } from "./state";
import { count, error, shorten, visible } from "./text";
import { say, w } from "./words";

const ROW = 26;
/** Rows that exist above and below those in view. */
const AROUND = 12;

export class Ops implements Pane {
  private readonly filters: Filters;
  private readonly status = h("p", { class: "hint", role: "status" });
  private readonly space = h("div", { class: "space" });
  private readonly rows = h("div", { class: "rows" });
  private readonly scroller = h("div", { class: "scroller", tabindex: 0, role: "listbox" }, this.space, this.rows);
  readonly element: HTMLElement;
  private found: Uint32Array = new Uint32Array(0);
  /** Rows that exist, by their place in the list: those that stay in view are left as they are. */
  private readonly alive = new Map<number, HTMLElement>();

  constructor(private readonly app: App) {
    this.filters = new Filters(app);
    this.element = h("div", { class: "ops" }, this.filters.element, this.status, this.scroller);
    this.scroller.addEventListener("scroll", () => this.rowsInView(), { passive: true });
    new ResizeObserver(() => this.rowsInView()).observe(this.scroller);
    this.element.addEventListener("move", (event) => {
      const index = this.found.indexOf(app.selected()) + (event as CustomEvent<number>).detail;
      const op = this.found[Math.min(this.found.length - 1, Math.max(0, index))];
      if (op !== undefined) app.open(op);
    });
  }

  shown(): void {
    this.scroller.setAttribute("aria-label", w().allOps);
    this.filters.paint();
    const { found, among } = matching(this.app);
    this.found = found;
    this.space.style.height = `${found.length * ROW}px`;
    replace(this.status, found.length ? say(w().found, { n: count(found.length), m: count(among) }) : w().none);
    this.again();
    this.bringIntoView();
  }

  changed(changed: Set<keyof View>): void {
    const { view } = this.app;
    if (view.tab !== "ops") return;
    if (changed.has("query") || changed.has("filters") || changed.size > 5) this.shown();
    else if (changed.has("part") && !view.filters.scope?.includes("all")) this.shown();
    else if (changed.has("op") || changed.has("part")) {
      this.bringIntoView();
      this.again();
    }
  }

  private rowsInView(): void {
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - AROUND);
    const last = Math.min(this.found.length, first + Math.ceil(this.scroller.clientHeight / ROW) + 2 * AROUND);
    for (const [index, row] of this.alive) {
      if (index >= first && index < last) continue;
      row.remove();
      this.alive.delete(index);
    }
    const selected = this.app.selected();
    const many = this.app.model.parts.length > 1 && this.app.view.filters.scope?.includes("all");
    const added = [];
    for (let index = first; index < last; index++) {
      if (this.alive.has(index)) continue;
      const row = this.rowOf(this.found[index] ?? 0, selected, many === true);
      row.style.top = `${index * ROW}px`;
      row.setAttribute("aria-posinset", String(index + 1));
      row.setAttribute("aria-setsize", String(this.found.length));
      this.alive.set(index, row);
      added.push(row);
    }
    this.rows.append(...added);
  }

  /** Draws all rows in view again. */
  private again(): void {
    replace(this.rows);
    this.alive.clear();
    this.rowsInView();
  }

  private rowOf(op: number, selected: number, many: boolean): HTMLElement {
    const part = many ? this.app.model.part(op) : undefined;
    const value = this.app.error[op] ?? NaN;
    const name = visible(this.app.model.name(op));
    return h(
      "button",
      {
        type: "button",
        class: "oprow",
        role: "option",
        tabindex: -1,
        "aria-selected": String(op === selected),
        title: name.slice(0, 500),
        onclick: () => this.app.open(op),
      },
      mark(this.app.role(op)),
      h("span", { class: "opname" }, part ? `${part.step}.${part.rank} ` : "", shorten(name, 80)),
      h("span", { class: "num" }, Number.isNaN(value) ? "" : error(value)),
    );
  }

  private bringIntoView(): void {
    const index = this.found.indexOf(this.app.selected());
    if (index < 0) return;
    const [top, bottom] = [index * ROW, (index + 1) * ROW];
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (bottom > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = bottom - this.scroller.clientHeight;
  }
}

/** The ops that query and filters let through, and how many there are without them. */
function matching(app: App): { found: Uint32Array; among: number } {
  const { model, view } = app;
  const part = app.part();
  const everywhere = view.filters.scope?.includes("all");
  const [start, end] = everywhere ? [0, model.count] : [part.start, part.start + part.count];
  const words = view.query.toLowerCase().split(/\s+/).filter(Boolean);
  // Texts are matched once, however many ops share them.
  const holds = words.map((word) => Uint8Array.from(model.lower, (text) => (text.includes(word) ? 1 : 0)));
  const columns = ["op", "module", "source"].map((name) => model.column(name));
  const wanted = (["role", "cause"] as const).map((name) => {
    const chosen = view.filters[name];
    if (!chosen?.length) return null;
    const numbers = new Set(chosen.map((word) => model.texts.indexOf(word)));
    return { column: model.column(name), numbers };
  });
  const { kind, phase } = view.filters;
  const out: number[] = [];
  for (let op = start; op < end; op++) {
    if (!holds.every((hold) => columns.some((column) => hold[column[op] ?? -1] === 1))) continue;
    if (!wanted.every((filter) => !filter || filter.numbers.has(filter.column[op] ?? -1))) continue;
    if (kind?.length && !kind.includes(app.kind(op))) continue;
    if (phase?.length && !phase.includes(app.phase(op))) continue;
    out.push(op);
  }
  return { found: Uint32Array.from(out), among: end - start };
}
