//! The port: packets with a length of four bytes, big-endian, as Erlang's `{packet, 4}`.
//!
//! Commands: `rows` prepares and answers the rows' names, one a line; `run ROW COUNT` serves that
//! many requests and answers a duration of each, eight bytes of nanoseconds, big-endian. An answer
//! begins with 0; with 1 it is the text of an error. The end of the input ends the program.

use std::io::{self, Read, Write};

use wasmtime::{Result, bail, format_err};

use crate::{Named, Row};

/// A command is a few words; more is a mistake of the other side.
const MAX_COMMAND: usize = 1024;

/// Serves commands until the input ends. `prepare` makes the rows when they are first asked for.
pub fn serve(prepare: impl Fn() -> Result<Vec<Named>>) -> Result<()> {
    let mut rows = Vec::new();
    while let Some(command) = read(&mut io::stdin().lock())? {
        let answer = match execute(&command, &mut rows, &prepare) {
            Ok(bytes) => [&[0], bytes.as_slice()].concat(),
            Err(error) => [&[1], format!("{error:#}").as_bytes()].concat(),
        };
        write(&mut io::stdout().lock(), &answer)?;
    }
    Ok(())
}

fn execute(
    command: &str,
    rows: &mut Vec<Named>,
    prepare: impl Fn() -> Result<Vec<Named>>,
) -> Result<Vec<u8>> {
    match command.split(' ').collect::<Vec<_>>()[..] {
        ["rows"] => {
            if rows.is_empty() {
                *rows = prepare()?;
            }
            let names: Vec<&str> = rows.iter().map(|named| named.name.as_str()).collect();
            Ok(names.join("\n").into_bytes())
        }
        ["run", row, count] => {
            let row: usize = row.parse()?;
            let named = rows.get_mut(row).ok_or_else(|| format_err!("there is no row {row}"))?;
            let context = |error| format_err!("{}: {error:#}", named.name);
            round(named.row.as_mut(), count.parse()?).map_err(context)
        }
        _ => bail!("unknown command {command:?}"),
    }
}

fn round(row: &mut dyn Row, count: usize) -> Result<Vec<u8>> {
    let mut answer = Vec::new();
    for _ in 0..count {
        let nanos = u64::try_from(row.request()?.as_nanos())?;
        answer.extend(nanos.to_be_bytes());
    }
    Ok(answer)
}

/// The next command; `None` when there is no more.
fn read(input: &mut impl Read) -> Result<Option<String>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_COMMAND {
        bail!("a command of {length} bytes is longer than {MAX_COMMAND}");
    }
    let mut command = vec![0; length];
    input.read_exact(&mut command)?;
    Ok(Some(String::from_utf8(command)?))
}

fn write(output: &mut impl Write, answer: &[u8]) -> Result<()> {
    output.write_all(&u32::try_from(answer.len())?.to_be_bytes())?;
    output.write_all(answer)?;
    Ok(output.flush()?)
}
