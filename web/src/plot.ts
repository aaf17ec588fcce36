// The canvases of the error curve: one for the curve, one for what moves with the pointer.

import type { App } from "./app";
import type { Part } from "./data";
import { colour, context, h } from "./dom";
import { outline, ROLES } from "./role";
import { type Band, bandsOf, type Scale, scaleOf } from "./scale";
import { shorten, visible } from "./text";
import { w } from "./words";

const HEIGHT = 190;
const MARGIN = { left: 52, right: 14, top: 20, bottom: 24 };
const BOTTOM = HEIGHT - MARGIN.bottom;
/** Room for values without error, below the scale. */
const ZERO = 18;
/** Ops farther than this from the pointer are not meant. */
const REACH = 12;
/** Room that the mark of a fault takes. */
const APART = 7;
/** Faults from which on their lines would hide the curve. */
const MANY = 40;

export class Plot {
  readonly canvas = h("canvas", { class: "plot", role: "img", tabindex: 0 });
  private readonly over = h("canvas", { class: "over", "aria-hidden": "true" });
  readonly element = h("div", { class: "plotbox" }, this.canvas, this.over);
  /** Width of the canvases; 0 until they are drawn. */
  width = 0;
  /** The ops in view: the first, and the one after the last. */
  range: [number, number] = [0, 1];
  private scale: Scale = { low: -8, high: 0, infinite: false };
  private bands: Band[] = [];
  /** The part that scale and bands are of. */
  private drawn: Part | null = null;

  constructor(private readonly app: App) {}

  private inner(): number {
    return Math.max(1, this.width - MARGIN.left - MARGIN.right);
  }

  private x(at: number): number {
    return MARGIN.left + ((at - this.range[0]) / (this.range[1] - this.range[0])) * this.inner();
  }

  /** The op at a place across, with its fraction. */
  at(px: number): number {
    return this.range[0] + ((px - MARGIN.left) / this.inner()) * (this.range[1] - this.range[0]);
  }

  private y(value: number): number {
    if (value === 0) return BOTTOM - 4;
    const { low, high, infinite } = this.scale;
    const level = Number.isFinite(value) ? Math.log10(value) : high + 1;
    const share = Math.min(1, Math.max(0, (level - low) / (high + (infinite ? 1 : 0) - low)));
    return BOTTOM - ZERO - share * (BOTTOM - ZERO - MARGIN.top);
  }

  /** Where the mark of an error stands; one that is unknown at the top. */
  private height(value: number): number {
    return Number.isNaN(value) ? MARGIN.top + 8 : this.y(value);
  }

  private first(): number {
    return Math.floor(Math.max(0, this.range[0]));
  }

  private end(part: Part): number {
    return Math.min(this.range[1], part.count);
  }

  draw(): void {
    const part = this.app.part();
    this.width = this.element.clientWidth;
    if (!this.width) return;
    if (this.drawn !== part) {
      this.drawn = part;
      this.bands = bandsOf(this.app, part);
      this.scale = scaleOf(this.app, part);
    }
    const [from, to] = this.app.view.zoom ?? [0, part.count];
    this.range = [Math.min(from, Math.max(0, part.count - 1)), Math.max(1, Math.min(to, part.count))];
    if (this.range[1] - this.range[0] < 4) this.range = [this.range[0] - 2, this.range[1] + 2];
    this.canvas.setAttribute("aria-label", w().curveName);
    const g = context(this.canvas, this.width, HEIGHT);
    g.font = "11px system-ui, sans-serif";
    this.paintBands(g);
    this.paintGrid(g);
    this.paintModule(g, part);
    this.paintFloor(g, part);
    this.paintErrors(g, part);
    this.paintFaults(g, part);
    this.paintOver(null, null);
  }

