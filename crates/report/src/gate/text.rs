//! The answer as text, for the terminal and for `gate.txt`. It fits one screen; the first line is the answer.

use std::path::PathBuf;

use crate::lines::Lines;
use crate::number::{counted, thousands};
use crate::paint::{Colour, Paint, Style};
use crate::visible::{shorten, visible};
use probe_gate::environment::Difference;
use probe_gate::policy::Effect;
use probe_gate::{Culprit, GateOutcome, MovedBy, State, Status};

/// Column at which the text after a label starts.
const INDENT: usize = 12;

/// Maximum length of a reason, in characters.
const REASON: usize = 300;

/// Lines of a screen, minus the prompt.
const SCREEN: usize = 23;

/// Entries per list and characters per reason, from ample to terse; the first layout that fits the screen is used.
const LAYOUTS: [(usize, usize); 6] = [(3, REASON), (3, 160), (2, 160), (2, 100), (1, 160), (1, 80)];

/// Layout of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GateTextOptions {
    /// Use of colours.
    pub colour: Colour,
    /// Line width in characters.
    pub width: usize,
    /// Maximum number of lines: fewer culprits, places, settings and remarks are listed, and reasons are cut, until the answer fits. `None` shows
    /// everything.
    pub lines: Option<usize>,
    /// Report files to name at the end.
    pub written: Vec<PathBuf>,
}

impl Default for GateTextOptions {
    fn default() -> Self {
        Self { colour: Colour::Never, width: 100, lines: Some(SCREEN), written: Vec::new() }
    }
}

impl GateTextOptions {
    /// Shows everything.
    pub fn complete() -> Self {
        Self { lines: None, ..Self::default() }
    }
}

/// Returns the answer in one line, without a line break.
pub fn answer(outcome: &GateOutcome) -> String {
    let state = outcome.state.name();
    let gated = counted(outcome.cases.len() as u64, "case");
    let blamed: Vec<_> = outcome.to_blame().collect();
    let first = blamed.first().map(|culprit| {
        let more = match *blamed {
            [_, second] => format!(", and {} ({})", visible(&second.title()), second.cause),
            [_, _, ..] => format!(", and {}", counted(blamed.len() as u64 - 1, "more culprit")),
            _ => String::new(),
        };
        format!("{} ({}), {}{more}", visible(&culprit.title()), culprit.cause, culprit.place())
    });
    let first = first.unwrap_or_else(|| "no bound is broken".to_owned());
    match outcome.state {
        State::Pass => {
            let waived = outcome.culprits.len();
            let waived = if waived > 0 {
                format!(", {} waived", counted(waived as u64, "fault"))
            } else {
                String::new()
            };
            format!("{state}: {gated}{waived}")
        }
        State::Regression => format!("{state}: {first}"),
        State::Drift => {
            let moved = outcome.environment.differences.len() as u64;
            if moved == 0 {
                return format!("{state}: {first}; the base commit gives the same numbers");
            }
            format!("{state}: {first}; the environment differs in {}", counted(moved, "setting"))
        }
        State::Flaky => {
            format!("{state}: {first}; the same commit in the same environment passed and failed")
        }
        State::Unverified => {
            let places = counted(outcome.unverified.len() as u64, "place");
            format!("{state}: {places} could not be judged; {first}")
        }
    }
}

/// Returns text such as `torch 2.7.1 became 2.8.0`.
pub(super) fn moved(difference: &Difference) -> String {
    let value = |value: &Option<String>| {
        value.as_deref().map_or_else(|| "nothing".to_owned(), |text| visible(text).into_owned())
    };
    format!(
        "{} {} became {}",
        visible(&difference.name),
        value(&difference.baseline),
        value(&difference.candidate)
    )
}

/// Returns the whole answer, ending in a line break.
pub fn render(outcome: &GateOutcome, options: &GateTextOptions) -> String {
    let Some(most) = options.lines else { return laid_out(outcome, options, (usize::MAX, REASON)) };
    let mut text = String::new();
    for layout in LAYOUTS {
        text = laid_out(outcome, options, layout);
        if text.lines().count() <= most {
            break;
        }
    }
    text
}

