// Roles by colour and by shape: never by colour alone.

import { s } from "./dom";

export const ROLES = ["introduces", "amplifies", "propagates", "recovers", "clean", "unknown", "unpaired"] as const;

/** Roles of ops that are looked for. */
export function isFault(role: string, cause: string): boolean {
  return cause !== "" || role === "introduces" || role === "amplifies";
}

/** The mark of a role as an outline around (0, 0). */
export function outline(role: string, r: number): string {
  switch (role) {
    case "introduces":
      return `M0 ${-r * 1.15}L${r * 1.1} ${r * 0.85}L${-r * 1.1} ${r * 0.85}Z`;
    case "amplifies":
      return `M0 ${-r * 1.2}L${r * 1.2} 0L0 ${r * 1.2}L${-r * 1.2} 0Z`;
    case "unpaired":
      return `M${-r * 0.9} ${-r * 0.9}H${r * 0.9}V${r * 0.9}H${-r * 0.9}Z`;
    default:
      return `M${-r} 0A${r} ${r} 0 1 0 ${r} 0A${r} ${r} 0 1 0 ${-r} 0Z`;
  }
}

/** A small drawing of the mark, for text. */
export function mark(role: string): SVGSVGElement {
  const hollow = role === "recovers" || role === "unknown";
  return s(
    "svg",
    { class: `mark role-${role}`, viewBox: "-6 -6 12 12", width: 12, height: 12, "aria-hidden": "true" },
    s("path", { d: outline(role, role === "clean" ? 2.6 : 4.2), class: hollow ? "hollow" : "solid" }),
  );
}
