// A pane of the list on the left.

import type { View } from "./state";

export interface Pane {
  element: HTMLElement;
  /** It has come into view. */
  shown(): void;
  changed(changed: Set<keyof View>): void;
}