  private paintBands(g: CanvasRenderingContext2D): void {
    for (const band of this.bands) {
      const [left, right] = [Math.max(MARGIN.left, this.x(band.start)), Math.min(this.width - MARGIN.right, this.x(band.end))];
      if (right <= left) continue;
      g.fillStyle = colour(`--band-${band.phase}`);
      g.fillRect(left, MARGIN.top, right - left, BOTTOM - MARGIN.top);
      const label = (w() as unknown as Record<string, string>)[band.phase] ?? band.phase;
      if (right - left > g.measureText(label).width + 12) {
        g.fillStyle = colour("--dim");
        g.fillText(label, left + 6, HEIGHT - 8);
      }
    }
  }

  private paintGrid(g: CanvasRenderingContext2D): void {
    g.strokeStyle = colour("--line");
    g.fillStyle = colour("--dim");
    g.textAlign = "right";
    g.lineWidth = 1;
    const decades = this.scale.high - this.scale.low;
    const every = Math.max(1, Math.ceil(decades / 6));
    for (let level = this.scale.high; level >= this.scale.low; level -= every) {
      const line = Math.round(this.y(10 ** level)) + 0.5;
      g.beginPath();
      g.moveTo(MARGIN.left, line);
      g.lineTo(this.width - MARGIN.right, line);
      g.stroke();
      g.fillText(`1e${level}`, MARGIN.left - 6, line + 4);
    }
    g.fillText(w().zero, MARGIN.left - 6, this.y(0) + 4);
    if (this.scale.infinite) g.fillText("∞", MARGIN.left - 6, this.y(Infinity) + 4);
    g.textAlign = "left";
  }

  private paintModule(g: CanvasRenderingContext2D, part: Part): void {
    const { module } = this.app.view;
    if (!module) return;
    const modules = this.app.model.column("module");
    const inside = new Set<number>();
    this.app.model.texts.forEach((text, index) => {
      if (text === module || text.startsWith(`${module}.`)) inside.add(index);
    });
    g.fillStyle = colour("--accent-soft");
    const size = Math.max(1, this.inner() / (this.range[1] - this.range[0]));
    for (let op = this.first(); op < this.end(part); op++)
      if (inside.has(modules[part.start + op] ?? -1)) g.fillRect(this.x(op), MARGIN.top, size, BOTTOM - MARGIN.top);
  }

  private paintFloor(g: CanvasRenderingContext2D, part: Part): void {
    const columns = new Float64Array(Math.ceil(this.inner()) + 1).fill(NaN);
    for (let op = this.first(); op < this.end(part); op++) {
      const floor = this.app.floor[part.start + op] ?? NaN;
      const column = Math.floor(this.x(op + 0.5) - MARGIN.left);
      if (floor > 0 && !((columns[column] ?? NaN) >= floor)) columns[column] = floor;
    }
    g.strokeStyle = colour("--floor");
    g.lineWidth = 1.25;
    g.setLineDash([4, 3]);
    g.beginPath();
    let begun = false;
    columns.forEach((floor, column) => {
      if (Number.isNaN(floor)) return;
      const point: [number, number] = [MARGIN.left + column, this.y(floor)];
      if (begun) g.lineTo(...point);
      else g.moveTo(...point);
      begun = true;
    });
    g.stroke();
    g.setLineDash([]);
  }

