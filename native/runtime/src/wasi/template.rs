//! Options checked once, and the contexts of instances made from them.
//! Nothing that stays the same from one instance to the next costs a system call again.

use super::clocks::Monotonic;
use super::dirs::Dirs;
use super::fifo::Preopens;
use super::inherited::Inherited;
use super::stdio::{Input, has_nul, open_input, open_output, refuse_nul};
use super::streams::{Capture, Captured, Target};
use crate::error::{Class, Error, Quoted, Result};
use crate::options::{Dir, Output, Stdin, WasiOptions};
use crate::stream::{Ends, StdinOf, Stream};
use bytes::Bytes;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiView};

/// Files and directories that one instance can have open beside its preopens and standard streams;
/// one more is errno 33 (mfile). The descriptors of the OS process are shared by all instances.
pub const MAX_OPEN_FILES: usize = 256;

/// Bytes of arguments, variables and input that are freed inline: about a tenth of a millisecond.
const LARGE: usize = 256 << 10;

/// What a string counts besides its bytes: it is freed by itself.
const STRING: usize = 256;

/// The WASI state of one instance, kept in its store's data.
pub struct Wasi {
    pub(super) p1: WasiP1Ctx,
    pub(super) stdin: Input,
    pub(super) preopens: Preopens,
    captured: Captured,
    /// A standard stream is a file.
    has_file: bool,
    /// What the host gave is so much that freeing it takes long.
    is_large: bool,
}

impl Wasi {
    /// A context without a template.
    ///
    /// # Errors
    /// As [`WasiTemplate::new`] and [`WasiTemplate::instantiate`].
    pub fn new(options: &WasiOptions) -> Result<Self> {
        WasiTemplate::new(options)?.instantiate(&Ends::none())
    }

    /// What the guest writes to captured streams; a clone of it outlives the context.
    pub fn captured(&self) -> &Captured {
        &self.captured
    }

    /// True when dropping it may take long: what the host gave is large, or files are open, beside
    /// those of streams that the host has itself. Closing one that was removed frees all of its
    /// content.
    pub(crate) fn takes_long(&mut self) -> bool {
        let is_file = |entry: &(dyn Any + Send)| {
            matches!(entry.downcast_ref::<Descriptor>(), Some(Descriptor::File(_)))
        };
        self.has_file || self.is_large || self.p1.ctx().table.iter_mut().any(|entry| is_file(entry))
    }
}

/// The standard streams of one instance.
#[derive(Clone)]
pub struct Streams {
    pub stdin: Input,
    pub stdout: Target,
    pub stderr: Target,
}

/// WASI options that were checked, with their directories open.
pub struct WasiTemplate {
    args: Vec<String>,
    env: Vec<(String, String)>,
    dirs: Dirs,
    stdin: Source,
    stdout: Output,
    stderr: Output,
    output_limit: u64,
    /// Args, variables and input are so much that freeing them takes long.
    is_large: bool,
}

/// Where stdin comes from; the bytes are shared by all instances.
enum Source {
    Bytes(Bytes),
    Other(Stdin),
}

impl WasiTemplate {
    /// Checks the options and opens the directories. Files of standard streams are opened for each
    /// instance.
    ///
    /// # Errors
    /// `class => instantiate, kind => badarg`, the key naming the option: a NUL in a name or path, an
    /// environment name that is empty or contains `=`, a directory that cannot be opened.
    pub fn new(options: &WasiOptions) -> Result<Self> {
        WasiTemplate::with(options, Dirs::open)
    }

    /// As [`WasiTemplate::new`], for one context that is made at once: its directories are not
    /// looked at again.
    ///
    /// # Errors
    /// As [`WasiTemplate::new`].
    pub fn for_one(options: &WasiOptions) -> Result<Self> {
        WasiTemplate::with(options, Dirs::open_for_one)
    }

    fn with(options: &WasiOptions, open: impl FnOnce(&[Dir]) -> Result<Dirs>) -> Result<Self> {
        check_paths(options)?;
        Ok(WasiTemplate {
            args: checked_args(&options.args)?,
            env: checked_env(&options.env)?,
            dirs: open(&options.dirs)?,
            stdin: match &options.stdin {
                Stdin::Binary(bytes) => Source::Bytes(Bytes::from_owner(bytes.clone())),
                other => Source::Other(other.clone()),
            },
            is_large: weight(options) > LARGE,
            stdout: options.stdout.clone(),
            stderr: options.stderr.clone(),
            output_limit: options.output_limit,
        })
    }

    /// Makes the preview 1 context of one instance. A directory that was replaced on the host since
    /// it was opened is opened anew.
    ///
    /// # Errors
    /// `class => instantiate, kind => badarg`, with the key of the stream or directory that cannot be
    /// opened.
    pub fn instantiate(&self, ends: &Ends) -> Result<Wasi> {
        self.instantiate_with(self.streams(ends)?)
    }

    /// As [`instantiate`](Self::instantiate), with these streams.
    ///
    /// # Errors
    /// `badarg` with key `dirs` when a directory is gone.
    pub fn instantiate_with(&self, streams: Streams) -> Result<Wasi> {
        let (stdin, captured) = (streams.stdin.clone(), streams.captured());
        let has_file = streams.has_file();
        let mut p1 = self.builder(streams).build_p1();
        let view = p1.ctx();
        let (filesystem, preopens) = self.dirs.share()?;
        *view.ctx.filesystem() = filesystem;
        // The three streams and every preopen take an entry each.
        view.table.set_max_capacity(3 + self.dirs.len() + MAX_OPEN_FILES);
        Ok(Wasi { p1, stdin, preopens, captured, has_file, is_large: self.is_large })
    }

