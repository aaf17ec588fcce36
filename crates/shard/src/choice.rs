//! The shard to run and the number of shards: typed, or from variables set by a scheduler.

use std::fmt;
use std::str::FromStr;

/// Shard `index` of `count`, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1 to `count`.
    index: u32,
    count: u32,
}

/// A text that does not name a shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShardError(String);

impl Shard {
    /// Creates a shard; `None` if `index` is out of range.
    pub fn new(index: u32, count: u32) -> Option<Self> {
        (1..=count).contains(&index).then_some(Self { index, count })
    }

    /// Returns its number, from 1.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Returns the number of shards.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Parses `3/64`; `slurm`, the task of a job array or of a step; or `k8s/64`, the pod of an indexed job. `variable` looks up
    /// an environment variable.
    ///
    /// # Errors
    /// [`ShardError`] stating what is missing.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ShardError> {
        let error = |message: String| ShardError(message);
        let number = |name: &str, text: &str| {
            text.trim()
                .parse::<u32>()
                .map_err(|_| error(format!("{name} is {text:?}, which is not a number")))
        };
        let read = |name: &str| variable(name).map(|text| number(name, &text)).transpose();
        let (word, count) = match text.split_once('/') {
            Some((word, count)) => (word, Some(number("the number of shards", count)?)),
            None => (text, None),
        };
        let (index, count) = match word {
            "slurm" => {
                let (array, task) = (read("SLURM_ARRAY_TASK_ID")?, read("SLURM_PROCID")?);
                if let Some(task) = array {
                    // Arrays may start at any number and use any step.
                    let (first, step) =
                        (read("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0), read("SLURM_ARRAY_TASK_STEP")?);
                    let index = task.saturating_sub(first) / step.unwrap_or(1).max(1) + 1;
                    (index, count.or(read("SLURM_ARRAY_TASK_COUNT")?))
                } else if let Some(task) = task {
                    (task.saturating_add(1), count.or(read("SLURM_NTASKS")?))
                } else {
                    let message = "neither SLURM_ARRAY_TASK_ID nor SLURM_PROCID is set; run it with sbatch --array or srun";
                    return Err(error(message.into()));
                }
            }
            "k8s" => {
                let index = read("JOB_COMPLETION_INDEX")?;
                let index = index.ok_or_else(|| {
                    error("JOB_COMPLETION_INDEX is not set; set completionMode: Indexed in the job".into())
                })?;
                (index.saturating_add(1), count)
            }
            typed => (number("the number of the shard", typed)?, count),
        };
        let count = count.ok_or_else(|| error(format!("expected the number of shards; write {word}/64")))?;
        Self::new(index, count).ok_or_else(|| error(format!("there is no shard {index} of {count}")))
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text, |name| std::env::var(name).ok())
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_variables_of_schedulers_are_read() {
        let parse = |text: &str, set: &[(&str, &str)]| {
            let found = Shard::parse(text, |name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            });
            found.map(|shard| shard.to_string()).map_err(|error| error.to_string())
        };
        let array =
            [("SLURM_ARRAY_TASK_ID", "14"), ("SLURM_ARRAY_TASK_MIN", "10"), ("SLURM_ARRAY_TASK_STEP", "2")];
        assert_eq!(parse("3/64", &[]).unwrap(), "3/64");
        assert_eq!(
            parse("slurm", &[&array[..], &[("SLURM_ARRAY_TASK_COUNT", "8")]].concat()).unwrap(),
            "3/8"
        );
        assert_eq!(parse("slurm", &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")]).unwrap(), "1/2");
        assert_eq!(parse("k8s/16", &[("JOB_COMPLETION_INDEX", "15")]).unwrap(), "16/16");
        for (text, set, message) in [
            ("0/4", &[][..], "there is no shard 0 of 4"),
            ("5/4", &[], "there is no shard 5 of 4"),
            ("3", &[], "expected the number of shards; write 3/64"),
            ("x/4", &[], "the number of the shard is \"x\", which is not a number"),
            (
                "slurm/4",
                &[],
                "neither SLURM_ARRAY_TASK_ID nor SLURM_PROCID is set; run it with sbatch --array or srun",
            ),
            ("k8s/4", &[], "JOB_COMPLETION_INDEX is not set; set completionMode: Indexed in the job"),
            ("k8s", &[("JOB_COMPLETION_INDEX", "1")], "expected the number of shards; write k8s/64"),
            ("k8s/4", &[("JOB_COMPLETION_INDEX", "4")], "there is no shard 5 of 4"),
        ] {
            assert_eq!(parse(text, set).unwrap_err(), message);
        }
    }
}
