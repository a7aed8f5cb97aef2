//! From text and bytes to valid WebAssembly, and from there to compiled code.

use wasmparser::{Encoding, Operator, Parser, Payload, TypeRef};
use wast::Wat;
use wast::lexer::{Lexer, TokenKind};
use wast::parser::{self, ParseBuffer};

use super::{Facts, Module, bombs, crew};
use crate::engine::Engine;
use crate::error::{Class, Error, Kind, Result};
use crate::inject::point;
use crate::memory::{MemoryData, extract};
use crate::options::CompileOptions;

/// Bytes of stack for work whose recursion follows the input.
const BIG_STACK: usize = 64 << 20;

/// Validates and compiles a module, and takes its memories' images out.
pub(super) fn compile(wasm: &[u8], options: &CompileOptions) -> Result<Module> {
    point("compile");
    let engine = Engine::get(options)?;
    validate(&engine, wasm)?;
    refuse_waits(wasm)?;
    bombs::refuse(wasm)?;
    let extracted = extract(wasm)?;
    let facts = Facts::of(&extracted.wasm, options)?;
    let wasmtime = on_big_stack(|| wasmtime::Module::new(engine.wasmtime(), &extracted.wasm))?
        .map_err(|error| refused(&error))?;
    let memories = extracted.memories.iter().map(MemoryData::plan).collect::<Result<_>>()?;
    Module::new(engine, wasmtime, memories, facts)
}

/// The compiled code as bytes.
pub(super) fn code(module: &wasmtime::Module) -> Result<Vec<u8>> {
    module.serialize().map_err(|error| Error::internal(error.to_string()))
}

/// Runs `f` on a thread with a big stack: those of dirty schedulers hold 320 KiB, and parsers and
/// the compiler recurse as deep as the input is nested.
fn on_big_stack<R: Send>(f: impl FnOnce() -> R + Send) -> Result<R> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("wasmtime-compile".into())
            .stack_size(BIG_STACK)
            .spawn_scoped(scope, f)
            .map_err(|e| Error::new(Class::Limit, Kind::ThreadLimit, e.to_string()))?
            .join()
            .map_err(|panic| crate::guest::panicked(panic.as_ref()))
    })
}

/// Turns the text format into the binary format.
///
/// # Errors
/// Class `compile`: `malformed`, with the line and column; `unsupported` for a component.
pub fn parse_wat(text: &[u8]) -> Result<Vec<u8>> {
    let text = std::str::from_utf8(text)
        .map_err(|error| malformed(format!("the text is not UTF-8: {error}")))?;
    on_big_stack(|| translate(text))?.map_err(|mut error| {
        if is_component(text) {
            return component();
        }
        error.set_text(text);
        malformed(error.to_string())
    })
}

/// True for text that says it is a component, which is not parsed any further.
fn is_component(text: &str) -> bool {
    use TokenKind::{BlockComment, LineComment, Whitespace};
    let lexer = Lexer::new(text);
    let tokens = lexer.iter(0).map_while(std::result::Result::ok);
    let mut told = tokens.filter(|t| !matches!(t.kind, LineComment | BlockComment | Whitespace));
    let begins = told.next().is_some_and(|token| token.kind == TokenKind::LParen);
    begins && told.next().is_some_and(|token| token.src(text) == "component")
}

/// As the crate `wat` does it, which refuses characters that change how the text around them is
/// displayed. The specification has them in comments and strings, hence in names.
fn translate(text: &str) -> std::result::Result<Vec<u8>, wast::Error> {
    let mut lexer = Lexer::new(text);
    lexer.allow_confusing_unicode(true);
    let tokens = ParseBuffer::new_with_lexer(lexer)?;
    parser::parse::<Wat<'_>>(&tokens)?.encode()
}

