// The values of an op: a row each, and everything known of one below it.

import type { App } from "./app";
import type { Slot } from "./data";
import { h } from "./dom";
import { look } from "./look";
import { cosine, count, error, number, shorten, visible } from "./text";
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

export function table(app: App, op: number, slots: Slot[]): HTMLElement {
  const decides = app.model.whole("decides", op);
  const body = h("tbody");
  const head = h(
    "tr",
    {},
    ...["", w().verdict, "rel_l2", "cosine", "max_abs_err", w().type, w().shape].map((label) => h("th", { scope: "col" }, label)),
  );
  slots.slice(0, LISTED).forEach((slot, index) => {
    body.append(...rows(app, op, index, slot, index === decides));
  });
  const heading = h("h3", {}, w().slots);
  const more = slots.length > LISTED ? h("p", { class: "hint" }, `${count(LISTED)} / ${count(slots.length)}`) : null;
  return h("div", { class: "block" }, heading, h("div", { class: "wide" }, h("table", { class: "slots" }, h("thead", {}, head), body)), more);
}

/** The row of a value, and the one below it that opens. */
function rows(app: App, op: number, index: number, slot: Slot, decides: boolean): HTMLElement[] {
  const cell = h("td", { colspan: 7 });
  const below = h("tr", { class: "more", hidden: !decides }, cell);
  const fill = () => {
    if (!cell.childElementCount) cell.append(...closer(app, op, index, slot));
  };
  if (decides) fill();
  const button = h(
    "button",
    {
      type: "button",
      class: "twistbutton",
      "aria-expanded": String(decides),
      onclick: () => {
        fill();
        below.hidden = !below.hidden;
        button.setAttribute("aria-expanded", String(!below.hidden));
      },
    },
    shorten(visible(slot.path), 40),
  );
  const [b, c] = [slot.text("baseline_dtype"), slot.text("candidate_dtype")];
  const [bShape, cShape] = [slot.text("baseline_shape"), slot.text("candidate_shape")];
  const row = h(
    "tr",
    { class: decides ? "decides" : "" },
    h("th", { scope: "row" }, button),
    h("td", {}, h("span", { class: `verdict v-${slot.verdict}` }, named("verdictNames", slot.verdict))),
    ...(isArgument(slot)
      ? [h("td", { colspan: 3, class: "argument" }, argument(slot))]
      : [
          h("td", { class: "num" }, prefixed(sign(slot), error(slot.number("rel_l2")))),
          h("td", { class: "num" }, cosine(slot.number("cosine"))),
          h("td", { class: "num" }, error(slot.number("max_abs_err"))),
        ]),
    h("td", { class: b && c && b !== c ? "differs" : "" }, pair(b, c)),
    h("td", { class: bShape && cShape && bShape !== cShape ? "differs" : "" }, pair(bShape, cShape)),
  );
  return [row, below];
}

/** Everything that is known of one value. */
function closer(app: App, op: number, index: number, slot: Slot): HTMLElement[] {
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
  out.push(...metrics(slot));
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

/** A value's pieces on the ranks, folded below it. */
function pieces(held: string, open: boolean): HTMLElement {
  const lines = held.split("; ").map((piece) => h("li", {}, visible(piece)));
  return h("details", { class: "pieces", open }, h("summary", {}, `${w().pieces} (${count(lines.length)})`), h("ul", {}, ...lines));
}

function metrics(slot: Slot): HTMLElement[] {
  const known = METRICS.filter((name) => slot.number(name) !== null);
  if (!known.length) return [];
  const list = h("dl", { class: "metrics" });
  for (const name of known) {
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
  return [list];
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

/** The arguments that differ. */
export function argumentsOf(slots: Slot[]): HTMLElement {
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

/** A value that is no tensor. */
export function isArgument(slot: Slot): boolean {
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
