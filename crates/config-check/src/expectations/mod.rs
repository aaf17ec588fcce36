//! Expected differences between two set-ups, and the meaning of each difference: data, not code.
//!
//! `expectations.toml` next to this module ships with probe; a user's file has the same format and is consulted
//! first. `docs/config-check.md` describes the keys.

mod entry;
mod file;
mod ruling;

use std::collections::HashMap;
use std::path::Path;

pub(crate) use entry::KnownSetting;
pub(crate) use file::{Limits, PartDefault, Vote};
pub(crate) use ruling::Ruling;

use file::{Alias, Class, DtypeFlag, File, Grade, Rule};

use super::error::ConfigError;
use super::pack::AllowedVariables;
use super::pair::DevicePair;
use super::part::{Part, Verdict};
use super::{pip_name, wildcard};
use probe_files::settings::{self, SettingsError};

/// The table shipped with probe.
const SHIPPED: &str = include_str!("../expectations.toml");

/// Spellings of dtypes in hyperparameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SaysDtype<'a> {
    /// Its value is the dtype.
    Value,
    /// It selects this dtype when on.
    Switch(&'a str),
}

/// Both tables, ready for lookup.
#[derive(Debug)]
pub struct Expectations {
    user_rules: Vec<Rule>,
    rules: Vec<Rule>,
    settings: Vec<KnownSetting>,
    /// Indices into `settings` by part and key.
    places: HashMap<Part, HashMap<String, usize>>,
    allow: Vec<String>,
    wrappers: Vec<String>,
    aliases: Vec<Alias>,
    classes: Vec<Class>,
    grades: Vec<Grade>,
    dtype_flags: Vec<DtypeFlag>,
    votes: Vec<Vote>,
    parts: HashMap<Part, PartDefault>,
    limits: Limits,
}

/// The fields of a row that rules match on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) part: Part,
    pub(crate) key: &'a str,
    pub(crate) baseline: Option<&'a str>,
    pub(crate) candidate: Option<&'a str>,
}

impl Expectations {
    /// Loads the table shipped with probe, preceded by the user's own if there is one.
    ///
    /// # Errors
    /// [`ConfigError::Settings`] that names the file and the line or the entry.
    pub fn load(user: Option<&Path>) -> Result<Self, ConfigError> {
        match user {
            Some(path) => Ok(settings::load(path, |text| Self::of(Some(text)))?),
            None => Self::of(None).map_err(|message| {
                SettingsError::Format { path: "expectations.toml".into(), message }.into()
            }),
        }
    }

    /// Like [`load`](Self::load), with the text of the user's file.
    ///
    /// # Errors
    /// The problem, on one line.
    pub fn of(user: Option<&str>) -> Result<Self, String> {
        let shipped =
            File::parse(SHIPPED).map_err(|message| format!("the table of this build: {message}"))?;
        let user = user.map_or_else(|| Ok(File::default()), File::parse)?;
        let limits = user.limits.or(shipped.limits).ok_or("the table of this build has no limits")?;
        let settings: Vec<KnownSetting> =
            user.setting.into_iter().chain(shipped.setting).filter_map(KnownSetting::of).collect();
        let mut places: HashMap<Part, HashMap<String, usize>> = HashMap::new();
        for (place, setting) in settings.iter().enumerate() {
            for key in setting.keys() {
                // The first entry wins: the user's precede ours.
                places.entry(setting.part).or_default().entry(key.to_owned()).or_insert(place);
            }
        }
        let mut parts = HashMap::new();
        for (name, default) in shipped.part.into_iter().chain(user.part) {
            parts.insert(Part::parse(&name).ok_or_else(|| format!("unknown part {name:?}"))?, default);
        }
        Ok(Self {
            user_rules: user.rule,
            rules: shipped.rule,
            settings,
            places,
            allow: [user.allow, shipped.allow].concat(),
            wrappers: [user.wrappers, shipped.wrappers].concat(),
            aliases: [user.alias, shipped.alias].concat(),
            classes: [user.class, shipped.class].concat(),
            grades: [user.package, shipped.package].concat(),
            dtype_flags: [user.dtype_flag, shipped.dtype_flag].concat(),
            votes: [user.vote, shipped.vote].concat(),
            parts,
            limits,
        })
    }

    /// Returns the user's ruling on a row.
    pub(crate) fn user_ruling(&self, pair: DevicePair, subject: Subject<'_>) -> Option<Ruling> {
        let rule = self.user_rules.iter().find(|rule| rule.is_about(pair, subject))?;
        let why = if rule.why.is_empty() { format!("user rule {:?}", rule.key) } else { rule.why.clone() };
        Some(Ruling { verdict: rule.verdict, why, todo: rule.todo.clone() })
    }

    /// Returns the table's ruling on a row that differs or that one side lacks.
    pub(crate) fn ruling(&self, pair: DevicePair, subject: Subject<'_>) -> Option<Ruling> {
        let rule = self.rules.iter().find(|rule| rule.is_about(pair, subject))?;
        Some(Ruling { verdict: rule.verdict, why: rule.why.clone(), todo: rule.todo.clone() })
    }