    /// Makes the 0.2 context of one component instance, with the same grants and these streams.
    ///
    /// # Errors
    /// `badarg` with key `dirs` when a directory is gone.
    pub fn instantiate_p2(&self, streams: Streams) -> Result<(WasiCtx, Captured)> {
        let captured = streams.captured();
        let mut ctx = self.builder(streams).build();
        (*ctx.filesystem(), _) = self.dirs.share()?;
        Ok((ctx, captured))
    }

    /// The standard streams of one instance as the options say. A file for output is created, or
    /// emptied when it exists; it is opened once when both streams name it.
    ///
    /// # Errors
    /// `class => instantiate, kind => badarg`, with the key of the stream that cannot be opened.
    pub fn streams(&self, ends: &Ends) -> Result<Streams> {
        let stdin = self.input(ends)?;
        let stdout = self.target("stdout", &self.stdout, ends)?;
        let stderr = match &stdout {
            Target::File(_) if self.stdout == self.stderr => stdout.clone(),
            _ => self.target("stderr", &self.stderr, ends)?,
        };
        Ok(Streams { stdin, stdout, stderr })
    }

    /// True when output goes to the instance's outlet.
    pub fn is_streamed(&self) -> bool {
        [&self.stdout, &self.stderr].into_iter().any(|output| *output == Output::Stream)
    }

    fn input(&self, ends: &Ends) -> Result<Input> {
        Ok(match &self.stdin {
            Source::Bytes(bytes) => Input::Bytes(MemoryInputPipe::new(bytes.clone())),
            Source::Other(Stdin::File(path)) => Input::File(open_input(path)?),
            Source::Other(Stdin::Inherit) => Input::Inherit,
            Source::Other(Stdin::Stream) => Input::Stream(Arc::new(StdinOf(ends.inbox.clone()))),
            Source::Other(Stdin::None | Stdin::Binary(_)) => Input::Empty,
        })
    }

    fn target(&self, key: &'static str, output: &Output, ends: &Ends) -> Result<Target> {
        let stream = if key == "stdout" { Stream::Stdout } else { Stream::Stderr };
        Ok(match output {
            Output::None => Target::Discard,
            Output::Stream => match &ends.outlet {
                Some(outlet) => Target::Stream(outlet.clone(), stream),
                None => Target::Discard,
            },
            Output::Inherit if key == "stdout" => Target::Inherit(Inherited::Stdout),
            Output::Inherit => Target::Inherit(Inherited::Stderr),
            Output::Capture => Target::Capture(Arc::new(Capture::new(self.output_limit))),
            Output::File(path) => Target::File(Arc::new(open_output(key, path)?)),
        })
    }

    fn builder(&self, streams: Streams) -> WasiCtxBuilder {
        let mut builder = WasiCtxBuilder::new();
        builder.args(&self.args).envs(&self.env).monotonic_clock(Monotonic);
        builder.stdin(streams.stdin).stdout(streams.stdout).stderr(streams.stderr);
        builder.allow_tcp(false).allow_udp(false);
        builder
    }
}

impl Streams {
    fn captured(&self) -> Captured {
        Captured { stdout: self.stdout.capture(), stderr: self.stderr.capture() }
    }

    fn has_file(&self) -> bool {
        let is_file = |target: &Target| matches!(target, Target::File(_));
        matches!(self.stdin, Input::File(_)) || is_file(&self.stdout) || is_file(&self.stderr)
    }
}

/// Bytes that the options hand over, and what each string costs besides.
fn weight(options: &WasiOptions) -> usize {
    let texts = options.env.iter().flat_map(|(name, value)| [name, value]).chain(&options.args);
    let input = match &options.stdin {
        Stdin::Binary(bytes) => bytes.len(),
        _ => 0,
    };
    texts.map(|text| text.len() + STRING).sum::<usize>() + input
}

/// A file that is named by a standard stream, checked here and opened for each instance.
fn check_paths(options: &WasiOptions) -> Result<()> {
    if let Stdin::File(path) = &options.stdin {
        check_path("stdin", path)?;
    }
    for (key, output) in [("stdout", &options.stdout), ("stderr", &options.stderr)] {
        if let Output::File(path) = output {
            check_path(key, path)?;
        }
    }
    Ok(())
}

fn check_path(key: &'static str, path: &Path) -> Result<()> {
    if has_nul(path) { Err(refuse_nul(key, &path.to_string_lossy())) } else { Ok(()) }
}

fn checked_args(args: &[String]) -> Result<Vec<String>> {
    match args.iter().find(|arg| has_nul(arg)) {
        Some(arg) => Err(refuse_nul("args", arg)),
        None => Ok(args.to_vec()),
    }
}

fn checked_env(env: &[(String, String)]) -> Result<Vec<(String, String)>> {
    env.iter().try_for_each(|(name, value)| check_variable(name, value))?;
    Ok(env.to_vec())
}

fn check_variable(name: &str, value: &str) -> Result<()> {
    if let Some(text) = [name, value].into_iter().find(|text| has_nul(text)) {
        return Err(refuse_nul("env", text));
    }
    if name.is_empty() || name.contains('=') {
        let message = format!("env: {} is no name of an environment variable", Quoted(name));
        return Err(Error::option(Class::Instantiate, "env", message));
    }
    Ok(())
}
