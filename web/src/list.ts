// The list on the left: ops at fault, the tree of modules, and all ops with search and filters.

import type { App } from "./app";
import { h, replace } from "./dom";
import { mark, ROLES } from "./role";
import { tree } from "./tree";
import { count, error, ranges, shorten, visible } from "./text";
import type { View } from "./state";
import { named, say, w } from "./words";

const ROW = 26;
/** Rows that exist above and below those in view. */
const AROUND = 12;
/** Faults that are listed; the ops behind them are all in the list of ops. */
const MOST = 500;
const TABS = ["faults", "modules", "ops"] as const;

export function list(app: App): HTMLElement {
  const tabs = h("div", { class: "tabs", role: "tablist" });
  const body = h("div", { class: "listbody" });
  const panes = { faults: faults(app), modules: tree(app), ops: ops(app) };
  const section = h("section", { class: "card list" }, tabs, body);

  function paint(): void {
    const words = { faults: w().faults, modules: w().modules, ops: w().allOps };
    replace(
      tabs,
      ...TABS.map((tab) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            id: `tab-${tab}`,
            "aria-selected": String(app.view.tab === tab),
            "aria-controls": "listpane",
            onclick: () => app.set({ tab }),
          },
          words[tab],
          tab === "faults" ? h("span", { class: "badge" }, count(app.model.report.faults.length)) : null,
        ),
      ),
    );
    body.id = "listpane";
    body.setAttribute("role", "tabpanel");
    body.setAttribute("aria-labelledby", `tab-${app.view.tab}`);
    replace(body, panes[app.view.tab].element);
    panes[app.view.tab].shown();
  }
  app.on((changed) => {
    for (const pane of Object.values(panes)) pane.changed(changed);
    if (changed.has("tab")) paint();
  });
  paint();
  return section;
}

/** A pane of the list. */
export interface Pane {
  element: HTMLElement;
  /** It has come into view. */
  shown(): void;
  changed(changed: Set<keyof View>): void;
}

/** Each fault once, with the steps and ranks that show it. */
function faults(app: App): Pane {
  const element = h("ol", { class: "faults" });
  function paint(): void {
    const { report } = app.model;
    replace(element);
    if (!report.faults.length) element.append(h("p", { class: "hint" }, w().noFaults));
    for (const fault of report.faults.slice(0, MOST)) {
      const finding = report.culprits[fault.culprit];
      if (!finding) continue;
      const op = app.model.find(finding.step, finding.rank, finding.order);
      const rel = finding.metrics.rel_l2;
      element.append(
        h(
          "li",
          {},
          h(
            "button",
            {
              type: "button",
              "aria-current": String(op >= 0 && op === app.selected()),
              onclick: () => op >= 0 && app.open(op),
            },
            h("span", { class: "row1" }, mark(finding.role), h("b", {}, shorten(visible(finding.op), 60))),
            h(
              "span",
              { class: "row2" },
              h("span", { class: "tag" }, named("causeNames", finding.cause)),
              typeof rel === "number" ? h("span", {}, `rel_l2 ${error(rel)}`) : null,
              h("span", {}, `${w().step} ${ranges(fault.steps)} · ${w().rank} ${ranges(fault.ranks)}`),
              fault.followers ? h("span", {}, say(w().follow, { n: count(fault.followers) })) : null,
            ),
          ),
        ),
      );
    }
    if (report.faults.length > MOST)
      element.append(h("p", { class: "hint" }, say(w().more, { n: count(report.faults.length - MOST) })));
  }
  return {
    element,
    shown: paint,
    changed: (changed) => {
      if (app.view.tab === "faults" && (changed.has("op") || changed.has("part"))) paint();
    },
  };
}

