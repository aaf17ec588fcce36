// An op: its values side by side, what differs, where it was called, and how to look at it again.

import type { App } from "./app";
import { command, hasData, RECORD_AGAIN, replay } from "./command";
import type { Slot } from "./data";
import { h, replace } from "./dom";
import { replayed } from "./replayed";
import { mark } from "./role";
import { argumentsOf, isArgument, table } from "./slots";
import { error, number, quoted, shorten, visible } from "./text";
import { named, w } from "./words";

export function detail(app: App): HTMLElement {
  const section = h("section", { class: "card detail", "aria-labelledby": "detail-title", tabindex: -1 });
  let turn = 0;

  async function paint(): Promise<void> {
    const mine = ++turn;
    const op = app.selected();
    if (op < 0) {
      replace(section, h("header", {}, h("h2", { id: "detail-title" }, w().op)), h("p", { class: "hint" }, w().pick));
      return;
    }
    const slots = await app.model.slots(op);
    // Another op may have been chosen meanwhile.
    if (mine !== turn) return;
    replace(section, head(app, op), facts(app, op), ...parts(app, op, slots));
    section.scrollTop = 0;
  }

  app.on((changed) => {
    if (changed.has("op") || changed.has("part") || changed.size > 5) void paint();
  });
  void paint();
  return section;
}

function head(app: App, op: number): HTMLElement {
  const role = app.role(op);
  const cause = app.model.text("cause", op);
  return h(
    "header",
    {},
    h("h2", { id: "detail-title", class: "opname" }, mark(role), shorten(visible(app.model.name(op)), 160)),
    h("span", { class: `tag role-${role}`, title: w().roles[role] ?? "" }, named("roleNames", role)),
    cause ? h("span", { class: "tag cause", title: w().causes[cause] ?? "" }, named("causeNames", cause)) : null,
  );
}

function facts(app: App, op: number): HTMLElement {
  const { model } = app;
  const list = h("dl", { class: "facts" });
  const line = (label: string, ...content: (Node | string)[]) => list.append(h("dt", {}, label), h("dd", {}, ...content));
  const reason = model.text("op_reason", op);
  if (reason) line(w().why, visible(reason));
  const [input, output] = [app.inputError[op] ?? NaN, app.error[op] ?? NaN];
  if (!Number.isNaN(output)) {
    const excess = app.excess[op] ?? NaN;
    const over = excess > 0 ? ` (${number(2 ** excess, 2)}× ${w().overFloor})` : "";
    line(w().error, h("b", {}, error(output)), over);
  }
  if (!Number.isNaN(input)) line(w().inputError, error(input));
  const module = model.text("module", op);
  if (module) line(w().module, h("code", {}, visible(module)));
  const source = model.text("source", op);
  if (source) line(w().source, h("code", {}, visible(source)));
  const part = app.part();
  const link = (label: string, to: number) => {
    if (to >= 0 && to !== op)
      line(label, h("button", { type: "button", class: "link", onclick: () => app.open(to) }, visible(model.name(to))));
  };
  const follows = model.whole("follows", op);
  if (follows !== null) link(w().followsFrom, model.find(part.step, part.rank, follows));
  const partner = forwardOf(app, op);
  if (partner !== null) link(w().partner, partner);
  return list;
}

/** The call whose backward an op is, in the same step and rank. */
function forwardOf(app: App, op: number): number | null {
  const { model } = app;
  const name = model.name(op);
  const forward = name.replace(/\.backward(\.\d+)?$/, ".forward$1");
  if (forward === name) return null;
  const part = app.part();
  for (let other = part.start; other < part.start + part.count; other++) if (model.name(other) === forward) return other;
  return null;
}

function parts(app: App, op: number, slots: Slot[]): HTMLElement[] {
  const out: HTMLElement[] = [];
  const part = app.part();
  const found = app.model.replays.find((each) => each.op === app.model.name(op) && each.step === part.step && each.rank === part.rank);
  if (found) out.push(replayed(found));
  const differing = slots.filter((slot) => isArgument(slot) && slot.verdict !== "bit-equal" && slot.verdict !== "unknown");
  if (differing.length) out.push(argumentsOf(differing));
  out.push(table(app, op, slots), stacks(app, op), commands(app, op, slots));
  return out;
}

function stacks(app: App, op: number): HTMLElement {
  const [b, c] = [app.model.text("baseline_stack", op), app.model.text("candidate_stack", op)];
  const lines = (text: string) =>
    text
      ? h("ol", {}, ...text.split("\n").map((frame) => h("li", {}, h("code", {}, visible(frame.trim())))))
      : h("p", { class: "hint" }, w().noStack);
  const content =
    b === c
      ? h("div", { class: "stack" }, lines(b))
      : h(
          "div",
          { class: "twostacks" },
          h("div", { class: "stack" }, h("h4", {}, w().baseline), lines(b)),
          h("div", { class: "stack" }, h("h4", {}, w().candidate), lines(c)),
        );
  return h("details", { class: "block", open: true }, h("summary", {}, h("h3", {}, w().stacks)), content);
}

function commands(app: App, op: number, slots: Slot[]): HTMLElement {
  const { report } = app.model;
  const part = app.part();
  const name = app.model.name(op);
  const place = `--step ${part.step} --rank ${part.rank}`;
  // A pattern takes some letters for more than themselves.
  const pattern = quoted(name.replace(/[[\]{}*?\\]/g, "\\$&"));
  const lines = [report.baseline.path, report.candidate.path].map((path) => `probe inspect ${quoted(path)} ${place} --op ${pattern}`);
  const decides = app.model.whole("decides", op);
  const slot = slots[decides ?? -1];
  const call = replay(report, name, part.step, part.rank);
  if (call) lines.unshift(call);
  else if (app.fault[op] && !hasData(report)) lines.unshift(RECORD_AGAIN);
  if (slot && !isArgument(slot))
    lines.push(`probe inspect ${quoted(report.candidate.path)} ${place} --tensor ${quoted(`${name} ${slot.path}`)}`);
  lines.push(`probe compare ${quoted(report.baseline.path)} ${quoted(report.candidate.path)} ${place} -v`);
  return h(
    "div",
    { class: "block" },
    h("h3", {}, w().commands),
    ...lines.filter((line) => !/[\u0000-\u001f\u007f]/.test(line)).map(command),
  );
}
