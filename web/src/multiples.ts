// A small curve of each step and rank, where there are several.

import type { App } from "./app";
import type { Part } from "./data";
import { colour, context, h, replace } from "./dom";
import { scaleOf } from "./scale";
import { count } from "./text";
import { say, w } from "./words";

/** Parts that are drawn; more are counted. */
const MOST = 200;
const [WIDTH, HEIGHT] = [92, 30];

export class Multiples {
  readonly element = h("div", { class: "multiples" });

  constructor(private readonly app: App) {}

  paint(): void {
    const { app, element } = this;
    const parts = app.model.parts;
    element.hidden = parts.length < 2;
    if (element.hidden) return;
    replace(element);
    for (const part of parts.slice(0, MOST)) {
      const small = h("canvas", { "aria-hidden": "true" });
      const name = `${w().step} ${part.step} · ${w().rank} ${part.rank}`;
      const faulty = app.faults.filter((op) => op >= part.start && op < part.start + part.count).length;
      const button = h(
        "button",
        {
          type: "button",
          "aria-pressed": String(part === app.part()),
          title: `${name}: ${faulty} ${w().fault}`,
          onclick: () => app.openPart(part),
        },
        small,
        h("span", { class: faulty ? "faulty" : "" }, name),
      );
      element.append(button);
      this.thumbnail(small, part);
    }
    if (parts.length > MOST) element.append(h("span", { class: "hint" }, say(w().more, { n: count(parts.length - MOST) })));
  }

  /** Marks the button of the part that is shown. */
  press(): void {
    const parts = this.app.model.parts;
    Array.from(this.element.children).forEach((button, index) =>
      button.setAttribute("aria-pressed", String(parts[index] === this.app.part())),
    );
  }

  private thumbnail(small: HTMLCanvasElement, part: Part): void {
    const { app } = this;
    const g = context(small, WIDTH, HEIGHT);
    const own = scaleOf(app, part);
    const most = new Float64Array(WIDTH).fill(-1);
    for (let op = 0; op < part.count; op++) {
      const value = app.error[part.start + op] ?? NaN;
      const column = Math.floor((op / part.count) * WIDTH);
      if (value > (most[column] ?? 0)) most[column] = value;
    }
    g.fillStyle = colour("--spread");
    most.forEach((value, column) => {
      if (value <= 0) return;
      const share = Math.min(1, Math.max(0.05, (Math.log10(Math.min(value, 1e9)) - own.low) / (own.high - own.low)));
      g.fillRect(column, HEIGHT - share * HEIGHT, 1, share * HEIGHT);
    });
    g.fillStyle = colour("--r-introduces");
    for (const op of app.faults)
      if (op >= part.start && op < part.start + part.count)
        g.fillRect(Math.floor(((op - part.start) / part.count) * WIDTH), 0, 2, HEIGHT);
  }
}