/// Checks that `wasm` is a valid module for `engine`, without compiling it.
///
/// # Errors
/// Class `compile`: `malformed` when it is not WebAssembly, `invalid` when it does not validate,
/// `unsupported` for a component; `invalid` with the key `proposals` for a shared memory that was not
/// asked for.
pub fn validate(engine: &Engine, wasm: &[u8]) -> Result<()> {
    match Parser::new(0).parse_all(wasm).next() {
        Some(Ok(Payload::Version { encoding: Encoding::Module, .. })) => {}
        Some(Ok(_)) => return Err(component()),
        Some(Err(_)) if is_text(wasm) => {
            return Err(malformed("not WebAssembly but text: give it as {wat, Text}".into()));
        }
        Some(Err(error)) => {
            let foreign = foreign(wasm).map(str::to_owned);
            return Err(malformed(foreign.unwrap_or_else(|| format!("not WebAssembly: {error}"))));
        }
        None => return Err(malformed("not WebAssembly: no bytes".into())),
    }
    crew::muster(engine.wasmtime())?;
    on_big_stack(|| wasmtime::Module::validate(engine.wasmtime(), wasm))?
        .map_err(|error| invalid(&error))?;
    refuse_shared(engine, wasm)
}

/// Wasmtime counts shared memories among what it does not vouch for, and makes none unless told so.
fn refuse_shared(engine: &Engine, wasm: &[u8]) -> Result<()> {
    if engine.options().shares_memories() {
        return Ok(());
    }
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(|error| malformed(error.to_string()))?;
        if matches!(payload, Payload::CodeSectionStart { .. }) {
            break;
        }
        if has_shared(payload) {
            let message = "a shared memory needs the option proposals => #{threads => true}";
            let error = Error::new(Class::Compile, Kind::Invalid, message);
            return Err(Error { key: Some("proposals"), ..error });
        }
    }
    Ok(())
}

/// True for the section that imports or defines a shared memory.
fn has_shared(payload: Payload<'_>) -> bool {
    match payload {
        Payload::ImportSection(imports) => {
            let is_shared = |ty| matches!(ty, TypeRef::Memory(memory) if memory.shared);
            imports.into_imports().flatten().any(|import| is_shared(import.ty))
        }
        Payload::MemorySection(memories) => {
            memories.into_iter().flatten().any(|memory| memory.shared)
        }
        _ => false,
    }
}

/// What bytes are that do not begin as WebAssembly: the parser's message shows each on a line.
pub(crate) fn foreign(wasm: &[u8]) -> Option<&'static str> {
    if wasm.starts_with(b"\x7fELF") {
        Some("not WebAssembly but machine code: deserialize loads an artifact")
    } else if !wasm.starts_with(b"\0asm") {
        Some("not WebAssembly: it does not begin with \\0asm")
    } else {
        None
    }
}

/// True for what begins as the text format does.
fn is_text(source: &[u8]) -> bool {
    let source = source.trim_ascii_start();
    source.starts_with(b"(") || source.starts_with(b";;")
}

/// A guest that waits on a shared memory holds its thread, where nothing can stop it; and nobody
/// outside its store has that memory, to wake it.
fn refuse_waits(wasm: &[u8]) -> Result<()> {
    let mut shared = false;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(|error| malformed(error.to_string()))? {
            Payload::CodeSectionEntry(body) if shared => {
                let code = body.get_operators_reader().map_err(|e| malformed(e.to_string()))?;
                if code.into_iter().flatten().any(|operator| waits(&operator)) {
                    let message = "memory.atomic.wait is not supported: nothing could interrupt it, or wake it";
                    return Err(Error::new(Class::Compile, Kind::Unsupported, message));
                }
            }
            Payload::CodeSectionStart { .. } if !shared => return Ok(()),
            payload => shared |= has_shared(payload),
        }
    }
    Ok(())
}

fn waits(operator: &Operator<'_>) -> bool {
    matches!(operator, Operator::MemoryAtomicWait32 { .. } | Operator::MemoryAtomicWait64 { .. })
}

/// A module that passed validation and that Wasmtime does not compile all the same: an encoding that
/// a proposal allows is read by its validation with the proposal off, too, and by its compiler not.
fn refused(error: &wasmtime::Error) -> Error {
    let unread = error.chain().any(|cause| cause.is::<wasmparser::BinaryReaderError>());
    let kind = if unread { Kind::Malformed } else { Kind::Unsupported };
    Error::new(Class::Compile, kind, format!("{error:#}"))
}

fn invalid(error: &wasmtime::Error) -> Error {
    Error::new(Class::Compile, Kind::Invalid, format!("{error:#}"))
}

fn malformed(message: String) -> Error {
    Error::new(Class::Compile, Kind::Malformed, message)
}

fn component() -> Error {
    let message = "components are not supported; a core module is needed";
    Error::new(Class::Compile, Kind::Unsupported, message)
}