/// Returns the answer with at most this many entries per list and characters per reason.
fn laid_out(outcome: &GateOutcome, options: &GateTextOptions, layout: (usize, usize)) -> String {
    let (top, reason) = layout;
    let mut lines = Lines::new(options.width, Paint(options.colour));
    let said = answer(outcome);
    let (head, rest) = said.split_once(':').unwrap_or((&said, ""));
    let style = match outcome.state {
        State::Pass => Style::Good,
        State::Regression => Style::Bad,
        State::Drift | State::Flaky | State::Unverified => Style::Warn,
    };
    lines.begin("", 0);
    lines.whole(style, &format!("{head}:"));
    lines.words(rest);
    lines.end();
    let shown: Vec<&Culprit> = outcome.culprits.iter().take(top).collect();
    for culprit in &shown {
        lines.end();
        about(&mut lines, culprit, reason);
    }
    let rest = outcome.culprits.len() - shown.len();
    if rest > 0 {
        lines.end();
        lines.line(Style::Plain, &format!("and {}", counted(rest as u64, "more culprit")));
    }
    lines.end();
    for (label, side) in [("baseline", &outcome.baseline), ("candidate", &outcome.candidate)] {
        lines.begin(label, INDENT);
        for path in &side.paths {
            lines.whole(Style::Plain, &visible(&path.display().to_string()));
        }
        lines.words(&format!("({}, {})", side.format, counted(side.steps as u64, "step")));
        lines.end();
    }
    label(&mut lines, "gated", &tallies(outcome));
    environment(&mut lines, outcome, layout);
    let places = outcome.unverified.iter().map(|entry| format!("{}: {}", entry.place, entry.reason));
    list(&mut lines, "unverified", places, layout);
    list(&mut lines, "evidence", outcome.evidence.iter().cloned(), layout);
    list(
        &mut lines,
        "narrowed",
        outcome.narrowed.iter().cloned(),
        (top, if top == usize::MAX { reason } else { reason.min(100) }),
    );
    list(&mut lines, "note", outcome.notes.iter().cloned(), layout);
    if outcome.state != State::Pass || !outcome.culprits.is_empty() {
        label(&mut lines, "more", &outcome.next);
    }
    if !options.written.is_empty() {
        let folder =
            options.written[0].parent().map(|folder| folder.display().to_string()).unwrap_or_default();
        let names: Vec<String> = options
            .written
            .iter()
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        label(&mut lines, "written", &format!("{folder}: {}", names.join(", ")));
    }
    lines.into_text()
}

fn label(lines: &mut Lines, label: &str, text: &str) {
    lines.begin(label, INDENT);
    lines.words(&visible(text));
    lines.end();
}

fn about(lines: &mut Lines, culprit: &Culprit, reason: usize) {
    lines.begin(culprit.kind.name(), INDENT);
    lines.whole(Style::Bad, &visible(&culprit.name));
    lines.whole(Style::Plain, &visible(&culprit.slot));
    lines.words(&format!("at {}", culprit.place()));
    lines.end();
    if let Some(module) = culprit.module.as_ref().filter(|module| !culprit.name.contains(*module)) {
        label(lines, "  module", module);
    }
    if let Some(source) = &culprit.source {
        label(lines, "  source", source);
    }
    label(lines, "  cause", &format!("{}: {}", culprit.cause, shorten(&culprit.reason, reason)));
    if culprit.followers > 0 {
        label(lines, "  followers", &counted(culprit.followers, "op"));
    }
    if let Some(waived) = &culprit.waived {
        label(lines, "  waived", waived);
    }
}

fn tallies(outcome: &GateOutcome) -> String {
    let words = [
        (Status::Passed, "passed"),
        (Status::Failed, "failed"),
        (Status::Follows, "differ because of them"),
        (Status::Waived, "waived"),
        (Status::Unverified, "not verified"),
    ];
    let counts: Vec<String> = words
        .into_iter()
        .filter(|(status, _)| outcome.count(*status) > 0)
        .map(|(status, word)| format!("{} {word}", thousands(outcome.count(status) as u64)))
        .collect();
    let policy = outcome.policy.as_ref().map_or_else(
        || "no policy: scalars must be equal, values are judged as in probe compare".to_owned(),
        |path| path.display().to_string(),
    );
    format!(
        "{} ({policy}, {:.2} s)",
        if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") },
        outcome.seconds
    )
}

fn environment(lines: &mut Lines, outcome: &GateOutcome, layout: (usize, usize)) {
    list(lines, "environment", outcome.environment.differences.iter().map(moved), layout);
    if let Some(said) = moved_by(outcome) {
        label(lines, "", &said);
    } else if outcome.state == State::Drift {
        let effect = if outcome.effect == Effect::Neutral { ", which the policy lets pass" } else { "" };
        label(
            lines,
            "",
            &format!(
                "code or environment{effect}? Run the base commit here: if it equals the baseline, the commit is to blame; if it equals the \
                 candidate, refresh the baseline with `probe baseline update`"
            ),
        );
    }
}

/// Returns the result of running the base commit in the new environment.
pub(super) fn moved_by(outcome: &GateOutcome) -> Option<String> {
    let effect = if outcome.effect == Effect::Neutral { ", which the policy lets pass" } else { "" };
    Some(match outcome.moved_by? {
        MovedBy::Commit => {
            "the base commit, run here, gives different numbers: the commit changed them".to_owned()
        }
        MovedBy::Environment => {
            let what = if outcome.environment.differences.is_empty() {
                "something not recorded or an earlier commit changed them, not this commit"
            } else {
                "the environment changed them, not this commit"
            };
            format!(
                "the base commit, run here, gives the same numbers: {what}{effect}. Refresh the baseline with `probe baseline update \
                 --accept --reason WHY`"
            )
        }
    })
}

fn list(lines: &mut Lines, name: &str, entries: impl Iterator<Item = String>, (top, reason): (usize, usize)) {
    let entries: Vec<String> = entries.collect();
    for (index, entry) in entries.iter().take(top).enumerate() {
        label(lines, if index == 0 { name } else { "" }, &shorten(entry, reason));
    }
    if entries.len() > top {
        label(lines, "", &format!("and {} more", thousands((entries.len() - top) as u64)));
    }
}
