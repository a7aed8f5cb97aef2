//! Takes the streams of an instance to their process, in the order in which they are given.

use rustler::{Atom, Encoder, Env, LocalPid, NewBinary, OwnedBinary, Term};
use wasmtime_beam::counts::{Live, Object};
use wasmtime_beam::stream::{Draft, Outlet, Stream};

use crate::atoms;
use crate::post::Home;

/// What takes the streams of one instance: a process, by messages.
pub struct Outbox {
    pid: LocalPid,
    name: Home,
    _live: Live,
}

impl Outbox {
    /// Messages to `pid`, with the instance's name in them.
    pub fn new(pid: LocalPid, name: Term<'_>) -> Self {
        Outbox { pid, name: Home::new(name), _live: Live::new(Object::Outlet) }
    }

    fn send(&self, stream: Stream, bytes: impl for<'a> FnOnce(Env<'a>) -> Term<'a>) {
        // A process that is gone gets nothing.
        self.name.stream(tag(stream), bytes).send(self.pid);
    }
}

fn tag(stream: Stream) -> Atom {
    match stream {
        Stream::Stdout => atoms::stdout(),
        Stream::Stderr => atoms::stderr(),
        Stream::Channel => atoms::channel(),
    }
}

impl Outlet for Outbox {
    fn put(&self, stream: Stream, bytes: &[u8]) {
        self.send(stream, |env| {
            let mut binary = NewBinary::new(env, bytes.len());
            binary.as_mut_slice().copy_from_slice(bytes);
            binary.into()
        });
    }

    fn draft(&self, len: usize) -> Box<dyn Draft + '_> {
        Box::new(Letter { outbox: self, bytes: OwnedBinary::new(len), written: 0 })
    }
}

/// A large message on its way into a binary of the VM.
struct Letter<'a> {
    outbox: &'a Outbox,
    bytes: OwnedBinary,
    written: usize,
}

impl Draft for Letter<'_> {
    fn write(&mut self, bytes: &[u8]) {
        let end = self.written + bytes.len();
        if let Some(place) = self.bytes.as_mut_slice().get_mut(self.written..end) {
            place.copy_from_slice(bytes);
            self.written = end;
        }
    }

    fn send(self: Box<Self>) {
        // What was not written is memory that somebody else has used.
        if self.written == self.bytes.len() {
            let Letter { outbox, bytes, .. } = *self;
            outbox.send(Stream::Channel, |env| bytes.release(env).encode(env));
        }
    }
}
