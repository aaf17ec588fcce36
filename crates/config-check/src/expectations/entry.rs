//! A setting of the table: its names, the meaning of an unset value, and the meaning of its values.

use super::file::{Entry, When};
use super::ruling::Ruling;
use crate::pack::{DeviceKind, Setting};
use crate::pair::DevicePair;
use crate::part::Part;
use crate::value;
use crate::value::{Meaning, Sameness};

/// A setting listed in the table.
#[derive(Debug)]
pub(crate) struct KnownSetting {
    pub(crate) part: Part,
    entry: Entry,
}

impl KnownSetting {
    pub(super) fn of(entry: Entry) -> Option<Self> {
        Some(Self { part: entry.part?, entry })
    }

    /// Returns all its keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        [&self.entry.key, &self.entry.gpu, &self.entry.npu].into_iter().flatten().map(|key| &**key)
    }

    /// Returns the row key: the names for both kinds if they differ.
    pub(crate) fn label(&self, used: [Option<&str>; 2]) -> String {
        match used {
            [Some(a), Some(b)] if a == b => a.to_owned(),
            [Some(one), None] | [None, Some(one)] => one.to_owned(),
            _ => self.keys().collect::<Vec<_>>().join(" / "),
        }
    }

    /// Returns the interpretation of its values.
    pub(crate) const fn meaning(&self) -> Meaning {
        self.entry.meaning
    }

    /// Returns true if a run on this kind of device can have it. A run without accelerator may stand in for
    /// either kind.
    pub(crate) const fn applies_to(&self, kind: Option<DeviceKind>) -> bool {
        match kind {
            _ if self.entry.key.is_some() => true,
            Some(DeviceKind::Gpu) => self.entry.gpu.is_some(),
            Some(DeviceKind::Npu) => self.entry.npu.is_some(),
            Some(DeviceKind::Cpu) | None => true,
        }
    }

    /// Returns the effective value if unset.
    pub(crate) fn unset(&self, kind: Option<DeviceKind>) -> Option<Setting> {
        self.entry.unset(kind)
    }

    /// Returns the ruling for values that differ.
    pub(crate) fn differs(&self, pair: DevicePair) -> Ruling {
        let mixed = self.entry.mixed.filter(|_| pair.is_mixed());
        self.ruling(mixed.unwrap_or(self.entry.differs))
    }

    /// Returns the ruling for a value whose counterpart cannot exist on the other kind of device.
    pub(crate) fn alone(&self) -> Ruling {
        let mut ruling = self.ruling(self.entry.alone);
        if ruling.why.is_empty() {
            ruling.why = "the other kind of device has no such setting".into();
        }
        ruling
    }

    fn ruling(&self, verdict: crate::Verdict) -> Ruling {
        Ruling::new(verdict, &*self.entry.why).todo(&*self.entry.todo)
    }

    /// Returns the ruling that the values themselves call for.
    pub(crate) fn judged(
        &self,
        pair: DevicePair,
        a: Option<&Setting>,
        b: Option<&Setting>,
    ) -> Option<Ruling> {
        let has = |side: Option<&Setting>, when: &When| {
            side.is_some_and(|value| {
                let wanted = Setting::from(&*when.value);
                !matches!(value::compare(value, &wanted, self.entry.meaning), Sameness::Differs)
            })
        };
        let holds = |when: &&When| {
            (when.pairs.is_empty() || when.pairs.iter().any(|class| pair.is(class)))
                && if when.on == "both" { has(a, when) && has(b, when) } else { has(a, when) || has(b, when) }
        };
        let when = self.entry.when.iter().find(holds)?;
        let why = if when.why.is_empty() { &self.entry.why } else { &when.why };
        Some(Ruling::new(when.verdict, why).todo(&*when.todo))
    }
}
