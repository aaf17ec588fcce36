//! The mapping as a file for `probe compare --mapping`.

use std::fmt::Write as _;

use crate::checkpoint::Checkpoint;
use crate::placed::Placed;

/// Returns the mapping in TOML: `[[op]]` for tensors that are the whole of another, with the module of both as `[[module]]` where all
/// tensors of it agree. What is made of several tensors has no name of its own on the other side; it is listed in comments.
pub fn mapping(baseline: &Checkpoint, candidate: &Checkpoint, placed: &[Placed]) -> String {
    let mut out = String::from("# Names that belong together, found by the content of the weights.\n");
    let mut modules: Vec<(&str, Option<&str>)> = Vec::new();
    let (mut ops, mut joined) = (String::new(), String::new());
    for (tensor, placed) in candidate.tensors.iter().zip(placed) {
        let Some(layout) = &placed.layout else { continue };
        let names: Vec<&str> =
            layout.sources.iter().map(|source| &*baseline.tensors[source.tensor].name.text).collect();
        let own = &*tensor.name.text;
        match names.as_slice() {
            [one] if layout.is_renamed() => {
                entry(&mut ops, "op", one, own);
                if let (Some((theirs, a)), Some((module, b))) = (one.rsplit_once('.'), own.rsplit_once('.'))
                    && a == b
                {
                    // A rank's label is no part of a module's path.
                    let module = module.rsplit('/').next().unwrap_or(module);
                    match modules.iter_mut().find(|(other, _)| *other == module) {
                        Some((_, known)) if *known != Some(theirs) => *known = None,
                        Some(_) => {}
                        None => modules.push((module, Some(theirs))),
                    }
                }
            }
            _ => _ = writeln!(joined, "# {own:?} = {names:?}: {}", layout.text()),
        }
    }
    for (module, theirs) in modules {
        if let Some(theirs) = theirs.filter(|theirs| *theirs != module) {
            entry(&mut out, "module", theirs, module);
        }
    }
    out + &ops + &joined
}

fn entry(out: &mut String, kind: &str, baseline: &str, candidate: &str) {
    let quoted = |text: &str| toml::Value::String(text.into()).to_string();
    let (baseline, candidate) = (quoted(baseline), quoted(candidate));
    // Writing to a string cannot fail.
    _ = writeln!(out, "\n[[{kind}]]\nbaseline = {baseline}\ncandidate = {candidate}");
}