  private paintErrors(g: CanvasRenderingContext2D, part: Part): void {
    const columns = Math.ceil(this.inner()) + 1;
    const visibleOps = this.range[1] - this.range[0];
    const single = visibleOps * 3 < this.inner();
    const roles = this.app.model.column("role");
    const order = new Map(ROLES.map((role, index) => [this.app.model.texts.indexOf(role), index]));
    const most = ROLES.map(() => new Float64Array(columns).fill(-1));
    const least = new Float64Array(columns).fill(Infinity);
    const top = new Float64Array(columns).fill(-1);
    for (let op = this.first(); op < this.end(part); op++) {
      const value = this.app.error[part.start + op] ?? NaN;
      if (Number.isNaN(value)) continue;
      const column = Math.floor(this.x(op + 0.5) - MARGIN.left);
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
        if (high > 0 && low < high) g.fillRect(MARGIN.left + column, this.y(high), 1, this.y(low) - this.y(high));
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
        g.arc(MARGIN.left + column, this.y(value), size, 0, 7);
        g.fill();
      });
    }
  }

  private paintFaults(g: CanvasRenderingContext2D, part: Part): void {
    const first = this.app.model.report.first_divergence;
    let labelled = false;
    const shown = this.app.faults.filter((op) => {
      const place = op - part.start;
      return place >= this.range[0] && place < this.range[1] && place < part.count;
    });
    let last = -Infinity;
    for (const op of shown) {
      const px = this.x(op - part.start + 0.5);
      // Where there are very many, as many marks as there is room for stand for them.
      if (px - last < APART) continue;
      last = px;
      const role = this.app.role(op);
      const value = this.app.error[op] ?? NaN;
      const py = this.height(value);
      g.strokeStyle = colour(`--r-${role}`);
      g.globalAlpha = shown.length > MANY ? 0.12 : 0.35;
      g.beginPath();
      g.moveTo(px, MARGIN.top);
      g.lineTo(px, BOTTOM);
      g.stroke();
      g.globalAlpha = 1;
      g.fillStyle = colour(`--r-${role}`);
      g.strokeStyle = colour("--card");
      const path = new Path2D();
      path.addPath(new Path2D(outline(role, 5.5)), new DOMMatrix([1, 0, 0, 1, px, py]));
      g.fill(path);
      g.stroke(path);
      const isFirst =
        first && first.step === part.step && first.rank === part.rank && first.order === this.app.model.whole("order", op);
      if (isFirst && !labelled) {
        labelled = true;
        this.label(g, first.op, px, py);
      }
    }
  }

  /** Writes the name of the first divergence above its mark. */
  private label(g: CanvasRenderingContext2D, op: string, px: number, py: number): void {
    g.font = "600 11.5px system-ui, sans-serif";
    const label = shorten(visible(op), 48);
    const size = g.measureText(label).width;
    const left = px + 10 + size > this.width - MARGIN.right ? px - 10 - size : px + 10;
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

  /** Moving parts: the open op, the op under the pointer, and the range that is being dragged. */
  paintOver(hover: number | null, drag: [number, number] | null): void {
    const g = context(this.over, this.width, HEIGHT);
    const part = this.app.part();
    if (drag) {
      g.fillStyle = colour("--accent-soft");
      g.fillRect(Math.min(...drag), MARGIN.top, Math.abs(drag[1] - drag[0]), BOTTOM - MARGIN.top);
    }
    const ring = (op: number, name: string, line: boolean) => {
      const px = this.x(op - part.start + 0.5);
      if (px < MARGIN.left - 1 || px > this.width - MARGIN.right + 1) return;
      g.strokeStyle = colour(name);
      g.lineWidth = 1;
      if (line) {
        g.beginPath();
        g.moveTo(Math.round(px) + 0.5, MARGIN.top);
        g.lineTo(Math.round(px) + 0.5, BOTTOM);
        g.stroke();
      }
      const value = this.app.error[op] ?? NaN;
      g.lineWidth = 2;
      g.beginPath();
      g.arc(px, this.height(value), 8, 0, 7);
      g.stroke();
    };
    const selected = this.app.selected();
    if (selected >= 0) ring(selected, "--accent", true);
    if (hover !== null) ring(hover, "--ink", false);
  }

  /** The op nearest to the pointer; ops at fault win. */
  nearest(px: number, py: number): number | null {
    const part = this.app.part();
    const [from, to] = [Math.max(0, Math.floor(this.at(px - REACH))), Math.min(part.count, Math.ceil(this.at(px + REACH)))];
    let [best, distance] = [null as number | null, Infinity];
    for (let op = from; op < to; op++) {
      const value = this.app.error[part.start + op] ?? NaN;
      const isFault = this.app.fault[part.start + op] === 1;
      if (Number.isNaN(value) && !isFault) continue;
      const dx = this.x(op + 0.5) - px;
      if (Math.abs(dx) > REACH) continue;
      const dy = this.height(value) - py;
      const found = Math.hypot(dx, dy) - (isFault ? 8 : 0);
      if (found < distance) [best, distance] = [part.start + op, found];
    }
    return best;
  }
}
