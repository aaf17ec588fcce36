// The view of a comparison.

import { App } from "./app";
import { curve } from "./curve";
import { Model, type Head } from "./data";
import { detail } from "./detail";
import { h, replace } from "./dom";
import { frame } from "./frame";
import { graph } from "./graph";
import { headline } from "./headline";
import { list } from "./list";
import type { Portrait, Replay, Report } from "./report";
import { training } from "./training";
import { w } from "./words";

export async function compare(root: HTMLElement, head: Head): Promise<void> {
  const { report, portraits, replays } = head.data as { report: Report; portraits: Portrait[]; replays: Replay[] };
  const model = new Model(head, report, portraits, replays);
  await model.load();
  const app = new App(model);
  // The first screen comes before the values of all ops.
  const ready = new Promise<void>((resolve) => setTimeout(() => resolve(model.unpackAll()), 60));
  const find = h("input", { type: "search", class: "find", autocomplete: "off", spellcheck: "false" });
  const words = () => {
    find.placeholder = `${w().search}  ( / )`;
    find.setAttribute("aria-label", w().searchName);
  };
  find.addEventListener("input", () => app.set({ query: find.value, tab: "ops" }));
  const around = frame(report.verdict, [report.baseline.path, report.candidate.path], find, () => app.repaint());
  app.on((changed) => {
    if (changed.has("query") && find.value !== app.view.query) find.value = app.view.query;
    if (changed.size > 5) words();
  });
  find.value = app.view.query;
  words();
  const plot = curve(app);
  const side = list(app);
  const progress = training(app, ready);
  const several = new Set(model.parts.map((part) => part.step)).size > 1;
  replace(
    root,
    around.bar,
    h(
      "main",
      {},
      headline(app),
      plot,
      // Curves over steps are part of the picture; the numbers of one step can wait.
      several ? progress : null,
      h("div", { class: "panes" }, side, graph(app, ready), detail(app)),
      several ? null : progress,
    ),
    around.help,
  );
  keys(app, find, plot, side, around);
  document.documentElement.dataset.ready = "first";
  await ready;
  document.documentElement.dataset.ready = "all";
}

function keys(app: App, find: HTMLInputElement, plot: HTMLElement, side: HTMLElement, around: ReturnType<typeof frame>): void {
  const zoom = (factor: number) => plot.dispatchEvent(new CustomEvent("zoom", { detail: factor }));
  const actions: Record<string, () => void> = {
    "/": () => (find.focus(), find.select()),
    ArrowDown: () => move(app, side, 1),
    ArrowUp: () => move(app, side, -1),
    n: () => openFault(app, 1),
    N: () => openFault(app, -1),
    f: () => openFirst(app),
    "+": () => zoom(0.5),
    "=": () => zoom(0.5),
    "-": () => zoom(2),
    "0": () => zoom(0),
    "]": () => turn(app, 1),
    "[": () => turn(app, -1),
    t: around.theme,
    l: around.speak,
    "?": () => around.help.showModal(),
    Escape: () => document.querySelectorAll("details.chip[open]").forEach((chip) => chip.removeAttribute("open")),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    if (target === find || target instanceof HTMLSelectElement) {
      typed(app, event, target, find, side);
      return;
    }
    const action = actions[event.key];
    if (!action || around.help.open) return;
    if (event.key.startsWith("Arrow") && target.closest(".detail, .graphbox") && target.tagName !== "BODY") return;
    action();
    event.preventDefault();
  });
}

/** A key in the search or in a filter. */
function typed(app: App, event: KeyboardEvent, target: HTMLElement, find: HTMLInputElement, side: HTMLElement): void {
  if (event.key === "Escape") target.blur();
  else if (target === find && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    move(app, side, event.key === "ArrowDown" ? 1 : -1);
    event.preventDefault();
  } else if (target === find && event.key === "Enter") {
    if (!side.querySelector(".oprow[aria-selected=true]")) move(app, side, 1);
    find.blur();
  }
}

/** Opens the next op at fault, or the one before. */
function openFault(app: App, direction: 1 | -1): void {
  const { faults } = app;
  if (!faults.length) return;
  const at = app.selected();
  const next =
    at < 0
      ? faults[0]
      : direction > 0
        ? (faults.find((op) => app.model.before(at, op)) ?? faults[0])
        : (faults.findLast((op) => app.model.before(op, at)) ?? faults.at(-1));
  if (next !== undefined) app.open(next);
}

function openFirst(app: App): void {
  const found = app.model.report.first_divergence;
  const op = found ? app.model.find(found.step, found.rank, found.order) : -1;
  if (op >= 0) app.open(op);
}

/** Opens the next op of the list of ops where it is shown, else of the part. */
function move(app: App, side: HTMLElement, direction: 1 | -1): void {
  const shown = side.querySelector(".ops");
  if (shown) {
    shown.dispatchEvent(new CustomEvent("move", { detail: direction }));
    return;
  }
  const part = app.part();
  const at = app.selected();
  const next = at < 0 ? part.start : at + direction;
  if (next >= part.start && next < part.start + part.count) app.open(next);
}

/** Opens the next step or rank, or the one before. */
function turn(app: App, direction: 1 | -1): void {
  const next = app.model.parts[app.model.parts.indexOf(app.part()) + direction];
  if (next) app.openPart(next);
}
