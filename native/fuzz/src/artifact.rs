//! Artifacts whose metadata is damaged, or forged with checksums that hold: an error, or a module
//! that does no harm. Of sealed ones nothing but the very bytes is taken.
//!
//! The code stays as the compiler made it: code is trusted by contract, as that of a shared library,
//! and the seal is there for whoever cannot trust it.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;
use std::sync::OnceLock;

use wasmtime_beam::error::{Class, Error, Kind, Result};
use wasmtime_beam::mac::Key;
use wasmtime_beam::module::artifact::{Contents, parse};
use wasmtime_beam::module::{Facts, Module, parse_wat};
use wasmtime_beam::options::{Check, CompileOptions};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::input::Choices;
use crate::ours::{Ours, options};

/// Modules of which artifacts are made: with images, without, of many sorts of memories.
const MODULES: [&str; 3] = [
    r#"(module (memory (export "m") 2) (data (i32.const 10) "one") (data (i32.const 70000) "two")
         (func (export "f") (result i32) (i32.load (i32.const 70000))))"#,
    r#"(module (func (export "f") (result i32) (i32.const 7)))"#,
    r#"(module (memory (export "m") i64 1 9) (memory (export "n") 100 (pagesize 1)) (memory (export "o") 1)
         (data (memory 0) (i64.const 5) "wide") (data (memory 1) (i32.const 0) "small")
         (data (memory 2) (i32.const 4096) "page")
         (func (export "f") (result i32) (i32.load 2 (i32.const 4096))))"#,
];

/// Bytes of the trailer: offset, length, checksums of body and footer, version, magic.
const TRAILER: usize = 44;

/// An artifact as it was written.
struct Original {
    bytes: Vec<u8>,
    sealed: Vec<u8>,
    contents: Contents,
    /// Where the footer begins.
    footer: usize,
}

pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let original = &originals()[choices.below(MODULES.len())];
    match choices.below(5) {
        0 => sealed(original, &mut choices),
        // Whatever it is, it is no artifact.
        1 => loaded(original, choices.some(200)),
        2 => facts(choices.some(40)),
        sort => forged(original, sort == 3, &mut choices),
    }
}

fn originals() -> &'static [Original] {
    static ORIGINALS: OnceLock<Vec<Original>> = OnceLock::new();
    ORIGINALS.get_or_init(|| MODULES.iter().map(|text| Original::new(text)).collect())
}

fn key() -> Key {
    Key::new(b"a key of the fuzzer")
}

fn compile_options() -> CompileOptions {
    options(false)
}

impl Original {
    fn new(text: &str) -> Self {
        let wasm = parse_wat(text.as_bytes()).expect("a module");
        let module = Module::compile(&wasm, &compile_options()).expect("compiled");
        let bytes = module.serialize(None).expect("an artifact");
        let sealed = module.serialize(Some(&key())).expect("a sealed artifact");
        let contents = parse(&bytes, Check::Full).expect("contents");
        let at = bytes.len() - TRAILER;
        let footer = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Original { bytes, sealed, contents, footer: footer as usize }
    }
}

/// Any change of sealed bytes is noticed before anything is made of them.
fn sealed(original: &Original, choices: &mut Choices<'_>) {
    let mut bytes = original.sealed.clone();
    let from = if choices.chance(2) { 0 } else { original.footer };
    damage(&mut bytes, from, choices);
    let loaded = Module::deserialize(&bytes, &compile_options(), Some(&key()));
    let mapped = map(&bytes, Check::Metadata, Some(&key()));
    if bytes == original.sealed {
        used(&loaded.expect("what was sealed"));
        return used(&mapped.expect("what was sealed"));
    }
    for result in [loaded, mapped] {
        let error = result.err().expect("refused");
        assert_eq!((error.class, error.kind), (Class::Compile, Kind::Untrusted), "{error}");
    }
}

/// A footer, a trailer, or both are changed; with `signed`, the checksums are made to hold.
fn forged(original: &Original, signed: bool, choices: &mut Choices<'_>) {
    let mut bytes = original.bytes.clone();
    damage(&mut bytes, original.footer, choices);
    if signed {
        sign(&mut bytes, original.footer);
    }
    loaded(original, &bytes);
}

