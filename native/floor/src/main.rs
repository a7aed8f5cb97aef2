//! The benchmark's request without the BEAM: what plain Rust needs for the same work with the same
//! guest. Erlang starts it as a port and asks for rounds, so that both sides meet the same noise.
//!
//! - `arguments`: where the guest and its files are.
//! - `port`: commands in, samples out.
//! - `request`: what every request does, whatever its memory comes from; the check of its result.
//! - `own`: instances over this project's memory, fresh or reused.
//! - `stock`: instances over Wasmtime's own pool.
//! - `ops`: the operations of a trivial module instead, when the first word is `ops`.
//!
//! Rule: it sleeps in a read whenever it isn't running a round.

mod arguments;
mod ops;
mod own;
mod port;
mod request;
mod stock;

use std::process::ExitCode;
use std::time::Duration;

use wasmtime::Result;

use arguments::Arguments;

#[global_allocator]
static ALLOCATOR: wasmtime_beam::allocator::Allocator = wasmtime_beam::allocator::Allocator;

/// One way to serve a request.
trait Row {
    /// Serves one request, checks its result and says how long it took.
    fn request(&mut self) -> Result<Duration>;
}

/// A row with its name in the report.
struct Named {
    name: String,
    row: Box<dyn Row>,
}

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wasmtime-floor: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<()> {
    let mut words = std::env::args_os().skip(1).peekable();
    if words.next_if(|word| word == "ops").is_some() {
        return port::serve(ops::rows);
    }
    let arguments = Arguments::parse(words)?;
    port::serve(|| rows(&arguments))
}

fn rows(arguments: &Arguments) -> Result<Vec<Named>> {
    let mut rows = own::rows(arguments)?;
    rows.extend(stock::rows(arguments)?);
    Ok(rows)
}
