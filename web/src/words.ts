// The page's own words in two languages. What the result says (reasons, notes, names) stays as it was written.

import { ZH } from "./chinese";
import { EN } from "./english";

export type Language = "en" | "zh";

let current: Language = "en";

/** The words of the language that is shown. */
export function w(): typeof EN {
  return current === "zh" ? ZH : EN;
}

export function language(): Language {
  return current;
}

export function speak(language: Language): void {
  current = language;
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
}

/** A sentence with its numbers. */
export function say(text: string, values: Record<string, string | number>): string {
  return text.replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? ""));
}

/** A word of the result in the language that is shown. */
export function named(
  list: "roleNames" | "causeNames" | "verdictNames" | "partNames" | "kindNames" | "statusNames" | "stateTitles" | "stateTexts" | "rolloutTitles",
  word: string,
): string {
  return w()[list][word] ?? word;
}
