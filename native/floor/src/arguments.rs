//! The command line: `--name value` pairs, each needed once.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

use wasmtime::{Result, bail, format_err};

/// Where the guest is and what it sees.
pub struct Arguments {
    /// The pre-initialized module.
    pub module: PathBuf,
    /// The artifact that was serialized from it.
    pub artifact: PathBuf,
    /// Folder with main.py and context.json, the guest's `/`.
    pub root: PathBuf,
    /// The guest's `/lib`.
    pub lib: PathBuf,
    /// The result of a request is `before`, the request's number, `after`.
    pub before: String,
    pub after: String,
}

impl Arguments {
    const NAMES: [&str; 6] = ["--module", "--artifact", "--root", "--lib", "--before", "--after"];

    /// # Errors
    /// Names the argument that is unknown, lacks its value, or is missing.
    pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Self> {
        let mut given = collect(words)?;
        let mut take = |name: &str| {
            given.remove(name).ok_or_else(|| format_err!("the argument {name} is missing"))
        };
        Ok(Arguments {
            module: take("--module")?.into(),
            artifact: take("--artifact")?.into(),
            root: take("--root")?.into(),
            lib: take("--lib")?.into(),
            before: text(take("--before")?)?,
            after: text(take("--after")?)?,
        })
    }
}

fn collect(mut words: impl Iterator<Item = OsString>) -> Result<HashMap<String, OsString>> {
    let mut given = HashMap::new();
    while let Some(name) = words.next() {
        let name = text(name)?;
        if !Arguments::NAMES.contains(&name.as_str()) {
            bail!("unknown argument {name}; there are {}", Arguments::NAMES.join(" "));
        }
        let value = words.next().ok_or_else(|| format_err!("{name} needs a value"))?;
        given.insert(name, value);
    }
    Ok(given)
}

fn text(word: OsString) -> Result<String> {
    word.into_string().map_err(|word| format_err!("{} is not UTF-8", word.display()))
}
