//! Responses of servers in JSON Lines: chat and text completions as vLLM and others return them, results of a batch, and the
//! native form of `SGLang` (`meta_info.output_token_logprobs`).

use serde_json::{Map, Value};

use super::fields::{id, narrow, place};
use super::{Collected, Origin, step_of, text};
use crate::table::{NO_ID, Sample, Side, Token};
use probe_files::limits::MAX_ROLLOUT_TOKENS;
use probe_read::ReadError;

/// Returns true for an object as this module reads it.
pub(super) fn recognises(object: &Map<String, Value>) -> bool {
    body(object).is_some_and(|body| body.contains_key("choices") || body.contains_key("meta_info"))
}

/// Returns the response itself, which results of a batch hold two levels down.
fn body(object: &Map<String, Value>) -> Option<&Map<String, Value>> {
    match object.get("response").and_then(|response| response.get("body")) {
        Some(body) => body.as_object(),
        None => Some(object),
    }
}

/// Reads the file.
pub(super) fn read(origin: Origin<'_>, into: &mut Collected) -> Result<(), ReadError> {
    let step = step_of(origin.path);
    let mut count = 0;
    text::each_line(origin.path, |line| {
        let object: Map<String, Value> = text::parsed(line)?;
        let Some(body) = body(&object).filter(|body| !body.is_empty()) else {
            return Err("has no response; leave out requests that failed".into());
        };
        let step = object.get("step").and_then(Value::as_u64).unwrap_or(step);
        let given = ["custom_id", "sample", "rid"].iter().find_map(|key| Some(word(object.get(*key)?)));
        let name = given.clone().unwrap_or_else(|| origin.name(count).into());
        count += 1;
        let sample = |name: String, version: Option<i64>| Sample {
            step,
            name: name.into(),
            named: given.is_some(),
            range: 0..0,
            padding: None,
            version,
        };
        if let Some(info) = body.get("meta_info") {
            let version = info.get("weight_version").and_then(|version| word(version).parse().ok());
            return native(sample(name, version), info, into);
        }
        let choices = body.get("choices").and_then(Value::as_array).filter(|choices| !choices.is_empty());
        let choices = choices.ok_or("has neither choices nor meta_info; leave out requests that failed")?;
        for (index, choice) in choices.iter().enumerate() {
            let name = if choices.len() == 1 { name.clone() } else { format!("{name}.{index}") };
            let prompt = choice.get("prompt_token_ids").or_else(|| body.get("prompt_token_ids"));
            completion(sample(name, None), choice, prompt, into)
                .map_err(|message| format!("choices[{index}]: {message}"))?;
        }
        Ok(())
    })
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the number that a value states, also as a word.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// Returns the log-probability at `at` of a list; `None` for one that the server left out.
fn scored(value: Option<&Value>, list: &str, at: usize) -> Result<Option<f64>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            number(value).map(Some).ok_or_else(|| format!("logprobs.{list}[{at}] is not a number: {value}"))
        }
    }
}

/// Returns the id of a token.
fn token(value: &Value) -> Result<u32, String> {
    value.as_f64().map_or_else(|| Err(format!("{value} is not the id of a token")), id)
}

fn completion(
    sample: Sample,
    choice: &Value,
    prompt: Option<&Value>,
    into: &mut Collected,
) -> Result<(), String> {
    let logprobs = choice.get("logprobs").filter(|value| !value.is_null());
    let logprobs =
        logprobs.ok_or("has no logprobs; ask for them (logprobs=1, or logprobs=true in a chat)")?;
    let (values, words): (Vec<Option<f64>>, Vec<Option<&str>>) = if let Some(content) =
        logprobs.get("content").and_then(Value::as_array)
    {
        let value = |(at, entry): (usize, &Value)| scored(entry.get("logprob"), "content", at);
        let word = |entry| Value::get(entry, "token").and_then(Value::as_str);
        (content.iter().enumerate().map(value).collect::<Result<_, _>>()?, content.iter().map(word).collect())
    } else {
        let list =
            |key: &str| logprobs.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let words = list("tokens");
        let values = list("token_logprobs").iter().enumerate();
        let values = values.map(|(at, value)| scored(Some(value), "token_logprobs", at));
        (values.collect::<Result<_, _>>()?, words.iter().map(Value::as_str).collect())
    };
    let ids = choice.get("token_ids").and_then(Value::as_array);
    if let Some(ids) = ids.filter(|ids| ids.len() != values.len()) {
        return Err(format!("has {} token_ids, but {} log-probabilities", ids.len(), values.len()));
    }
    let prompt = match prompt {
        None | Some(Value::Null) => &[][..],
        Some(prompt) => prompt.as_array().ok_or("prompt_token_ids is not a list of ids")?,
    };
    into.builder.begin(sample);
    begin(prompt, into)?;
    for (t, value) in values.iter().enumerate() {
        let id = match (ids.and_then(|ids| ids.get(t)), words.get(t).copied().flatten()) {
            (Some(value), _) => token(value)?,
            // vLLM writes ids in place of words on request.
            (None, Some(word)) => {
                word.strip_prefix("token_id:").and_then(|id| id.parse().ok()).unwrap_or(NO_ID)
            }
            (None, None) => NO_ID,
        };
        push(prompt.len() + t, id, *value, into);
    }
    Ok(())
}

/// Reads `[logprob, id, text]` triples.
fn native(sample: Sample, info: &Value, into: &mut Collected) -> Result<(), String> {
    let triples = info.get("output_token_logprobs").and_then(Value::as_array);
    let triples = triples.ok_or("meta_info has no output_token_logprobs; ask for them (return_logprob)")?;
    into.builder.begin(sample);
    let prompt = info.get("prompt_tokens").and_then(Value::as_u64).unwrap_or(0);
    let prompt = usize::try_from(prompt).ok().filter(|prompt| *prompt as u64 <= MAX_ROLLOUT_TOKENS);
    let prompt = prompt.ok_or("prompt_tokens is more than a sequence has")?;
    for (t, triple) in triples.iter().enumerate() {
        let of = |at: usize| triple.get(at).and_then(number);
        let (Some(value), Some(id)) = (of(0), of(1)) else {
            return Err(format!("output_token_logprobs[{t}] is not [logprob, id, text]"));
        };
        push(prompt + t, self::id(id)?, Some(value), into);
    }
    Ok(())
}

/// Adds the tokens of the prompt.
fn begin(prompt: &[Value], into: &mut Collected) -> Result<(), String> {
    for (at, value) in prompt.iter().enumerate() {
        into.builder.token(Token {
            id: token(value)?,
            position: place(at),
            rollout: None,
            trainer: None,
            counted: false,
        });
    }
    Ok(())
}

fn push(position: usize, id: u32, value: Option<f64>, into: &mut Collected) {
    let value = value.map(narrow);
    let (rollout, trainer) = match into.side {
        Side::Rollout => (value, None),
        Side::Trainer => (None, value),
    };
    into.builder.token(Token { id, position: place(position), rollout, trainer, counted: value.is_some() });
}