    /// Returns the default ruling of a part.
    pub(crate) fn default_of(&self, part: Part) -> PartDefault {
        self.parts.get(&part).cloned().unwrap_or_else(|| PartDefault {
            differs: Verdict::Diff,
            one_sided: Verdict::Unknown,
            ..PartDefault::default()
        })
    }

    /// Returns the setting of `part` called `key`.
    pub(crate) fn setting(&self, part: Part, key: &str) -> Option<&KnownSetting> {
        self.settings.get(*self.places.get(&part)?.get(key)?)
    }

    /// Returns names and patterns of the variables whose values a pack may hold.
    pub fn allow_list(&self) -> Vec<String> {
        let known = self.places.get(&Part::Env).into_iter().flat_map(HashMap::keys);
        let mut list: Vec<String> = known.chain(&self.allow).cloned().collect();
        list.sort_unstable();
        list.dedup();
        list
    }

    /// Returns true if a name in a module path comes from a wrapper.
    fn is_wrapper(&self, name: &str) -> bool {
        self.wrappers.iter().any(|wrapper| wrapper == name)
    }

    /// Returns the path of a module or tensor without names added by wrappers: known wrapper names at the front, and names
    /// beginning with `_` anywhere, which no module of a model has.
    pub(crate) fn bare_name(&self, name: &str) -> String {
        let mut front = true;
        let mut kept: Vec<&str> = Vec::new();
        for part in name.split('.') {
            if self.is_wrapper(part) && (front || part.starts_with('_')) {
                continue;
            }
            front = false;
            kept.push(part);
        }
        kept.join(".")
    }

    /// Returns the variables and packages that indicate a kind of device.
    pub(crate) fn votes(&self) -> &[Vote] {
        &self.votes
    }

    /// Returns the numeric thresholds.
    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the ruling on two classes that are interchangeable.
    pub(crate) fn classes(&self, a: &str, b: &str) -> Option<Ruling> {
        let has =
            |class: &Class, name: &str| class.names.iter().any(|pattern| wildcard::matches(pattern, name));
        let class = self.classes.iter().find(|class| has(class, a) && has(class, b))?;
        Some(Ruling::new(class.verdict, &*class.why))
    }

    /// Returns the meaning of a package; `name` is normalised.
    pub(crate) fn grade(&self, name: &str) -> Option<PackageGrade<'_>> {
        let has = |grade: &&Grade| grade.names.iter().any(|pattern| wildcard::matches(pattern, name));
        self.grades.iter().find(has).map(PackageGrade)
    }

    /// Returns all names of a hyperparameter; `name` is the last name of its key, with `_`.
    pub(crate) fn aliases(&self, name: &str) -> &[String] {
        let has = |alias: &&Alias| alias.names.iter().any(|known| known == name);
        self.aliases.iter().find(has).map_or(&[], |alias| &alias.names)
    }

    /// Returns how the hyperparameter `name` (its last name) sets the dtype of a run, if it does.
    pub(crate) fn says_dtype(&self, name: &str) -> Option<SaysDtype<'_>> {
        let flag = self.dtype_flags.iter().find(|flag| flag.name == name)?;
        Some(flag.gives.as_deref().map_or(SaysDtype::Value, SaysDtype::Switch))
    }
}

impl AllowedVariables for Expectations {
    /// Allows the variables of the table and those that match the allow list.
    fn allows(&self, variable: &str) -> bool {
        self.setting(Part::Env, variable).is_some()
            || self.allow.iter().any(|pattern| wildcard::matches(pattern, variable))
    }
}

/// Meaning of a difference in a package.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackageGrade<'a>(&'a Grade);

impl PackageGrade<'_> {
    /// Returns the ruling on two versions.
    pub(crate) fn differs(self) -> Ruling {
        Ruling::new(self.0.differs, &*self.0.why).todo(&*self.0.todo)
    }

    /// Returns the ruling on a package that one side lacks; `kind` is the device of the side that
    /// has it.
    pub(crate) fn one_sided(self, pair: DevicePair, name: &str) -> Ruling {
        match self.0.vendor {
            Some(_) if !pair.is_same() => {
                let name = pip_name::normalised(name);
                Ruling::new(
                    Verdict::Expected,
                    format!("{name} belongs to one kind of device: {}", self.0.why),
                )
            }
            _ => Ruling::new(self.0.one_sided, &*self.0.why).todo(&*self.0.todo),
        }
    }
}

impl Rule {
    fn is_about(&self, pair: DevicePair, subject: Subject<'_>) -> bool {
        let sides = match (subject.baseline, subject.candidate) {
            (Some(_), Some(_)) => "both",
            _ => "one",
        };
        self.part.is_none_or(|part| part == subject.part)
            && (self.sides.is_empty() || self.sides == sides)
            && (self.pairs.is_empty() || self.pairs.iter().any(|class| pair.is(class)))
            && wildcard::matches(&self.key, subject.key)
            && self.values_match(subject)
    }

    fn values_match(&self, subject: Subject<'_>) -> bool {
        let [one, other] = self.values.as_slice() else { return true };
        let (Some(a), Some(b)) = (subject.baseline, subject.candidate) else { return false };
        let fits = |x: &str, y: &str| wildcard::matches(one, x) && wildcard::matches(other, y);
        fits(a, b) || fits(b, a)
    }
}

#[cfg(test)]
mod tests;
