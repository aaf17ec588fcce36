//! Names what ran below the op of a finding, where the candidate's operators were recorded below Python as well, and what called an
//! operator that was recorded there itself.

use std::path::Path;

#[cfg(feature = "native")]
use crate::dump::native::{MANIFEST, RUNTIME_FOLDER};
use crate::dump::{Dump, Rank};
use crate::judge::Finding;
use crate::pair::PartPair;
#[cfg(feature = "native")]
use crate::read;
use crate::read::map::FileAccess;

/// Findings of a part that are looked up.
const MAX_FINDINGS: usize = 10;
/// Operators that are named for one op; an op that takes more is told of by its first ones.
const MAX_NAMED: usize = 8;

/// The dump of operators that stands in the candidate's.
#[derive(Debug)]
pub(super) struct Below(Option<Dump>);

impl Below {
    /// Of the candidate at `path`. What cannot be read is as if it were not there: it only adds to an answer.
    #[cfg(feature = "native")]
    pub(super) fn of(path: &Path, access: FileAccess) -> Self {
        let folder = path.join(RUNTIME_FOLDER);
        let there = folder.join(MANIFEST).is_file();
        Self(there.then(|| read::open(&folder, access).ok()).flatten())
    }

    /// Nothing stands there: the format of such dumps is not built in.
    #[cfg(not(feature = "native"))]
    pub(super) const fn of(_: &Path, _: FileAccess) -> Self {
        Self(None)
    }

    /// Completes `findings`, which are those of `pair`.
    pub(super) fn complete(&self, pair: &PartPair, findings: &mut [Finding]) {
        if findings.is_empty() {
            return;
        }
        let part = self.part(pair);
        for finding in findings.iter_mut().take(MAX_FINDINGS) {
            let own = pair.candidate.ops.iter().find(|op| op.name.as_str() == finding.op);
            finding.caller = own.and_then(|op| op.caller()).map(str::to_owned);
            let below = part.iter().flat_map(|part| &part.ops).filter(|op| op.caller() == Some(&finding.op));
            finding.below = below.take(MAX_NAMED).map(|op| op.name.as_str().to_owned()).collect();
        }
    }

    fn part(&self, pair: &PartPair) -> Option<Rank> {
        let dump = self.0.as_ref()?;
        let key = dump.parts.iter().find(|key| key.step == pair.step && key.rank.number() == pair.rank)?;
        dump.reader.read(key).ok()
    }
}
