// An op: its values side by side, what differs, where it was called, and how to look at it again.

import type { App } from "./app";
import type { Slot } from "./data";
import { command, hasData, RECORD_AGAIN, replay } from "./command";
import { h, replace } from "./dom";
import { look } from "./look";
import { replayed } from "./replayed";
import { mark } from "./role";
import { cosine, count, error, number, quoted, shorten, visible } from "./text";
import { named, w } from "./words";

const METRICS = [
  "rel_l2",
  "cosine",
  "max_abs_err",
  "mean_abs_err",
  "max_rel_err",
  "mean_rel_err",
  "rmse",
  "euclidean",
  "within_1e3",
  "within_5e3",
  "max_ulp",
];
const STATISTICS = ["max", "min", "mean", "norm", "nan", "pos_inf", "neg_inf", "zeros"];
/** Slots that are listed; some ops take thousands. */
const LISTED = 400;

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
    replace(section, head(op), ...facts(op), ...(await parts(op, slots)));
    section.scrollTop = 0;
  }

  function head(op: number): HTMLElement {
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

  function facts(op: number): HTMLElement[] {
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
    const name = model.name(op);
    if (/\.backward(\.\d+)?$/.test(name)) {
      const forward = name.replace(/\.backward(\.\d+)?$/, ".forward$1");
      for (let other = part.start; other < part.start + part.count; other++) {
        if (model.name(other) !== forward) continue;
        link(w().partner, other);
        break;
      }
    }
    return [list];
  }

  async function parts(op: number, slots: Slot[]): Promise<HTMLElement[]> {
    const out: HTMLElement[] = [];
    const part = app.part();
    const found = app.model.replays.find((each) => each.op === app.model.name(op) && each.step === part.step && each.rank === part.rank);
    if (found) out.push(replayed(found));
    const differing = slots.filter((slot) => isArgument(slot) && slot.verdict !== "bit-equal" && slot.verdict !== "unknown");
    if (differing.length) out.push(argumentsOf(differing));
    out.push(table(op, slots));
    out.push(stacks(op), commands(op, slots));
    return out;
  }

  function table(op: number, slots: Slot[]): HTMLElement {
    const decides = app.model.whole("decides", op);
    const body = h("tbody");
    const head = h(
      "tr",
      {},
      ...["", w().verdict, "rel_l2", "cosine", "max_abs_err", w().type, w().shape].map((label) => h("th", { scope: "col" }, label)),
    );
    slots.slice(0, LISTED).forEach((slot, index) => {
      const detailRow = h("tr", { class: "more", hidden: index !== decides });
      const cell = h("td", { colspan: 7 });
      detailRow.append(cell);
      const fill = () => {
        if (!cell.childElementCount) cell.append(...closer(op, index, slot));
      };
      if (index === decides) fill();
      const button = h(
        "button",
        {
          type: "button",
          class: "twistbutton",
          "aria-expanded": String(index === decides),
          onclick: () => {
            fill();
            detailRow.hidden = !detailRow.hidden;
            button.setAttribute("aria-expanded", String(!detailRow.hidden));
          },
        },
        shorten(visible(slot.path), 40),
      );
      const [b, c] = [slot.text("baseline_dtype"), slot.text("candidate_dtype")];
      const [bShape, cShape] = [slot.text("baseline_shape"), slot.text("candidate_shape")];
      const bound = sign(slot);
      const value = isArgument(slot) ? argument(slot) : null;
      body.append(
        h(
          "tr",
          { class: index === decides ? "decides" : "" },
          h("th", { scope: "row" }, button),
          h("td", {}, h("span", { class: `verdict v-${slot.verdict}` }, named("verdictNames", slot.verdict))),
          ...(value
            ? [h("td", { colspan: 3, class: "argument" }, value)]
            : [
                h("td", { class: "num" }, prefixed(bound, error(slot.number("rel_l2")))),
                h("td", { class: "num" }, cosine(slot.number("cosine"))),
                h("td", { class: "num" }, error(slot.number("max_abs_err"))),
              ]),
          h("td", { class: b && c && b !== c ? "differs" : "" }, pair(b, c)),
          h("td", { class: bShape && cShape && bShape !== cShape ? "differs" : "" }, pair(bShape, cShape)),
        ),
        detailRow,
      );
    });
    const heading = h("h3", {}, w().slots);
    const more = slots.length > LISTED ? h("p", { class: "hint" }, `${count(LISTED)} / ${count(slots.length)}`) : null;
    return h("div", { class: "block" }, heading, h("div", { class: "wide" }, h("table", { class: "slots" }, h("thead", {}, head), body)), more);
  }

  /** Everything that is known of one value. */
  function closer(op: number, index: number, slot: Slot): HTMLElement[] {
    const out: HTMLElement[] = [];
    const reason = slot.text("reason");
    const tolerance = slot.text("tolerance");
    const words = h("dl", { class: "facts" });
    const line = (label: string, text: string) => text && words.append(h("dt", {}, label), h("dd", {}, visible(text)));
    line(w().why, reason);
    line(w().expected, tolerance);
    line("basis", slot.text("basis"));
    if (words.childElementCount) out.push(words);
    const held = slot.text("pieces");
    if (held) out.push(pieces(held, slot.verdict === "differs"));
    const metrics = METRICS.filter((name) => slot.number(name) !== null);
    if (metrics.length) {
      const list = h("dl", { class: "metrics" });
      for (const name of metrics) {
        const value = slot.number(name);
        const text = name === "cosine" ? cosine(value) : name.startsWith("within") ? number(value, 4) : error(value);
        list.append(h("div", {}, h("dt", {}, name), h("dd", {}, name === "max_ulp" ? number(value) : text)));
      }
      const at = slot.number("max_abs_index");
      if (at !== null) {
        const [b, c] = [slot.number("baseline_at_max_abs"), slot.number("candidate_at_max_abs")];
        list.append(
          h("div", {}, h("dt", {}, "max_abs_err @"), h("dd", {}, `[${coordinates(at, shapeOf(slot)).join(", ")}] ${number(b, 6)} → ${number(c, 6)}`)),
        );
      }
      out.push(list);
    }
    const part = app.part();
    const order = app.model.whole("order", op);
    const portrait = app.model.portraits.find(
      (found) => found.step === part.step && found.rank === part.rank && found.order === order && found.slot === index,
    );
    if (portrait) out.push(look(portrait, shapeOf(slot)));
    else if (app.fault[op] && !isArgument(slot) && slot.verdict !== "bit-equal") out.push(h("p", { class: "hint" }, w().noLook));
    out.push(...sides(slot));
    return out;
  }

  function sides(slot: Slot): HTMLElement[] {
    const rows = STATISTICS.map((name) => [name, slot.number(`baseline_${name}`), slot.number(`candidate_${name}`)] as const);
    const known = rows.filter(([, b, c]) => b !== null || c !== null);
    if (!known.length) return [];
    return [
      h(
        "table",
        { class: "sides" },
        h("thead", {}, h("tr", {}, ...["", w().baseline, w().candidate, w().difference].map((label) => h("th", { scope: "col" }, label)))),
        h(
          "tbody",
          {},
          ...known.map(([name, b, c]) =>
            h(
              "tr",
              { class: b !== c ? "differs" : "" },
              h("th", { scope: "row" }, name),
              h("td", { class: "num" }, number(b, 6)),
              h("td", { class: "num" }, number(c, 6)),
              h("td", { class: "num" }, b !== null && c !== null && b !== c ? error(c - b) : ""),
            ),
          ),
        ),
      ),
    ];
  }

  function argumentsOf(slots: Slot[]): HTMLElement {
    return h(
      "div",
      { class: "block warnbox" },
      h("h3", {}, w().arguments),
      h(
        "table",
        { class: "sides" },
        h("thead", {}, h("tr", {}, ...["", w().baseline, w().candidate].map((label) => h("th", { scope: "col" }, label)))),
        h(
          "tbody",
          {},
          ...slots.map((slot) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, visible(slot.path)),
              h("td", {}, visible(slot.text("baseline_value") || slot.text("baseline_dtype")).slice(0, 300)),
              h("td", {}, visible(slot.text("candidate_value") || slot.text("candidate_dtype")).slice(0, 300)),
            ),
          ),
        ),
      ),
    );
  }

  function stacks(op: number): HTMLElement {
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

  function commands(op: number, slots: Slot[]): HTMLElement {
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

  app.on((changed) => {
    if (changed.has("op") || changed.has("part") || changed.size > 5) void paint();
  });
  void paint();
  return section;
}

/** What the ranks hold of a value, folded below it. */
function pieces(held: string, open: boolean): HTMLElement {
  const lines = held.split("; ").map((piece) => h("li", {}, visible(piece)));
  return h("details", { class: "pieces", open }, h("summary", {}, `${w().pieces} (${count(lines.length)})`), h("ul", {}, ...lines));
}

function isArgument(slot: Slot): boolean {
  return slot.text("baseline_value") !== "" || slot.text("candidate_value") !== "";
}

function argument(slot: Slot): string {
  const [b, c] = [slot.text("baseline_value"), slot.text("candidate_value")];
  return b === c ? shorten(visible(b), 60) : `${shorten(visible(b), 40)} → ${shorten(visible(c), 40)}`;
}

function pair(b: string, c: string): string {
  if (b === c || !c) return visible(b);
  return b ? `${visible(b)} → ${visible(c)}` : visible(c);
}

/** Prefix of a metric that is no exact value. */
function sign(slot: Slot): string {
  const basis = slot.text("basis");
  return basis === "sketch" ? "≈" : basis === "statistics" ? "≥" : "";
}

function prefixed(sign: string, text: string): string {
  return text ? sign + text : "";
}

function shapeOf(slot: Slot): number[] {
  const text = slot.text("baseline_shape") || slot.text("candidate_shape");
  return text.slice(1, -1).split(", ").filter(Boolean).map(Number);
}

function coordinates(index: number, shape: number[]): number[] {
  const at: number[] = [];
  for (const size of [...shape].reverse()) {
    at.unshift(size ? index % size : 0);
    index = size ? Math.floor(index / size) : 0;
  }
  return at;
}
