// Error along the order of execution: the plot, its buttons, and the pointer on it.

import type { App } from "./app";
import { h, replace } from "./dom";
import { Multiples } from "./multiples";
import { Plot } from "./plot";
import { error, shorten, visible } from "./text";
import { named, w } from "./words";

/** Way of the pointer from which on it drags. */
const DRAG = 4;

export function curve(app: App): HTMLElement {
  const plot = new Plot(app);
  const multiples = new Multiples(app);
  const zoom = new Zoom(app, plot);
  const title = h("h2", { id: "curve-title" });
  const hint = h("span", { class: "hint" });
  const tools = h("div", { class: "tools" });
  const legend = h("div", { class: "legend" });
  const section = h(
    "section",
    { class: "card curve", "aria-labelledby": "curve-title" },
    h("header", {}, title, hint, legend, tools),
    multiples.element,
    plot.element,
  );
  const words = () => {
    replace(title, w().curve);
    replace(hint, w().curveHint);
    replace(tools, ...buttons(zoom));
    replace(
      legend,
      h("span", { class: "key floorkey" }, w().floor),
      ...(["introduces", "propagates", "clean"] as const).map((role) =>
        h("span", { class: `key role-${role}` }, h("i"), named("roleNames", role)),
      ),
    );
    multiples.paint();
  };
  follow(app, plot, zoom);
  section.addEventListener("zoom", (event) => zoom.press((event as CustomEvent<number>).detail));
  app.on((changed) => {
    if (changed.size > 5) words();
    if (changed.has("part")) multiples.press();
    if (["part", "zoom", "module"].some((key) => changed.has(key as "part")) || changed.size > 5) plot.draw();
    else if (changed.has("op")) plot.paintOver(null, null);
  });
  new ResizeObserver(() => plot.draw()).observe(plot.element);
  words();
  return section;
}

/** The range of ops in view. */
class Zoom {
  constructor(
    private readonly app: App,
    private readonly plot: Plot,
  ) {}

  to(from: number, to: number): void {
    const part = this.app.part();
    const ends: [number, number] = [Math.max(0, from), Math.min(part.count, to)];
    if (ends[1] - ends[0] >= part.count) this.app.set({ zoom: null });
    else if (ends[1] - ends[0] >= 1) this.app.set({ zoom: ends });
  }

  by(factor: number, around?: number): void {
    const { range } = this.plot;
    const selected = this.app.selected();
    const middle = around ?? (selected >= 0 ? selected - this.app.part().start : (range[0] + range[1]) / 2);
    const size = Math.max(8, (range[1] - range[0]) * factor);
    const share = Math.min(1, Math.max(0, (middle - range[0]) / (range[1] - range[0])));
    this.to(Math.floor(middle - share * size), Math.ceil(middle + (1 - share) * size));
  }

  /** A button or key: 0 shows everything. */
  press(factor: number): void {
    if (factor === 0) this.app.set({ zoom: null });
    else this.by(factor);
  }
}

function buttons(zoom: Zoom): HTMLElement[] {
  const button = (text: string, label: string, factor: number) =>
    h("button", { type: "button", title: label, "aria-label": label, onclick: () => zoom.press(factor) }, text);
  return [button("+", w().zoomIn, 0.5), button("−", w().zoomOut, 2), button(w().all, w().all, 0)];
}

/** Names the op under the pointer, opens it, and zooms to a range that is dragged. */
function follow(app: App, plot: Plot, zoom: Zoom): void {
  const { canvas } = plot;
  const tip = new Tip(app, plot);
  let pressed: number | null = null;
  let frame = 0;
  const place = (event: PointerEvent | MouseEvent): [number, number] => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    pressed = place(event)[0];
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = place(event);
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      const dragging = pressed !== null && Math.abs(px - pressed) > DRAG;
      const hover = dragging ? null : plot.nearest(px, py);
      plot.paintOver(hover, dragging && pressed !== null ? [pressed, px] : null);
      tip.show(hover, px);
    });
  });
  canvas.addEventListener("pointerup", (event) => {
    const [px, py] = place(event);
    const start = pressed;
    pressed = null;
    if (start === null) return;
    if (Math.abs(px - start) > DRAG) {
      zoom.to(Math.floor(plot.at(Math.min(px, start))), Math.ceil(plot.at(Math.max(px, start))));
    } else {
      const op = plot.nearest(px, py);
      if (op !== null) app.open(op);
    }
  });
  canvas.addEventListener("pointerleave", () => {
    cancelAnimationFrame(frame);
    tip.show(null, 0);
    if (plot.width) plot.paintOver(null, null);
  });
  canvas.addEventListener("dblclick", () => app.set({ zoom: null }));
  const wheel = (event: WheelEvent) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom.by(event.deltaY > 0 ? 1.25 : 0.8, plot.at(place(event)[0]));
  };
  canvas.addEventListener("wheel", wheel, { passive: false });
}

/** Name and errors of the op under the pointer. */
class Tip {
  private readonly element = h("div", { class: "tip", hidden: true });

  constructor(
    private readonly app: App,
    private readonly plot: Plot,
  ) {
    plot.element.append(this.element);
  }

  show(op: number | null, px: number): void {
    const { app, element } = this;
    element.hidden = op === null;
    if (op === null) return;
    const line = (label: string, value: number) =>
      Number.isNaN(value) ? null : h("div", {}, h("span", {}, label), h("b", {}, error(value)));
    const role = app.role(op);
    replace(
      element,
      h("div", { class: "name" }, shorten(visible(app.model.name(op)), 70), " ", h("span", { class: "slot" }, visible(app.model.deciding(op)))),
      h("div", { class: `role-${role}` }, h("b", {}, named("roleNames", role))),
      line(w().error, app.error[op] ?? NaN),
      line(w().inputError, app.inputError[op] ?? NaN),
      line(w().floor, app.floor[op] ?? NaN),
    );
    const [size, { width }] = [element.offsetWidth, this.plot];
    element.style.left = `${Math.max(0, Math.min(width - size, px + 16 + size > width ? px - size - 16 : px + 16))}px`;
  }
}
