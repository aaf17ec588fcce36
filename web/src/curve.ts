// Error along the order of execution: one canvas for the curve, one for what moves with the pointer.

import type { App } from "./app";
import type { Part } from "./data";
import { colour, context, h, replace } from "./dom";
import { outline, ROLES } from "./role";
import { type Band, bandsOf, type Scale, scaleOf } from "./scale";
import { count, error, shorten, visible } from "./text";
import { named, say, w } from "./words";

const HEIGHT = 190;
const MARGIN = { left: 52, right: 14, top: 20, bottom: 24 };
/** Room for values without error, below the scale. */
const ZERO = 18;
/** Ops farther than this from the pointer are not meant. */
const REACH = 12;
/** Room that the mark of a fault takes. */
const APART = 7;
/** Faults from which on their lines would hide the curve. */
const MANY = 40;

export function curve(app: App): HTMLElement {
  const canvas = h("canvas", { class: "plot", role: "img", tabindex: 0 });
  const over = h("canvas", { class: "over", "aria-hidden": "true" });
  const tip = h("div", { class: "tip", hidden: true });
  const plot = h("div", { class: "plotbox" }, canvas, over, tip);
  const title = h("h2");
  const hint = h("span", { class: "hint" });
  const tools = h("div", { class: "tools" });
  const legend = h("div", { class: "legend" });
  const multiples = h("div", { class: "multiples" });
  const section = h(
    "section",
    { class: "card curve", "aria-labelledby": "curve-title" },
    h("header", {}, title, hint, legend, tools),
    multiples,
    plot,
  );
  title.id = "curve-title";

  let width = 0;
  let range: [number, number] = [0, 1];
  let scale: Scale = { low: -8, high: 0, infinite: false };
  let bands: Band[] = [];
  let drawn: Part | null = null;

  const x = (at: number) => MARGIN.left + ((at - range[0]) / (range[1] - range[0])) * inner();
  const inner = () => Math.max(1, width - MARGIN.left - MARGIN.right);
  const at = (px: number) => range[0] + ((px - MARGIN.left) / inner()) * (range[1] - range[0]);
  const bottom = HEIGHT - MARGIN.bottom;
  const y = (value: number) => {
    if (value === 0) return bottom - 4;
    const level = Number.isFinite(value) ? Math.log10(value) : scale.high + 1;
    const top = scale.high + (scale.infinite ? 1 : 0);
    const share = Math.min(1, Math.max(0, (level - scale.low) / (top - scale.low)));
    return bottom - ZERO - share * (bottom - ZERO - MARGIN.top);
  };

  function draw(): void {
    const part = app.part();
    width = plot.clientWidth;
    if (!width) return;
    if (drawn !== part) {
      drawn = part;
      bands = bandsOf(app, part);
      scale = scaleOf(app, part);
    }
    const [from, to] = app.view.zoom ?? [0, part.count];
    range = [Math.min(from, Math.max(0, part.count - 1)), Math.max(1, Math.min(to, part.count))];
    if (range[1] - range[0] < 4) range = [range[0] - 2, range[1] + 2];
    canvas.setAttribute("aria-label", w().curveName);
    const g = context(canvas, width, HEIGHT);
    g.font = "11px system-ui, sans-serif";
    paintBands(g);
    paintGrid(g);
    paintModule(g, part);
    paintFloor(g, part);
    paintErrors(g, part);
    paintFaults(g, part);
    paintOver(null, null);
  }

  function paintBands(g: CanvasRenderingContext2D): void {
    for (const band of bands) {
      const [left, right] = [Math.max(MARGIN.left, x(band.start)), Math.min(width - MARGIN.right, x(band.end))];
      if (right <= left) continue;
      g.fillStyle = colour(`--band-${band.phase}`);
      g.fillRect(left, MARGIN.top, right - left, bottom - MARGIN.top);
      const label = (w() as unknown as Record<string, string>)[band.phase] ?? band.phase;
      if (right - left > g.measureText(label).width + 12) {
        g.fillStyle = colour("--dim");
        g.fillText(label, left + 6, HEIGHT - 8);
      }
    }
  }

  function paintGrid(g: CanvasRenderingContext2D): void {
    g.strokeStyle = colour("--line");
    g.fillStyle = colour("--dim");
    g.textAlign = "right";
    g.lineWidth = 1;
    const decades = scale.high - scale.low;
    const every = Math.max(1, Math.ceil(decades / 6));
    for (let level = scale.high; level >= scale.low; level -= every) {
      const line = Math.round(y(10 ** level)) + 0.5;
      g.beginPath();
      g.moveTo(MARGIN.left, line);
      g.lineTo(width - MARGIN.right, line);
      g.stroke();
      g.fillText(`1e${level}`, MARGIN.left - 6, line + 4);
    }
    g.fillText(w().zero, MARGIN.left - 6, y(0) + 4);
    if (scale.infinite) g.fillText("∞", MARGIN.left - 6, y(Infinity) + 4);
    g.textAlign = "left";
  }

  function paintModule(g: CanvasRenderingContext2D, part: Part): void {
    const { module } = app.view;
    if (!module) return;
    const modules = app.model.column("module");
    const inside = new Set<number>();
    app.model.texts.forEach((text, index) => {
      if (text === module || text.startsWith(`${module}.`)) inside.add(index);
    });
    g.fillStyle = colour("--accent-soft");
    const size = Math.max(1, inner() / (range[1] - range[0]));
    for (let op = Math.floor(Math.max(0, range[0])); op < Math.min(range[1], part.count); op++)
      if (inside.has(modules[part.start + op] ?? -1)) g.fillRect(x(op), MARGIN.top, size, bottom - MARGIN.top);
  }

  function paintFloor(g: CanvasRenderingContext2D, part: Part): void {
    const columns = new Float64Array(Math.ceil(inner()) + 1).fill(NaN);
    for (let op = Math.floor(Math.max(0, range[0])); op < Math.min(range[1], part.count); op++) {
      const floor = app.floor[part.start + op] ?? NaN;
      const column = Math.floor(x(op + 0.5) - MARGIN.left);
      if (floor > 0 && !((columns[column] ?? NaN) >= floor)) columns[column] = floor;
    }
    g.strokeStyle = colour("--floor");
    g.lineWidth = 1.25;
    g.setLineDash([4, 3]);
    g.beginPath();
    let begun = false;
    columns.forEach((floor, column) => {
      if (Number.isNaN(floor)) return;
      const point: [number, number] = [MARGIN.left + column, y(floor)];
      if (begun) g.lineTo(...point);
      else g.moveTo(...point);
      begun = true;
    });
    g.stroke();
    g.setLineDash([]);
  }

  function paintErrors(g: CanvasRenderingContext2D, part: Part): void {
    const columns = Math.ceil(inner()) + 1;
    const visibleOps = range[1] - range[0];
    const single = visibleOps * 3 < inner();
    const roles = app.model.column("role");
    const order = new Map(ROLES.map((role, index) => [app.model.texts.indexOf(role), index]));
    const most = ROLES.map(() => new Float64Array(columns).fill(-1));
    const least = new Float64Array(columns).fill(Infinity);
    const top = new Float64Array(columns).fill(-1);
    for (let op = Math.floor(Math.max(0, range[0])); op < Math.min(range[1], part.count); op++) {
      const value = app.error[part.start + op] ?? NaN;
      if (Number.isNaN(value)) continue;
      const column = Math.floor(x(op + 0.5) - MARGIN.left);
      if (column < 0 || column >= columns) continue;
      const role = most[order.get(roles[part.start + op] ?? -1) ?? 4];
      if (role && value > (role[column] ?? 0)) role[column] = value;
      if (value < (least[column] ?? 0)) least[column] = value;
      if (value > (top[column] ?? 0)) top[column] = value;
    }
    if (!single) {
      g.fillStyle = colour("--spread");
      for (let column = 0; column < columns; column++) {
        const [high, low] = [top[column] ?? -1, least[column] ?? 0];
        if (high > 0 && low < high) g.fillRect(MARGIN.left + column, y(high), 1, y(low) - y(high));
      }
    }
    // The roles that matter most last, so that they lie on top.
    for (let index = ROLES.length - 1; index >= 0; index--) {
      const role = ROLES[index] ?? "clean";
      g.fillStyle = colour(`--r-${role}`);
      const size = single ? 3.2 : 1.8;
      most[index]?.forEach((value, column) => {
        if (value < 0) return;
        g.beginPath();
        g.arc(MARGIN.left + column, y(value), size, 0, 7);
        g.fill();
      });
    }
  }

  function paintFaults(g: CanvasRenderingContext2D, part: Part): void {
    const first = app.model.report.first_divergence;
    let labelled = false;
    const shown = app.faults.filter((op) => {
      const place = op - part.start;
      return place >= range[0] && place < range[1] && place < part.count;
    });
    let last = -Infinity;
    for (const op of shown) {
      const px = x(op - part.start + 0.5);
      // Where there are very many, as many marks as there is room for stand for them.
      if (px - last < APART) continue;
      last = px;
      const role = app.role(op);
      const value = app.error[op] ?? NaN;
      const py = Number.isNaN(value) ? MARGIN.top + 8 : y(value);
      g.strokeStyle = colour(`--r-${role}`);
      g.globalAlpha = shown.length > MANY ? 0.12 : 0.35;
      g.beginPath();
      g.moveTo(px, MARGIN.top);
      g.lineTo(px, bottom);
      g.stroke();
      g.globalAlpha = 1;
      g.fillStyle = colour(`--r-${role}`);
      g.strokeStyle = colour("--card");
      const path = new Path2D();
      path.addPath(new Path2D(outline(role, 5.5)), new DOMMatrix([1, 0, 0, 1, px, py]));
      g.fill(path);
      g.stroke(path);
      const isFirst =
        first && first.step === part.step && first.rank === part.rank && first.order === app.model.whole("order", op);
      if (isFirst && !labelled) {
        labelled = true;
        g.font = "600 11.5px system-ui, sans-serif";
        const label = shorten(visible(first.op), 48);
        const size = g.measureText(label).width;
        const left = px + 10 + size > width - MARGIN.right ? px - 10 - size : px + 10;
        g.fillStyle = colour("--ink");
        g.fillText(label, Math.max(MARGIN.left, left), 13);
        g.strokeStyle = colour("--ink");
        g.globalAlpha = 0.6;
        g.beginPath();
        g.moveTo(px, 16);
        g.lineTo(px, py - 8);
        g.stroke();
        g.globalAlpha = 1;
        g.font = "11px system-ui, sans-serif";
      }
    }
  }

  /** Moving parts: the open op, the op under the pointer, and the range that is being dragged. */
  function paintOver(hover: number | null, drag: [number, number] | null): void {
    const g = context(over, width, HEIGHT);
    const part = app.part();
    if (drag) {
      g.fillStyle = colour("--accent-soft");
      g.fillRect(Math.min(...drag), MARGIN.top, Math.abs(drag[1] - drag[0]), bottom - MARGIN.top);
    }
    const ring = (op: number, name: string, line: boolean) => {
      const px = x(op - part.start + 0.5);
      if (px < MARGIN.left - 1 || px > width - MARGIN.right + 1) return;
      g.strokeStyle = colour(name);
      g.lineWidth = 1;
      if (line) {
        g.beginPath();
        g.moveTo(Math.round(px) + 0.5, MARGIN.top);
        g.lineTo(Math.round(px) + 0.5, bottom);
        g.stroke();
      }
      const value = app.error[op] ?? NaN;
      g.lineWidth = 2;
      g.beginPath();
      g.arc(px, Number.isNaN(value) ? MARGIN.top + 8 : y(value), 8, 0, 7);
      g.stroke();
    };
    const selected = app.selected();
    if (selected >= 0) ring(selected, "--accent", true);
    if (hover !== null) ring(hover, "--ink", false);
  }

  /** The op nearest to the pointer; ops at fault win. */
  function nearest(px: number, py: number): number | null {
    const part = app.part();
    const [from, to] = [Math.max(0, Math.floor(at(px - REACH))), Math.min(part.count, Math.ceil(at(px + REACH)))];
    let [best, distance] = [null as number | null, Infinity];
    for (let op = from; op < to; op++) {
      const value = app.error[part.start + op] ?? NaN;
      const isFault = app.fault[part.start + op] === 1;
      if (Number.isNaN(value) && !isFault) continue;
      const dx = x(op + 0.5) - px;
      if (Math.abs(dx) > REACH) continue;
      const dy = (Number.isNaN(value) ? MARGIN.top + 8 : y(value)) - py;
      const found = Math.hypot(dx, dy) - (isFault ? 8 : 0);
      if (found < distance) [best, distance] = [part.start + op, found];
    }
    return best;
  }

  function showTip(op: number | null, px: number): void {
    tip.hidden = op === null;
    if (op === null) return;
    const line = (label: string, value: number) =>
      Number.isNaN(value) ? null : h("div", {}, h("span", {}, label), h("b", {}, error(value)));
    const role = app.role(op);
    replace(
      tip,
      h("div", { class: "name" }, shorten(visible(app.model.name(op)), 70), " ", h("span", { class: "slot" }, visible(app.model.deciding(op)))),
      h("div", { class: `role-${role}` }, h("b", {}, named("roleNames", role))),
      line(w().error, app.error[op] ?? NaN),
      line(w().inputError, app.inputError[op] ?? NaN),
      line(w().floor, app.floor[op] ?? NaN),
    );
    const size = tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(width - size, px + 16 + size > width ? px - size - 16 : px + 16))}px`;
  }

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
      const dragging = pressed !== null && Math.abs(px - pressed) > 4;
      const hover = dragging ? null : nearest(px, py);
      paintOver(hover, dragging && pressed !== null ? [pressed, px] : null);
      showTip(hover, px);
    });
  });
  canvas.addEventListener("pointerup", (event) => {
    const [px, py] = place(event);
    const start = pressed;
    pressed = null;
    if (start === null) return;
    if (Math.abs(px - start) > 4) {
      const ends = [at(Math.min(px, start)), at(Math.max(px, start))];
      zoomTo(Math.floor(ends[0] ?? 0), Math.ceil(ends[1] ?? 1));
    } else {
      const op = nearest(px, py);
      if (op !== null) app.open(op);
    }
  });
  canvas.addEventListener("pointerleave", () => {
    cancelAnimationFrame(frame);
    showTip(null, 0);
    if (width) paintOver(null, null);
  });
  canvas.addEventListener("dblclick", () => app.set({ zoom: null }));
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoomBy(event.deltaY > 0 ? 1.25 : 0.8, at(place(event)[0]));
    },
    { passive: false },
  );

  function zoomTo(from: number, to: number): void {
    const part = app.part();
    const ends: [number, number] = [Math.max(0, from), Math.min(part.count, to)];
    if (ends[1] - ends[0] >= part.count) app.set({ zoom: null });
    else if (ends[1] - ends[0] >= 1) app.set({ zoom: ends });
  }

  function zoomBy(factor: number, around?: number): void {
    const selected = app.selected();
    const middle = around ?? (selected >= 0 ? selected - app.part().start : (range[0] + range[1]) / 2);
    const size = Math.max(8, (range[1] - range[0]) * factor);
    const share = Math.min(1, Math.max(0, (middle - range[0]) / (range[1] - range[0])));
    zoomTo(Math.floor(middle - share * size), Math.ceil(middle + (1 - share) * size));
  }
  section.addEventListener("zoom", (event) => {
    const factor = (event as CustomEvent<number>).detail;
    if (factor === 0) app.set({ zoom: null });
    else zoomBy(factor);
  });

  function words(): void {
    replace(title, w().curve);
    replace(hint, w().curveHint);
    const button = (text: string, label: string, factor: number) =>
      h(
        "button",
        {
          type: "button",
          title: label,
          "aria-label": label,
          onclick: () => section.dispatchEvent(new CustomEvent("zoom", { detail: factor })),
        },
        text,
      );
    replace(tools, button("+", w().zoomIn, 0.5), button("−", w().zoomOut, 2), button(w().all, w().all, 0));
    replace(
      legend,
      h("span", { class: "key floorkey" }, w().floor),
      ...(["introduces", "propagates", "clean"] as const).map((role) =>
        h("span", { class: `key role-${role}` }, h("i"), named("roleNames", role)),
      ),
    );
    paintMultiples();
  }

  /** A small curve of each step and rank, where there are several. */
  function paintMultiples(): void {
    const parts = app.model.parts;
    multiples.hidden = parts.length < 2;
    if (multiples.hidden) return;
    replace(multiples);
    for (const part of parts.slice(0, 200)) {
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
      multiples.append(button);
      thumbnail(small, part);
    }
    if (parts.length > 200) multiples.append(h("span", { class: "hint" }, say(w().more, { n: count(parts.length - 200) })));
  }

  function thumbnail(small: HTMLCanvasElement, part: Part): void {
    const [wide, high] = [92, 30];
    const g = context(small, wide, high);
    const own = scaleOf(app, part);
    const most = new Float64Array(wide).fill(-1);
    for (let op = 0; op < part.count; op++) {
      const value = app.error[part.start + op] ?? NaN;
      const column = Math.floor((op / part.count) * wide);
      if (value > (most[column] ?? 0)) most[column] = value;
    }
    g.fillStyle = colour("--spread");
    most.forEach((value, column) => {
      if (value <= 0) return;
      const share = Math.min(1, Math.max(0.05, (Math.log10(Math.min(value, 1e9)) - own.low) / (own.high - own.low)));
      g.fillRect(column, high - share * high, 1, share * high);
    });
    g.fillStyle = colour("--r-introduces");
    for (const op of app.faults)
      if (op >= part.start && op < part.start + part.count)
        g.fillRect(Math.floor(((op - part.start) / part.count) * wide), 0, 2, high);
  }

  app.on((changed) => {
    if (changed.size > 5) words();
    if (changed.has("part")) {
      const parts = app.model.parts;
      Array.from(multiples.children).forEach((button, index) =>
        button.setAttribute("aria-pressed", String(parts[index] === app.part())),
      );
    }
    if (["part", "zoom", "module"].some((key) => changed.has(key as "part")) || changed.size > 5) draw();
    else if (changed.has("op")) paintOver(null, null);
  });
  new ResizeObserver(() => draw()).observe(plot);
  words();
  return section;
}
