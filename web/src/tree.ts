// The tree of modules of a step and rank, coloured by how far their ops are beyond what is expected.

import type { App } from "./app";
import { h, replace } from "./dom";
import type { Pane } from "./pane";
import { mark } from "./role";
import type { View } from "./state";
import { count, error, shorten, visible } from "./text";
import { say, w } from "./words";

/** Ops and modules that are shown below one at first, and each time more are asked for. */
const SHOWN = 200;

interface Branch {
  name: string;
  path: string;
  children: Map<string, Branch>;
  ops: number[];
  /** Ops in it and below. */
  count: number;
  /** Ops at fault in it and below. */
  faults: number;
  /** Largest excess in it and below, in bits. */
  excess: number;
}

export class Tree implements Pane {
  readonly element = h("div", { class: "tree", role: "tree" });
  private readonly open = new Set<string>();
  /** By path: how many of its children are shown, where that is more than at first. */
  private readonly more = new Map<string, number>();
  private root = branch("", "");
  private shownPart = "";

  constructor(private readonly app: App) {
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  shown(): void {
    if (this.shownPart !== this.app.view.part) {
      this.shownPart = this.app.view.part;
      this.root = build(this.app);
    }
    this.reveal();
    this.paint();
    this.element.querySelector("[aria-selected=true].leaf")?.scrollIntoView({ block: "nearest" });
  }

  changed(changed: Set<keyof View>): void {
    if (changed.size > 5) this.shownPart = "";
    if (this.app.view.tab === "modules" && (changed.has("part") || changed.has("op"))) this.shown();
  }

  /** Opens the way to the op that is open. */
  private reveal(): void {
    const selected = this.app.selected();
    if (selected < 0) return;
    const path = this.app.model.text("module", selected);
    const names = path.split(".");
    names.forEach((_, index) => this.open.add(names.slice(0, index + 1).join(".")));
  }

  private paint(): void {
    const focused = (document.activeElement as HTMLElement | null)?.dataset.path;
    replace(this.element);
    this.element.setAttribute("aria-label", w().modules);
    if (!this.root.count) this.element.append(h("p", { class: "hint" }, w().noModules));
    this.children(this.root, 0);
    const again = focused === undefined ? null : this.element.querySelector<HTMLElement>(`[data-path="${CSS.escape(focused)}"]`);
    again?.focus();
    const first = this.element.querySelector<HTMLElement>("[role=treeitem]");
    if (first && !this.element.querySelector("[tabindex='0']")) first.tabIndex = 0;
  }

  private children(node: Branch, depth: number): void {
    const limit = this.more.get(node.path) ?? SHOWN;
    let left = limit;
    for (const child of node.children.values()) {
      if (left-- <= 0) break;
      this.row(child, depth);
      if (this.open.has(child.path)) this.children(child, depth + 1);
    }
    for (const op of node.ops) {
      if (left-- <= 0) break;
      this.leaf(op, depth);
    }
    const rest = node.children.size + node.ops.length - limit;
    if (rest > 0) {
      const button = h(
        "button",
        { type: "button", class: "morerow", onclick: () => (this.more.set(node.path, limit + SHOWN), this.paint()) },
        say(w().showMore, { n: count(Math.min(rest, SHOWN)) }),
      );
      button.style.paddingLeft = `${depth * 14 + 24}px`;
      this.element.append(button);
    }
  }

  private row(node: Branch, depth: number): void {
    const isOpen = this.open.has(node.path);
    const excess = Math.max(0, Math.min(12, node.excess));
    const heat = h("i", { class: "heat", "aria-hidden": "true" });
    heat.style.setProperty("--share", String(Number.isFinite(node.excess) ? excess / 12 : 0));
    const over = Number.isFinite(node.excess) && node.excess > 0 ? `${(2 ** node.excess).toPrecision(2)}× ${w().overFloor}` : "";
    const item = h(
      "div",
      {
        class: node.faults ? "treerow faulty" : "treerow",
        role: "treeitem",
        tabindex: -1,
        "aria-expanded": String(isOpen),
        "aria-level": depth + 1,
        "aria-selected": String(this.app.view.module === node.path && node.path !== ""),
        "data-path": node.path,
        title: over,
        onclick: () => this.toggle(node.path),
      },
      h("span", { class: "twist", "aria-hidden": "true" }, isOpen ? "▾" : "▸"),
      heat,
      h("span", { class: "opname" }, shorten(visible(node.name), 60)),
      node.faults ? h("span", { class: "badge" }, count(node.faults)) : null,
      h("span", { class: "num" }, count(node.count)),
    );
    item.style.paddingLeft = `${depth * 14 + 6}px`;
    this.element.append(item);
  }

  private leaf(op: number, depth: number): void {
    const value = this.app.error[op] ?? NaN;
    const item = h(
      "div",
      {
        class: "treerow leaf",
        role: "treeitem",
        tabindex: -1,
        "aria-level": depth + 1,
        "aria-selected": String(op === this.app.selected()),
        "data-path": `op ${op}`,
        title: visible(this.app.model.name(op)).slice(0, 500),
        onclick: () => this.app.open(op),
      },
      mark(this.app.role(op)),
      h("span", { class: "opname" }, shorten(visible(this.app.model.name(op)), 60)),
      h("span", { class: "num" }, Number.isNaN(value) ? "" : error(value)),
    );
    item.style.paddingLeft = `${depth * 14 + 20}px`;
    this.element.append(item);
  }

  private toggle(path: string): void {
    if (this.open.has(path)) this.open.delete(path);
    else this.open.add(path);
    this.app.set({ module: this.open.has(path) ? path : "" });
    this.paint();
  }

  private key(event: KeyboardEvent): void {
    const item = document.activeElement as HTMLElement | null;
    if (!item || item.getAttribute("role") !== "treeitem") return;
    const all = Array.from(this.element.querySelectorAll<HTMLElement>("[role=treeitem]"));
    const index = all.indexOf(item);
    const path = item.dataset.path ?? "";
    const expanded = item.getAttribute("aria-expanded");
    const go = (next: HTMLElement | undefined) => {
      if (!next) return;
      item.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    };
    if (event.key === "ArrowDown") go(all[index + 1]);
    else if (event.key === "ArrowUp") go(all[index - 1]);
    else if (event.key === "ArrowRight" && expanded === "false") this.toggle(path);
    else if (event.key === "ArrowRight") go(all[index + 1]);
    else if (event.key === "ArrowLeft" && expanded === "true") this.toggle(path);
    else if (event.key === "ArrowLeft") {
      const level = Number(item.getAttribute("aria-level"));
      go(all.slice(0, index).reverse().find((other) => Number(other.getAttribute("aria-level")) < level));
    } else if (event.key === "Enter" || event.key === " ") item.click();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

function branch(name: string, path: string): Branch {
  return { name, path, children: new Map(), ops: [], count: 0, faults: 0, excess: -Infinity };
}

/** The tree of the part that is shown. */
function build(app: App): Branch {
  const { model } = app;
  const part = app.part();
  const root = branch("", "");
  const homes = new Map<number, Branch[]>();
  const modules = model.column("module");
  for (let op = part.start; op < part.start + part.count; op++) {
    const number = modules[op] ?? 0;
    let home = homes.get(number);
    if (!home) homes.set(number, (home = way(root, model.texts[number] ?? "")));
    const excess = app.excess[op] ?? NaN;
    home.at(-1)?.ops.push(op);
    for (const node of home) {
      node.count++;
      node.faults += app.fault[op] ?? 0;
      if (excess > node.excess) node.excess = excess;
    }
  }
  return root;
}

/** The branches on the way to a module, the root first; made where they are missing. */
function way(root: Branch, path: string): Branch[] {
  const found = [root];
  let at = root;
  for (const name of path ? path.split(".") : [w().outside]) {
    let next = at.children.get(name);
    if (!next) {
      next = branch(name, path ? (at.path ? `${at.path}.${name}` : name) : "");
      at.children.set(name, next);
    }
    found.push((at = next));
  }
  return found;
}
