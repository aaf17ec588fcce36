// The list on the left: ops at fault, the tree of modules, and all ops with search and filters.

import type { App } from "./app";
import { h, replace } from "./dom";
import { Ops } from "./ops";
import type { Pane } from "./pane";
import { mark } from "./role";
import { count, error, ranges, shorten, visible } from "./text";
import { Tree } from "./tree";
import { named, say, w } from "./words";

/** Faults that are listed; the ops behind them are all in the list of ops. */
const MOST = 500;
const TABS = ["faults", "modules", "ops"] as const;

export function list(app: App): HTMLElement {
  const tabs = h("div", { class: "tabs", role: "tablist" });
  const body = h("div", { class: "listbody" });
  const panes = { faults: faults(app), modules: new Tree(app), ops: new Ops(app) };
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
