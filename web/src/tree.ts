// The tree of modules of a step and rank, coloured by how far their ops are beyond what is expected.

import type { App } from "./app";
import { h, replace } from "./dom";
import type { Pane } from "./list";
import { mark } from "./role";
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

export function tree(app: App): Pane {
  const element = h("div", { class: "tree", role: "tree" });
  const open = new Set<string>();
  const more = new Map<string, number>();
  let root = branch("", "");
  let shownPart = "";

  function branch(name: string, path: string): Branch {
    return { name, path, children: new Map(), ops: [], count: 0, faults: 0, excess: -Infinity };
  }

  function build(): void {
    const { model } = app;
    const part = app.part();
    root = branch("", "");
    const homes = new Map<number, Branch[]>();
    const modules = model.column("module");
    for (let op = part.start; op < part.start + part.count; op++) {
      const number = modules[op] ?? 0;
      let home = homes.get(number);
      if (!home) {
        home = [root];
        const path = model.texts[number] ?? "";
        let at = root;
        for (const name of path ? path.split(".") : [w().outside]) {
          let next = at.children.get(name);
          if (!next) {
            next = branch(name, path ? (at.path ? `${at.path}.${name}` : name) : "");
            at.children.set(name, next);
          }
          home.push((at = next));
        }
        homes.set(number, home);
      }
      const excess = app.excess[op] ?? NaN;
      home.at(-1)?.ops.push(op);
      for (const node of home) {
        node.count++;
        node.faults += app.fault[op] ?? 0;
        if (excess > node.excess) node.excess = excess;
      }
    }
  }

  /** Opens the way to the op that is open. */
  function reveal(): void {
    const selected = app.selected();
    if (selected < 0) return;
    const path = app.model.text("module", selected);
    const names = path.split(".");
    names.forEach((_, index) => open.add(names.slice(0, index + 1).join(".")));
  }

  function paint(): void {
    const focused = (document.activeElement as HTMLElement | null)?.dataset.path;
    replace(element);
    element.setAttribute("aria-label", w().modules);
    if (!root.count) element.append(h("p", { class: "hint" }, w().noModules));
    children(root, 0);
    const again = focused === undefined ? null : element.querySelector<HTMLElement>(`[data-path="${CSS.escape(focused)}"]`);
    again?.focus();
    const first = element.querySelector<HTMLElement>("[role=treeitem]");
    if (first && !element.querySelector("[tabindex='0']")) first.tabIndex = 0;
  }

  function children(node: Branch, depth: number): void {
    const limit = more.get(node.path) ?? SHOWN;
    let left = limit;
    for (const child of node.children.values()) {
      if (left-- <= 0) break;
      row(child, depth);
      if (open.has(child.path)) children(child, depth + 1);
    }
    for (const op of node.ops) {
      if (left-- <= 0) break;
      leaf(op, depth);
    }
    const rest = node.children.size + node.ops.length - limit;
    if (rest > 0) {
      const button = h(
        "button",
        { type: "button", class: "morerow", onclick: () => (more.set(node.path, limit + SHOWN), paint()) },
        say(w().showMore, { n: count(Math.min(rest, SHOWN)) }),
      );
      button.style.paddingLeft = `${depth * 14 + 24}px`;
      element.append(button);
    }
  }

  function row(node: Branch, depth: number): void {
    const isOpen = open.has(node.path);
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
        "aria-selected": String(app.view.module === node.path && node.path !== ""),
        "data-path": node.path,
        title: over,
        onclick: () => toggle(node.path),
      },
      h("span", { class: "twist", "aria-hidden": "true" }, isOpen ? "▾" : "▸"),
      heat,
      h("span", { class: "opname" }, shorten(visible(node.name), 60)),
      node.faults ? h("span", { class: "badge" }, count(node.faults)) : null,
      h("span", { class: "num" }, count(node.count)),
    );
    item.style.paddingLeft = `${depth * 14 + 6}px`;
    element.append(item);
  }

  function leaf(op: number, depth: number): void {
    const value = app.error[op] ?? NaN;
    const item = h(
      "div",
      {
        class: "treerow leaf",
        role: "treeitem",
        tabindex: -1,
        "aria-level": depth + 1,
        "aria-selected": String(op === app.selected()),
        "data-path": `op ${op}`,
        title: visible(app.model.name(op)).slice(0, 500),
        onclick: () => app.open(op),
      },
      mark(app.role(op)),
      h("span", { class: "opname" }, shorten(visible(app.model.name(op)), 60)),
      h("span", { class: "num" }, Number.isNaN(value) ? "" : error(value)),
    );
    item.style.paddingLeft = `${depth * 14 + 20}px`;
    element.append(item);
  }

  function toggle(path: string): void {
    if (open.has(path)) open.delete(path);
    else open.add(path);
    app.set({ module: open.has(path) ? path : "" });
    paint();
  }

  element.addEventListener("keydown", (event) => {
    const item = document.activeElement as HTMLElement | null;
    if (!item || item.getAttribute("role") !== "treeitem") return;
    const all = Array.from(element.querySelectorAll<HTMLElement>("[role=treeitem]"));
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
    else if (event.key === "ArrowRight" && expanded === "false") toggle(path);
    else if (event.key === "ArrowRight") go(all[index + 1]);
    else if (event.key === "ArrowLeft" && expanded === "true") toggle(path);
    else if (event.key === "ArrowLeft") {
      const level = Number(item.getAttribute("aria-level"));
      go(all.slice(0, index).reverse().find((other) => Number(other.getAttribute("aria-level")) < level));
    } else if (event.key === "Enter" || event.key === " ") item.click();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  function show(): void {
    if (shownPart !== app.view.part) {
      shownPart = app.view.part;
      build();
    }
    reveal();
    paint();
    element.querySelector("[aria-selected=true].leaf")?.scrollIntoView({ block: "nearest" });
  }

  return {
    element,
    shown: show,
    changed: (changed) => {
      if (changed.size > 5) shownPart = "";
      if (app.view.tab === "modules" && (changed.has("part") || changed.has("op"))) show();
    },
  };
}
