// Text from dumps made safe to show, and numbers made short.

import type { Exact } from "./report";

const STEERING =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff]/g;

/** `text` with control characters, and marks that reorder text or have no width, as visible escapes. */
export function visible(text: string): string {
  return text.replace(STEERING, (c) => {
    const code = c.codePointAt(0) ?? 0;
    if (c === "\n") return "\\n";
    if (c === "\r") return "\\r";
    if (c === "\t") return "\\t";
    return code < 0x80 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
  });
}

/** At most `width` characters: the middle gives way, since both ends of an op's name tell something. */
export function shorten(text: string, width: number): string {
  const all = Array.from(text);
  if (all.length <= width) return text;
  const kept = Math.max(0, width - 1);
  const front = Math.floor(kept / 3);
  return `${all.slice(0, front).join("")}…${all.slice(all.length - (kept - front)).join("")}`;
}

/** Returns a number of a file, in which words stand for numbers that are not finite. */
export function numeric(value: Exact | null | undefined): number | null {
  return value === null || value === undefined ? null : Number(value);
}

/** A number as tables show it: empty where it is not known. */
export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined) return "";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Infinity" : "-Infinity";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return value.toLocaleString("en-US");
  if (size >= 1e-3 && size < 1e6) return String(Number(value.toPrecision(digits)));
  return value.toExponential(digits - 1).replace("e+", "e");
}

/** An error: always with its power of ten, so that magnitudes compare at a glance. */
export function error(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value) || value === 0) return number(value);
  return value.toExponential(2).replace("e+", "e");
}

/** Cosines need all digits near 1. */
export function cosine(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return number(value);
  return value.toFixed(6);
}

/** A whole number with separators. */
export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** `0-3, 7` */
export function ranges(list: number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < list.length; ) {
    let end = i;
    while (end + 1 < list.length && list[end + 1] === (list[end] ?? 0) + 1) end++;
    parts.push(end > i ? `${list[i]}-${list[end]}` : `${list[i]}`);
    i = end + 1;
  }
  return parts.join(", ");
}

/** An argument of a shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
