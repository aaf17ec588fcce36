//! Secrets that no pack or report may hold: tokens, passwords, keys, credentials in URLs.
//!
//! Recognised by the name of a setting, by the name before a value in a command line, and by well-known token
//! formats. Packs of the older tool hold the whole environment in clear text, so everything that is read passes
//! through here.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use super::{AllowedVariables, Content, MASK, Pack, Parts, Record, Setting};

/// Words in a name that make its value a secret.
const WORDS: [&str; 13] = [
    "token",
    "key",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "credential",
    "credentials",
    "auth",
    "cookie",
    "apikey",
    "private",
];

/// Word endings that do the same: `HFTOKEN`, `dbpassword`.
const ENDINGS: [&str; 6] = ["token", "secret", "password", "passwd", "apikey", "credentials"];

/// Names that only look like secrets: special tokens of a vocabulary.
const HARMLESS: [&str; 8] = [
    "pad_token",
    "eos_token",
    "bos_token",
    "unk_token",
    "sep_token",
    "cls_token",
    "mask_token",
    "image_token",
];

/// Prefixes of well-known tokens, and the minimum number of letters that follow.
const TOKENS: [(&str, usize); 11] = [
    ("hf_", 8),
    ("ghp_", 16),
    ("gho_", 16),
    ("ghs_", 16),
    ("github_pat_", 16),
    ("glpat-", 12),
    ("sk-", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("AKIA", 12),
    ("eyJ", 20),
];

/// Returns true if the value of a setting called `name` is a secret, provided it is a text.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let leaf = name.rsplit('.').next().unwrap_or(name).trim_start_matches('-').replace('-', "_");
    if HARMLESS.contains(&&*leaf.to_ascii_lowercase()) {
        return false;
    }
    words(&leaf).iter().any(|word| {
        WORDS.contains(&&**word)
            || ENDINGS.iter().any(|ending| word.len() > ending.len() && word.ends_with(ending))
    })
}

/// Splits a name into lower-case words: at non-letters, and before a capital after a small letter.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for letter in name.chars() {
        let begins = !letter.is_alphanumeric() || (letter.is_uppercase() && before.is_lowercase());
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if letter.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words
}

/// Masks credentials in URLs, values after secret names, and well-known tokens in `text`.
pub(crate) fn mask_text(text: &str) -> Cow<'_, str> {
    // Most texts are short words without a separator or a token prefix.
    if !text.contains(['@', '=', ' ']) && !TOKENS.iter().any(|(start, _)| text.contains(start)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut hide_next = false;
    for piece in text.split_inclusive([' ', '\t', '\n', ',', ';', '&', '?', '"', '\'']) {
        let word = piece.trim_end_matches([' ', '\t', '\n', ',', ';', '&', '?', '"', '\'']);
        let end = &piece[word.len()..];
        if word.is_empty() {
            out.push_str(end);
            continue;
        }
        let hidden = std::mem::take(&mut hide_next);
        if hidden && !word.starts_with('-') {
            out.push_str(MASK);
        } else if let Some((name, _)) =
            word.split_once('=').filter(|(name, value)| !value.is_empty() && is_secret_name(name))
        {
            out.extend([name, "=", MASK]);
        } else {
            hide_next = word.starts_with('-') && !word.contains('=') && is_secret_name(word)
                || word.ends_with('=') && is_secret_name(word.trim_end_matches('='));
            out.push_str(&mask_word(word));
        }
        out.push_str(end);
    }
    if out == text { Cow::Borrowed(text) } else { Cow::Owned(out) }
}

fn mask_word(word: &str) -> Cow<'_, str> {
    let mut word = Cow::Borrowed(word);
    if let Some(at) = word.find("://") {
        let (scheme, rest) = word.split_at(at + 3);
        let host = rest.find('/').unwrap_or(rest.len());
        if let Some(user) = rest.get(..host).and_then(|host| host.rfind('@')) {
            word = Cow::Owned(format!("{scheme}{MASK}{}", &rest[user..]));
        }
    }
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    for (start, least) in TOKENS {
        let Some(at) = word.find(start) else { continue };
        let begins = word[..at].chars().next_back().is_none_or(|before| !before.is_ascii_alphanumeric());
        let rest = &word[at + start.len()..];
        let length = rest.find(|c| !letter(c)).unwrap_or(rest.len());
        if begins && length >= least {
            let masked = format!("{}{MASK}{}", &word[..at], &rest[length..]);
            return Cow::Owned(masked);
        }
    }
    word
}

