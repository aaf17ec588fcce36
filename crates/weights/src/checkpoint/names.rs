//! Names of weights: what of a file is a weight, and the numbers in a name.

use probe_dump::RecordedDType;

/// A name, and its parts: the text around numbers, and the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The whole name.
    pub text: Box<str>,
    /// The name with `{}` for every number that stands alone: between dots, slashes or underscores, and for one that counts parameters of a
    /// module, as in `weight12` of experts. `w1` has none.
    pub template: Box<str>,
    /// These numbers.
    pub numbers: Box<[u32]>,
}

impl Name {
    /// Takes a name apart.
    pub fn new(text: &str) -> Self {
        let (mut template, mut numbers) = (String::new(), Vec::new());
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, digits) = rest.split_at(start);
            let length = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            let (digits, after) = digits.split_at(length);
            let joined = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
            let last = before.chars().last().or_else(|| template.chars().last());
            let last = last.filter(|_| !PARAMETERS.iter().any(|name| before.ends_with(name)));
            template.push_str(before);
            match digits.parse() {
                Ok(number) if !joined(last) && !joined(after.chars().next()) => {
                    template.push_str("{}");
                    numbers.push(number);
                }
                _ => template.push_str(digits),
            }
            rest = after;
        }
        template.push_str(rest);
        Self { text: text.into(), template: template.into(), numbers: numbers.into() }
    }

    /// Returns the text before and after the number at `position`.
    pub(crate) fn parts(&self, position: usize) -> (String, String) {
        let mut sides = [String::new(), String::new()];
        for (at, part) in self.template.split("{}").enumerate() {
            let side = &mut sides[usize::from(at > position)];
            side.push_str(part);
            if let Some(number) = self.numbers.get(at).filter(|_| at != position) {
                side.push_str(&number.to_string());
            }
        }
        sides.into()
    }

    /// Returns the name without what wrappers put in front: `module.`, `model.` and the like.
    pub(crate) fn bare(&self) -> &str {
        let mut bare = &*self.text;
        while let Some(rest) = WRAPPERS.iter().find_map(|wrapper| bare.strip_prefix(wrapper)) {
            bare = rest;
        }
        bare
    }

    /// Counts the words of `other` that this name has too, a measure of how alike the two are.
    pub(crate) fn likeness(&self, other: &Self) -> usize {
        let words = |name: &Self| -> Vec<String> {
            let words = name.text.split(['.', '_', '/']).filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        };
        let mut left = words(self);
        let found = words(other).into_iter().filter(|word| {
            let at = left.iter().position(|other| other == word);
            at.map(|at| left.swap_remove(at)).is_some()
        });
        found.count()
    }
}

/// Names of parameters behind which several of one module are numbered.
const PARAMETERS: [&str; 2] = [".weight", ".bias"];

/// Prefixes that wrappers of a model add to all names.
const WRAPPERS: [&str; 5] = ["module.", "model.", "_orig_mod.", "_fsdp_wrapped_module.", "base_model."];

/// First parts of the names of other values that training keeps beside the weights.
const BESIDE: [&str; 12] = [
    "optimizer",
    "optim",
    "optimizer_state_dict",
    "optimizer_states",
    "rng_state",
    "rng",
    "random_rng_state",
    "lr_scheduler",
    "lr_schedulers",
    "opt_param_scheduler",
    "args",
    "scheduler",
];

/// Keys of the files of training under which the weights lie.
const ROOTS: [&str; 4] = ["model", "state_dict", "module", "model_state_dict"];

/// Last parts of names of buffers that follow from the configuration.
const BUFFERS: [&str; 5] = ["inv_freq", "_extra_state", "position_ids", "masked_bias", "rotary_emb.freqs"];

/// A value of a file, as far as its name is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Held {
    Tensor,
    /// One integer without a dimension: a step or an epoch, where it stands beside the weights.
    Count,
    Text(Box<str>),
    Other,
}

impl Held {
    /// Returns what a tensor is.
    pub(super) fn of(dtype: &RecordedDType, is_single: bool) -> Self {
        match dtype {
            RecordedDType::Known(dtype) if is_single && dtype.is_integer() => Self::Count,
            _ => Self::Tensor,
        }
    }
}

/// Returns the names of the values that are weights: without the key of the file under which they lie, and as said by the text beside them
/// in lists of pairs. The others have none.
pub(super) fn weights<'a>(values: impl Iterator<Item = (&'a str, Held)>) -> Vec<Option<String>> {
    let values: Vec<(&str, Held)> = values.collect();
    if let Some(pairs) = of_pairs(&values) {
        return pairs;
    }
    let beside = |name: &str| BESIDE.contains(&name.split('.').next().unwrap_or_default());
    let below = |name: &str, root: &str| {
        name.strip_prefix(root).and_then(|rest| rest.strip_prefix('.')).map(str::to_owned)
    };
    // Files of training hold more than weights; a state dict is not one because a module of it is called `model`.
    let counts = |name: &str, value: &Held| *value == Held::Count && !name.contains('.');
    let training =
        values.iter().any(|(name, value)| beside(name) || *value == Held::Other || counts(name, value));
    let root = ROOTS.into_iter().find(|root| values.iter().any(|(name, _)| below(name, root).is_some()));
    let root = root.filter(|_| training);
    let weight = |(name, value): &(&str, Held)| {
        if beside(name) || counts(name, value) || BUFFERS.iter().any(|buffer| name.ends_with(buffer)) {
            return None;
        }
        root.map_or_else(|| Some((*name).to_owned()), |root| below(name, root))
    };
    values.iter().map(weight).collect()
}

/// Returns the names of a list of pairs of name and tensor, which is listed as `0.0`, `0.1`, `1.0` and so on.
fn of_pairs(values: &[(&str, Held)]) -> Option<Vec<Option<String>>> {
    let mut names = Vec::with_capacity(values.len());
    let (pairs, rest) = values.as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return None;
    }
    for [(first, name), (second, tensor)] in pairs {
        let (Held::Text(name), Held::Tensor | Held::Count) = (name, tensor) else { return None };
        let list = first.strip_suffix(".0")?;
        (second.strip_suffix(".1") == Some(list)).then_some(())?;
        names.extend([None, Some(name.to_string())]);
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_alone() {
        let name = Name::new("mp_rank_01/decoder.layers.12.mlp.linear_fc1.experts.3.w2");
        assert_eq!(&*name.template, "mp_rank_{}/decoder.layers.{}.mlp.linear_fc1.experts.{}.w2");
        assert_eq!(&*name.numbers, [1, 12, 3]);
        assert_eq!(Name::new("module.model.h.0.x").bare(), "h.0.x");
        assert_eq!(&*Name::new("0.weight").numbers, [0]);
        assert_eq!(
            &*Name::new("mlp.experts.linear_fc1.weight12").template,
            "mlp.experts.linear_fc1.weight{}"
        );
        assert_eq!(&*Name::new("x.99999999999").template, "x.99999999999");
    }

    #[test]
    fn a_count_beside_the_weights_is_of_training() {
        let held = |values: &[(&'static str, Held)]| weights(values.iter().cloned());
        let sharded = [("model.model.norm.weight", Held::Tensor), ("step", Held::Count)];
        assert_eq!(held(&sharded), [Some("model.norm.weight".to_owned()), None]);
        // A count inside a module is one of its buffers, and does not make a module called `model` the root.
        let plain = [("model.norm.num_batches_tracked", Held::Count), ("head.weight", Held::Tensor)];
        assert_eq!(held(&plain), plain.map(|(name, _)| Some(name.to_owned())));
    }
}
