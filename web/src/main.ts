// Begins: reads the answer and shows the view that it is made for.

import { compare } from "./compare";
import { config } from "./config";
import { head } from "./data";
import { h, replace } from "./dom";
import { begin } from "./frame";
import { gate } from "./gate";
import { rollout } from "./rollout";
import { w } from "./words";

async function main(): Promise<void> {
  const root = document.getElementById("app");
  if (!root) return;
  begin();
  try {
    const found = await head();
    if (found.kind === "compare") await compare(root, found);
    else if (found.kind === "config") config(root, found);
    else if (found.kind === "gate") gate(root, found);
    else if (found.kind === "rollout") rollout(root, found);
    else throw new Error(`unknown kind of page: ${found.kind}`);
  } catch (error) {
    replace(root, h("div", { class: "failed" }, h("h1", {}, w().failed), h("p", {}, String(error))));
    throw error;
  }
}

void main();
