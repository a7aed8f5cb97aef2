//! Standard input, and files as standard streams.
//! The polling thread never waits in the OS for any of them.

use crate::error::{Class, Error, Quoted, Result};
use crate::stream::StdinOf;
use bytes::Bytes;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use tokio::io::AsyncRead;
use wasmtime_wasi::cli::{InputFile, IsTerminal, StdinStream};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::p2::{InputStream, Pollable, StreamResult};

/// What a guest reads as stdin. Clones share their progress.
#[derive(Clone)]
pub enum Input {
    /// End of file at once.
    Empty,
    /// Bytes that are there already.
    Bytes(MemoryInputPipe),
    /// A file from its start.
    File(InputFile),
    /// The stdin of this OS process.
    Inherit,
    /// The instance's inbox, which other threads fill.
    Stream(Arc<StdinOf>),
}

impl IsTerminal for Input {
    fn is_terminal(&self) -> bool {
        match self {
            Input::Inherit => io::IsTerminal::is_terminal(&io::stdin()),
            Input::Empty | Input::Bytes(_) | Input::File(_) | Input::Stream(_) => false,
        }
    }
}

impl StdinStream for Input {
    fn p2_stream(&self) -> Box<dyn InputStream> {
        match self {
            Input::Empty => io::empty().p2_stream(),
            Input::Bytes(bytes) => bytes.p2_stream(),
            Input::File(file) => file.p2_stream(),
            Input::Inherit => Box::new(InheritedInput(io::stdin().p2_stream())),
            Input::Stream(inbox) => inbox.p2_stream(),
        }
    }

    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        match self {
            Input::Empty => io::empty().async_stream(),
            Input::Bytes(bytes) => bytes.async_stream(),
            Input::File(file) => file.async_stream(),
            Input::Inherit => io::stdin().async_stream(),
            Input::Stream(inbox) => inbox.async_stream(),
        }
    }
}

/// wasmtime-wasi reads the process's stdin on one thread, only when a guest asks, and keeps what
/// arrives for whoever asks next; so a cancelled read loses nothing. Its blocking read gives up when
/// other guests were faster ten times in a row; this one does not.
struct InheritedInput(Box<dyn InputStream>);

#[async_trait::async_trait]
impl Pollable for InheritedInput {
    async fn ready(&mut self) {
        self.0.ready().await;
    }
}

#[async_trait::async_trait]
impl InputStream for InheritedInput {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.0.read(size)
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        loop {
            self.0.ready().await;
            let bytes = self.0.read(size)?;
            if size == 0 || !bytes.is_empty() {
                return Ok(bytes);
            }
        }
    }
}

/// Opens a file to be read as stdin.
///
/// # Errors
/// `badarg` with key `stdin`: it cannot be opened, or reading it could wait for ever.
pub(super) fn open_input(path: &Path) -> Result<InputFile> {
    let mut options = OpenOptions::new();
    Ok(InputFile::new(open("stdin", path, options.read(true))?))
}

/// Creates or empties a file for output. Writes go to its end, so that streams which share a file
/// lose nothing.
///
/// # Errors
/// `badarg` with this key: it cannot be opened, or writing it could wait for ever.
pub(super) fn open_output(key: &'static str, path: &Path) -> Result<File> {
    let file = open(key, path, OpenOptions::new().create(true).append(true))?;
    truncate(&file).map_err(|error| cannot_open(key, path, &error.to_string()))?;
    Ok(file)
}

/// `append` and `truncate` exclude one another when opening; devices cannot be truncated.
fn truncate(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

/// A FIFO, a socket or a terminal would hold up the polling thread, even while it is opened.
fn open(key: &'static str, path: &Path, options: &mut OpenOptions) -> Result<File> {
    let waiting = "is neither a regular file nor a device that never waits";
    let file = options
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| cannot_open(key, path, &error.to_string()))?;
    let metadata = file.metadata().map_err(|error| cannot_open(key, path, &error.to_string()))?;
    let plain_device = metadata.file_type().is_char_device() && !io::IsTerminal::is_terminal(&file);
    if metadata.is_file() || plain_device {
        return Ok(file);
    }
    Err(cannot_open(key, path, waiting))
}

pub(super) fn cannot_open(key: &'static str, path: &Path, why: &str) -> Error {
    let message = format!("{key}: cannot open {}: {why}", path.display());
    Error::option(Class::Instantiate, key, message)
}

/// The OS would end a name at a NUL, and mean another one.
pub(super) fn has_nul(text: impl AsRef<OsStr>) -> bool {
    text.as_ref().as_bytes().contains(&0)
}

pub(super) fn refuse_nul(key: &'static str, text: &str) -> Error {
    Error::option(Class::Instantiate, key, format!("{key}: {} contains a NUL", Quoted(text)))
}
