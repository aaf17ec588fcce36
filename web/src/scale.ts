// Axes of the error curve: passes along it, powers of ten across.

import type { App } from "./app";
import type { Part } from "./data";

/** The least power of ten that is shown. */
const LEAST = -14;

export interface Band {
  start: number;
  end: number;
  phase: string;
}

export interface Scale {
  low: number;
  high: number;
  /** Some error is infinite: the baseline is zero, or a value is no number. */
  infinite: boolean;
}

/** Where the passes begin and end. */
export function bandsOf(app: App, part: Part): Band[] {
  const bands: Band[] = [];
  for (let op = 0; op < part.count; op++) {
    const phase = app.phase(part.start + op);
    const name = phase === "gradient" ? "backward" : phase || "other";
    const last = bands.at(-1);
    if (last && last.phase === name) last.end = op + 1;
    else bands.push({ start: op, end: op + 1, phase: name });
  }
  return bands;
}

/** Whole powers of ten around all errors and floors. */
export function scaleOf(app: App, part: Part): Scale {
  let [low, high, infinite] = [Infinity, -Infinity, false];
  for (let op = part.start; op < part.start + part.count; op++) {
    for (const value of [app.error[op] ?? NaN, app.floor[op] ?? NaN]) {
      if (value === Infinity) infinite = true;
      if (!(value > 0) || !Number.isFinite(value)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  if (low > high) return { low: -8, high: 0, infinite };
  const ends = { low: Math.max(LEAST, Math.floor(Math.log10(low))), high: Math.ceil(Math.log10(high)), infinite };
  return ends.high - ends.low < 3 ? { ...ends, low: ends.high - 3 } : ends;
}
