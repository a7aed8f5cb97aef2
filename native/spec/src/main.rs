//! Turns the scripts of the WebAssembly specification's tests into Erlang terms.
//!
//! `wasm_spec IN OUT` reads every `*.wast` below IN and writes a file of the same name below OUT, which
//! `binary_to_term/1` reads: a list of `{Line, Directive}`, or `{unreadable, Why}` for a script that the
//! parser does not know. Rule: nothing is left out; what a script expects is judged in Erlang.

mod driver;
mod script;
mod shape;
mod store;
mod term;
mod value;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use term::tagged;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = args.as_slice() else {
        eprintln!("usage: wasm_spec IN OUT");
        return ExitCode::from(2);
    };
    match folder(Path::new(from), Path::new(to)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wasm_spec: {error}");
            ExitCode::FAILURE
        }
    }
}

fn folder(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", from.display());
    for entry in fs::read_dir(from).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            folder(&path, &to.join(name))?;
        } else if path.extension().is_some_and(|ending| ending == "wast") {
            fs::create_dir_all(to).map_err(failed)?;
            one(&path, &to.join(name).with_extension("term"))?;
        }
    }
    Ok(())
}

fn one(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", from.display());
    let text = fs::read(from).map_err(failed)?;
    let text = String::from_utf8(text).map_err(|error| format!("{}: {error}", from.display()))?;
    let term =
        script::convert(&text).unwrap_or_else(|why| tagged("unreadable", [why.as_str().into()]));
    fs::write(to, term.encode()).map_err(failed)
}