/** All ops, as far as they match: only the rows that are in view exist. */
function ops(app: App): Pane {
  const filters = h("div", { class: "filters" });
  const status = h("p", { class: "hint", role: "status" });
  const space = h("div", { class: "space" });
  const rows = h("div", { class: "rows" });
  const scroller = h("div", { class: "scroller", tabindex: 0, role: "listbox" }, space, rows);
  const element = h("div", { class: "ops" }, filters, status, scroller);
  let found: Uint32Array = new Uint32Array(0);

  function match(): void {
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
    found = Uint32Array.from(out);
    space.style.height = `${found.length * ROW}px`;
    replace(status, found.length ? say(w().found, { n: count(found.length), m: count(end - start) }) : w().none);
    again();
  }

  /** Rows that exist, by their place in the list: those that stay in view are left as they are. */
  const alive = new Map<number, HTMLElement>();

  function rowsInView(): void {
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW) - AROUND);
    const last = Math.min(found.length, first + Math.ceil(scroller.clientHeight / ROW) + 2 * AROUND);
    for (const [index, row] of alive) {
      if (index >= first && index < last) continue;
      row.remove();
      alive.delete(index);
    }
    const selected = app.selected();
    const many = app.model.parts.length > 1 && app.view.filters.scope?.includes("all");
    const added = [];
    for (let index = first; index < last; index++) {
      if (alive.has(index)) continue;
      const row = rowOf(found[index] ?? 0, selected, many === true);
      row.style.top = `${index * ROW}px`;
      row.setAttribute("aria-posinset", String(index + 1));
      row.setAttribute("aria-setsize", String(found.length));
      alive.set(index, row);
      added.push(row);
    }
    rows.append(...added);
  }

  /** Draws all rows in view again. */
  function again(): void {
    replace(rows);
    alive.clear();
    rowsInView();
  }

  function rowOf(op: number, selected: number, many: boolean): HTMLElement {
    const part = many ? app.model.part(op) : undefined;
    const value = app.error[op] ?? NaN;
    const name = visible(app.model.name(op));
    return h(
      "button",
      {
        type: "button",
        class: "oprow",
        role: "option",
        tabindex: -1,
        "aria-selected": String(op === selected),
        title: name.slice(0, 500),
        onclick: () => app.open(op),
      },
      mark(app.role(op)),
      h("span", { class: "opname" }, part ? `${part.step}.${part.rank} ` : "", shorten(name, 80)),
      h("span", { class: "num" }, Number.isNaN(value) ? "" : error(value)),
    );
  }

  /** Causes that there are, and the kinds of most ops: they stay as they are. */
  let choices: { causes: string[]; kinds: string[] } | null = null;

  function chosen(): { causes: string[]; kinds: string[] } {
    if (choices) return choices;
    const { model } = app;
    const causes = Array.from(new Set(model.column("cause")), (number) => model.texts[number] ?? "").filter(Boolean);
    const kinds = new Map<string, number>();
    for (let op = 0; op < model.count; op++) {
      const kind = app.kind(op);
      kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    }
    const common = Array.from(kinds).sort((a, b) => b[1] - a[1]).slice(0, 8);
    choices = { causes, kinds: common.map(([kind]) => kind) };
    return choices;
  }

  function paintFilters(): void {
    const { model, view } = app;
    const { causes, kinds } = chosen();
    const groups: [keyof View["filters"], string, string[], (word: string) => string][] = [
      ["role", w().role, ROLES.filter((role) => (model.report.counts.roles[role] ?? 0) > 0), (word) => named("roleNames", word)],
      ["cause", w().cause, causes, (word) => named("causeNames", word)],
      ["kind", w().kind, kinds, (word) => shorten(visible(word), 24)],
      ["phase", w().phase, ["forward", "backward", "gradient", "optimizer"], (word) => (w() as unknown as Record<string, string>)[word] ?? word],
    ];
    replace(filters);
    for (const [name, label, words, say] of groups) {
      if (words.length < 2) continue;
      const select = h("select", { "aria-label": label, onchange: () => change(name, select.value) });
      select.append(h("option", { value: "" }, label));
      for (const word of words)
        select.append(h("option", { value: word, selected: view.filters[name]?.includes(word) }, say(word)));
      if (view.filters[name]?.length) select.classList.add("on");
      filters.append(select);
    }
    if (model.parts.length > 1) {
      const box = h("input", {
        type: "checkbox",
        checked: view.filters.scope?.includes("all"),
        onchange: () => change("scope", box.checked ? "all" : ""),
      });
      filters.append(h("label", {}, box, w().anyStep));
    }
    if (view.query || Object.values(view.filters).some((words) => words.length))
      filters.append(h("button", { type: "button", onclick: () => app.set({ query: "", filters: {} }) }, w().clear));
  }

  function change(name: string, word: string): void {
    const filters = { ...app.view.filters };
    if (word) filters[name] = [word];
    else delete filters[name];
    app.set({ filters });
  }

  function show(): void {
    scroller.setAttribute("aria-label", w().allOps);
    paintFilters();
    match();
    bringIntoView();
  }

  function bringIntoView(): void {
    const index = found.indexOf(app.selected());
    if (index < 0) return;
    const [top, bottom] = [index * ROW, (index + 1) * ROW];
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (bottom > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = bottom - scroller.clientHeight;
  }

  scroller.addEventListener("scroll", rowsInView, { passive: true });
  new ResizeObserver(rowsInView).observe(scroller);
  element.addEventListener("move", (event) => {
    const index = found.indexOf(app.selected()) + (event as CustomEvent<number>).detail;
    const op = found[Math.min(found.length - 1, Math.max(0, index))];
    if (op !== undefined) app.open(op);
  });
  return {
    element,
    shown: show,
    changed: (changed) => {
      if (app.view.tab !== "ops") return;
      if (changed.has("query") || changed.has("filters") || changed.size > 5) show();
      else if (changed.has("part") && !app.view.filters.scope?.includes("all")) show();
      else if (changed.has("op") || changed.has("part")) {
        bringIntoView();
        again();
      }
    },
  };
}
