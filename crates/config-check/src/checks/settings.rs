//! Parts that are plain settings: names and values.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::rows::Rows;
use crate::expectations::{KnownSetting, Ruling};
use crate::pack::{DeviceKind, Setting};
use crate::part::{Part, Verdict};
use crate::value;
use crate::value::{Meaning, Sameness};

/// Reason of a row whose values are equal in different forms.
pub(super) const NORMALISED: &str = "the same value in a different form";

/// Reason of a row whose values are masked on both sides.
pub(super) const HIDDEN: &str = "masked on both sides, so it was not compared";

/// Settings of one side.
struct SideSettings {
    values: HashMap<String, Setting>,
    kind: Option<DeviceKind>,
}

/// Compares two lists of settings in baseline order; candidate-only settings come last.
pub(super) fn compare(rows: &mut Rows<'_>, a: Vec<(String, Setting)>, b: Vec<(String, Setting)>) {
    let order: Vec<String> = a.iter().chain(&b).map(|(key, _)| key.clone()).collect();
    let pair = rows.pair();
    let sides = [
        SideSettings { values: a.into_iter().collect(), kind: pair.baseline },
        SideSettings { values: b.into_iter().collect(), kind: pair.candidate },
    ];
    let meaning = rows.expectations().default_of(rows.part()).meaning;
    let mut done: HashSet<String> = HashSet::new();
    for key in order {
        if done.contains(&key) {
            continue;
        }
        if let Some(setting) = rows.expectations().setting(rows.part(), &key) {
            done.extend(setting.keys().map(str::to_owned));
            known(rows, setting, &sides);
        } else {
            let [a, b] = sides.each_ref().map(|side| side.values.get(&key));
            value_row(rows, &key, a, b, meaning);
            done.insert(key);
        }
    }
}

/// Adds a row for a setting without an entry in the table.
pub(super) fn value_row(
    rows: &mut Rows<'_>,
    key: &str,
    a: Option<&Setting>,
    b: Option<&Setting>,
    meaning: Meaning,
) {
    let (Some(a), Some(b)) = (a, b) else {
        rows.one_sided(key, a.map(ToString::to_string), b.map(ToString::to_string));
        return;
    };
    let (shown_a, shown_b) = (a.to_string(), b.to_string());
    match value::compare(a, b, meaning) {
        Sameness::Equal => rows.equal(key, &shown_a, &shown_b, ""),
        Sameness::Normalised => rows.equal(key, &shown_a, &shown_b, NORMALISED),
        Sameness::Hidden => rows.push(key, Some(shown_a), Some(shown_b), Ruling::new(Verdict::Note, HIDDEN)),
        Sameness::Differs => rows.differ(key, shown_a, shown_b),
    }
}

/// Adds a row for a setting with an entry in the table.
fn known(rows: &mut Rows<'_>, setting: &KnownSetting, sides: &[SideSettings; 2]) {
    // The first of its names that the side has; on a GPU that is rarely the NPU name.
    let used = sides.each_ref().map(|side| setting.keys().find(|key| side.values.contains_key(*key)));
    let key = setting.label(used);
    let found = [0, 1].map(|side: usize| used[side].and_then(|name| sides[side].values.get(name)));
    let effective = [0, 1].map(|side: usize| {
        // The other framework may have another default, or no such switch.
        let is_framework = rows.part() == Part::Flags && rows.pair().across_frameworks;
        let has_default = !is_framework && setting.applies_to(sides[side].kind);
        let unset = || has_default.then(|| setting.unset(sides[side].kind)).flatten();
        found[side].map(Cow::Borrowed).or_else(|| unset().map(Cow::Owned))
    });
    let shown = [0, 1].map(|side: usize| match (&found[side], &effective[side]) {
        (Some(value), _) => Some(value.to_string()),
        (None, Some(value)) => Some(format!("unset, which means {value}")),
        (None, None) => None,
    });
    let ruling = decide(rows, &key, setting, sides, effective.each_ref().map(Option::as_deref));
    let [a, b] = shown;
    rows.push(&key, a, b, ruling);
}

fn decide(
    rows: &Rows<'_>,
    key: &str,
    setting: &KnownSetting,
    sides: &[SideSettings; 2],
    [a, b]: [Option<&Setting>; 2],
) -> Ruling {
    if let Some(ruling) = setting.judged(rows.pair(), a, b) {
        return ruling;
    }
    if let (Some(a), Some(b)) = (a, b) {
        return match value::compare(a, b, setting.meaning()) {
            Sameness::Equal => Ruling::new(Verdict::Match, ""),
            Sameness::Normalised if setting.meaning() == Meaning::Ids => {
                Ruling::new(Verdict::Match, "the same number of devices; their indices do not matter")
            }
            Sameness::Normalised => Ruling::new(Verdict::Match, NORMALISED),
            Sameness::Hidden => Ruling::new(Verdict::Note, HIDDEN),
            Sameness::Differs => setting.differs(rows.pair()),
        };
    }
    if rows.pair().across_frameworks
        && let Some(ruling) =
            rows.rule(key, a.map(ToString::to_string).as_deref(), b.map(ToString::to_string).as_deref())
    {
        return ruling;
    }
    let lacking = if a.is_none() { sides[0].kind } else { sides[1].kind };
    if !setting.applies_to(lacking) {
        return setting.alone();
    }
    if setting.meaning() == Meaning::Ids {
        let why = "unset makes every device visible; the device count is listed under platform";
        return Ruling::new(Verdict::Note, why);
    }
    // All variable names are recorded, so a missing one was not set.
    if rows.part() == Part::Env { setting.differs(rows.pair()) } else { rows.default_ruling(false) }
}
