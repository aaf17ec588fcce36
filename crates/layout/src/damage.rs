//! Values whose data should be there and cannot be read on a rank: statistics alone would explain them wrongly.

use std::sync::Arc;

use rayon::prelude::*;

use probe_dump::{Rank, TensorRecord, TensorStore};

use super::infer::{Held, Inferred, classes, sizes};
use super::job::Gathered;
use super::layout::{Among, Layout};

/// Returns the reason the data of one of these pieces cannot be read; `None` if all can, or if nothing says that there is any.
pub(crate) fn damage(pieces: &[Held<'_>]) -> Option<Box<str>> {
    pieces.iter().find_map(|(record, store)| {
        let reason = |key: &str| match store.load(key) {
            Ok(data) => Some(format!("{key}: {}", data.fault()?).into()),
            Err(error) => Some(error.to_string().into()),
        };
        record.damage.clone().or_else(|| reason(record.data.as_deref()?))
    })
}

impl Gathered {
    /// Marks values of which a piece, or the other run's value, cannot be read: they have no layout. Returns their jobs.
    pub(crate) fn without_damaged(
        &mut self,
        inferred: &mut [Inferred],
        stores: &[Arc<dyn TensorStore>],
        other: &Rank,
    ) -> Vec<usize> {
        let found: Vec<Option<Box<str>>> = self
            .jobs
            .par_iter()
            .map(|job| {
                let whole: Held<'_> = (job.baseline.as_deref()?, &*other.store);
                let held: Vec<Held<'_>> =
                    job.pieces.iter().map(|(rank, record)| (&**record, &*stores[*rank])).collect();
                // Of replicas, one is read when it is compared.
                let replicas = classes(&held).len() == 1 && held[0].0.shape == whole.0.shape;
                if replicas { None } else { damage(&held).or_else(|| damage(&[whole])) }
            })
            .collect();
        let mut jobs = Vec::new();
        for (number, reason) in found.into_iter().enumerate().filter(|(_, reason)| reason.is_some()) {
            let job = &mut self.jobs[number];
            job.damage = reason;
            let whole = job.baseline.take();
            inferred[number] = unknown(whole.as_deref().unwrap_or(&job.pieces[0].1));
            jobs.push(number);
        }
        jobs
    }
}

/// Returns a value of the size of `whole` of which nothing is known.
pub(crate) fn unknown(whole: &TensorRecord) -> Inferred {
    Inferred {
        layout: Layout::same(&sizes(whole), 1, Among::Replicas),
        picks: vec![0],
        odd: Vec::new(),
        distance: None,
        by_content: false,
        of_term: false,
    }
}