/// Masks the value of the setting called `name`, and any nested values.
pub(crate) fn mask_setting(name: &str, value: &mut Setting) {
    match value {
        Setting::Text(text) if is_secret_name(name) && !text.is_empty() => MASK.clone_into(text),
        Setting::Text(text) => {
            if let Cow::Owned(masked) = mask_text(text) {
                *text = masked;
            }
        }
        Setting::List(items) => {
            let mut hide = false;
            for item in items {
                // In an argument list the item after `--api-key` is the key.
                let names_next = item
                    .text()
                    .is_some_and(|text| text.starts_with('-') && !text.contains('=') && is_secret_name(text));
                mask_setting(if hide { "secret" } else { name }, item);
                hide = names_next;
            }
        }
        Setting::Map(record) => mask_record(record),
        _ => {}
    }
}

fn mask_record(record: &mut Record) {
    for (name, value) in &mut record.0 {
        mask_setting(name, value);
    }
}

/// Removes all secrets from a pack, once, right after reading.
pub(super) fn mask_pack(pack: &mut Pack, allowed: &dyn AllowedVariables) {
    for parts in pack.ranks.values_mut() {
        mask_env(parts, allowed);
        mask_parts(parts);
    }
    for note in &mut pack.notes {
        *note = mask_text(note).into_owned();
    }
    for fault in &mut pack.faults {
        fault.reason = mask_text(&fault.reason).into_owned();
    }
}

fn mask_parts(parts: &mut Parts) {
    for record in [
        &mut parts.platform,
        &mut parts.flags,
        &mut parts.dataloader,
        &mut parts.scaler,
        &mut parts.distributed,
        &mut parts.source,
    ]
    .into_iter()
    .flatten()
    {
        mask_record(record);
    }
    for source in parts.hyperparameters.iter_mut().flat_map(|part| &mut part.sources) {
        mask_record(&mut source.values);
    }
    for group in parts.optimizer.iter_mut().flat_map(|part| &mut part.groups) {
        mask_record(&mut group.options);
    }
    if let Some(schedule) = &mut parts.schedule {
        mask_record(&mut schedule.state);
    }
    for batch in parts.dataset.iter_mut().flat_map(|part| &mut part.steps) {
        for argument in &mut batch.arguments {
            if let Content::Value { value } = &mut argument.content {
                mask_setting(&argument.path, value);
            }
        }
    }
}

/// Key for digests of values: the same for all packs of this process, and unknown outside it.
static DIGEST: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Keeps values of variables that are on the allow list and not secret. For the others in the older tool's packs only
/// equality is known, so a digest is kept.
fn mask_env(parts: &mut Parts, allowed: &dyn AllowedVariables) {
    let Some(env) = &mut parts.env else { return };
    let values = std::mem::take(&mut env.values);
    let mut kept = BTreeMap::new();
    for (name, value) in values {
        if allowed.allows(&name) && !is_secret_name(&name) {
            kept.insert(name, mask_text(&value).into_owned());
        } else {
            env.hidden.insert(name, DIGEST.hash_one(value));
        }
    }
    env.values = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_secrets() {
        for name in [
            "HF_TOKEN",
            "WANDB_API_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "db.password",
            "apiKey",
            "--api-key",
            "DBPASSWORD",
            "wandb-auth",
            "http_cookie",
            "HFTOKEN",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "max_new_tokens",
            "monkey",
            "keyboard",
            "pad_token",
            "tokenizer",
            "lr",
            "author",
            "train.eos_token",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn texts_lose_their_secrets() {
        for (text, expected) in [
            ("postgres://u:pw@h/db", "postgres://***@h/db"),
            ("--api-key abc --lr 1", "--api-key *** --lr 1"),
            ("--api-key=abc --lr 1", "--api-key=*** --lr 1"),
            ("http://h/x?token=abc&a=1", "http://h/x?token=***&a=1"),
            ("use hf_FAKEFAKEFAKE now", "use *** now"),
            ("plain", "plain"),
            ("export PASSWORD=\"a b\"", "export PASSWORD=\"*** b\""),
            ("a=1 b=2", "a=1 b=2"),
            ("hf_config", "hf_config"),
        ] {
            assert_eq!(mask_text(text), expected);
        }
    }

    #[test]
    fn argument_lists_lose_their_secrets() {
        let mut argv = Setting::List(["train.py", "--api-key", "abc", "--lr", "1"].map(Setting::from).into());
        mask_setting("argv", &mut argv);
        assert_eq!(argv.to_string(), "[train.py, --api-key, ***, --lr, 1]");
        let mut number = Setting::Integer(512);
        mask_setting("token", &mut number);
        assert_eq!(number, Setting::Integer(512));
    }
}