/// Changes bytes from `from` on, cuts them, or puts some in.
fn damage(bytes: &mut Vec<u8>, from: usize, choices: &mut Choices<'_>) {
    for _ in 0..choices.below(6) {
        let room = bytes.len().saturating_sub(from).max(1);
        let at = (from + choices.below(room)).min(bytes.len());
        match choices.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, choices.some(16).to_vec())),
            2 => drop(bytes.drain(at..(at + choices.below(48)).min(bytes.len()))),
            3 => overwrite(bytes, at, &choices.bits().to_le_bytes()),
            // Numbers of the footer and trailer stand at multiples of four from its beginning.
            4 => overwrite(bytes, from + (at - from) / 4 * 4, &choices.bits().to_le_bytes()),
            5 => overwrite(bytes, from + (at - from) / 4 * 4, &choices.byte().to_le_bytes()),
            6 => bytes.extend_from_slice(choices.some(64)),
            _ => overwrite(bytes, at, &[choices.byte()]),
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    bytes.iter_mut().skip(at).zip(with).for_each(|(byte, new)| *byte = *new);
}

/// Writes a trailer that suits what stands before it.
fn sign(bytes: &mut [u8], footer: usize) {
    let Some(end) = bytes.len().checked_sub(TRAILER).filter(|end| *end >= footer) else { return };
    let mut fields = Vec::new();
    fields.extend((footer as u64).to_le_bytes());
    fields.extend(((end - footer) as u64).to_le_bytes());
    fields.extend(xxh3_64(&bytes[..footer]).to_le_bytes());
    let mut hash = Xxh3::new();
    hash.update(&bytes[footer..end]);
    hash.update(&fields);
    fields.extend(hash.digest().to_le_bytes());
    overwrite(&mut bytes[end..], 0, &fields);
    overwrite(&mut bytes[end..], fields.len(), &1u32.to_le_bytes());
    overwrite(&mut bytes[end..], fields.len() + 4, b"WASMBEAM");
}

/// Loads bytes, both ways, unless they would put something else in the place of the code.
fn loaded(original: &Original, bytes: &[u8]) {
    let checks = [Check::Full, Check::Metadata];
    let parsed = checks.map(|check| parse(bytes, check));
    for result in &parsed {
        match result {
            Err(error) => refused(error),
            Ok(contents) if contents.code != original.contents.code => return,
            Ok(_) => {}
        }
    }
    let code = &original.contents.code;
    if parsed[1].is_ok() && bytes.get(code.clone()) != original.bytes.get(code.clone()) {
        return;
    }
    attempt(Module::deserialize(bytes, &compile_options(), None));
    attempt(map(bytes, Check::Metadata, None));
}

fn attempt(module: Result<Module>) {
    match module {
        Ok(module) => used(&module),
        Err(error) => refused(&error),
    }
}

fn refused(error: &Error) {
    use Kind::{Badarg, Corrupted, Incompatible, OutOfMemory};
    let known = [Badarg, Corrupted, Incompatible, OutOfMemory].contains(&error.kind);
    assert!(error.class == Class::Compile && known, "{error}");
}

/// Whatever metadata was believed: instances are made, or are not.
fn used(module: &Module) {
    for _ in 0..2 {
        match Ours::new(module) {
            Ok(ours) => {
                let _ = ours.call("f", &[], None);
                ours.state();
                ours.destroy();
            }
            Err(error) => assert_ne!(error.kind, Kind::Panic, "{error}"),
        }
    }
}

/// Facts are read, or not; what is read is written as it was.
fn facts(bytes: &[u8]) {
    match Facts::decode(bytes) {
        Ok(facts) => assert_eq!(Facts::decode(&facts.encode()), Ok(facts)),
        Err(error) => refused(&error),
    }
}

/// Maps an artifact from a file.
fn map(bytes: &[u8], check: Check, key: Option<&Key>) -> Result<Module> {
    let (file, path) = file(bytes);
    let module = Module::deserialize_file(&path, &compile_options(), check, key);
    drop(file);
    module
}

/// A file of these bytes that has no name of its own.
fn file(bytes: &[u8]) -> (File, PathBuf) {
    // SAFETY: the name is a string of C; the descriptor is new, and nobody else's.
    let mut file = unsafe {
        let descriptor = libc::memfd_create(c"artifact".as_ptr(), 0);
        assert!(descriptor >= 0, "no file");
        File::from_raw_fd(descriptor)
    };
    file.write_all(bytes).expect("written");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    (file, path.into())
}
