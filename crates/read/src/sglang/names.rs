//! Names of the files: `key=value` joined by three underscores.

/// Begins the name of a value that a hook of the dumper wrote.
const HOOKED: &str = "non_intrusive__";

/// Arguments of the model that the dumper writes under their own name.
const CORE: [&str; 8] = [
    "input_ids",
    "positions",
    "position_ids",
    "seq_lens",
    "req_pool_indices",
    "rids",
    "cu_seqlens_q",
    "cu_seqlens_kv",
];

/// The name of a file, which says where its value lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileName {
    /// The whole name.
    pub(super) file: Box<str>,
    pub(super) step: u64,
    pub(super) rank: u32,
    /// Place among all values of the rank.
    pub(super) index: u64,
    /// True for a repetition of an earlier pass, made by activation checkpointing.
    pub(super) recomputed: bool,
    pub(super) role: Role,
}

/// Place of a value in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    Input { path: Box<str>, argument: Box<str> },
    Output { path: Box<str>, result: Box<str> },
    Saved(Box<str>),
}

impl FileName {
    /// Parses the name of a file; `None` for other files.
    pub(super) fn parse(file: &str) -> Option<Self> {
        let of = |wanted: &str| {
            let pairs = file.strip_suffix(".pt")?.split("___");
            pairs
                .filter_map(|pair| pair.split_once('='))
                .find(|(key, _)| *key == wanted)
                .map(|(_, value)| value)
        };
        Some(Self {
            step: of("step")?.parse().ok()?,
            rank: of("rank")?.parse().ok()?,
            index: of("dump_index")?.parse().ok()?,
            recomputed: of("recompute_status") == Some("recomputed"),
            role: Role::of(of("name")?),
            file: file.into(),
        })
    }
}

impl Role {
    fn of(name: &str) -> Self {
        let Some(hooked) = name.strip_prefix(HOOKED) else {
            return if CORE.contains(&name) {
                Self::Input { path: "".into(), argument: format!("kwarg.{name}").into() }
            } else {
                Self::Saved(name.into())
            };
        };
        // The last of the two words is the role: a module may have either name.
        let split = |word: &str| {
            let at = hooked.rfind(word)?;
            let rest = hooked.get(at + word.len()..)?;
            let begins = at == 0 || hooked.as_bytes().get(at - 1) == Some(&b'.');
            let ends = rest.is_empty() || rest.starts_with('.');
            let path = hooked.get(..at.saturating_sub(1)).unwrap_or("");
            (begins && ends).then(|| (at, path, rest.trim_start_matches('.')))
        };
        match (split("inputs"), split("output")) {
            (inputs, Some((at, path, rest))) if inputs.is_none_or(|inputs| inputs.0 < at) => {
                let result = if rest.is_empty() { "output.0".into() } else { format!("output.{rest}") };
                Self::Output { path: path.into(), result: result.into() }
            }
            (Some((_, path, rest)), _) => {
                let by_place = rest.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
                let kind = if by_place { "input" } else { "kwarg" };
                Self::Input { path: path.into(), argument: format!("{kind}.{rest}").into() }
            }
            _ => Self::Saved(name.into()),
        }
    }
}
