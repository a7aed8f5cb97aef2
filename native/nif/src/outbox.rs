//! Messages from any thread, in the order in which they are given: a guest's streams to their
//! process, and wakes. On a scheduler a message goes out in the name of the process whose NIF call
//! this is, so that it overtakes nothing and waits for no other thread.

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};

use rustler::sys::ErlNifEnv;
use rustler::thread::is_scheduler_thread;
use rustler::{Atom, Encoder, Env, LocalPid, NewBinary, OwnedBinary, Term};
use wasmtime_beam::counts::{Live, Object};
use wasmtime_beam::stream::{Draft, Outlet, Stream};

use crate::client::{Home, Message};
use crate::{atoms, background};

thread_local! {
    /// The environment of the NIF call that this thread is in.
    static CALLER: Cell<*mut ErlNifEnv> = const { Cell::new(null_mut()) };
}

/// Runs `f` inside the NIF call of `env`: messages that it delivers are sent by that process.
pub fn inside<R>(env: Env<'_>, f: impl FnOnce() -> R) -> R {
    struct Reset(*mut ErlNifEnv);
    impl Drop for Reset {
        fn drop(&mut self) {
            CALLER.set(self.0);
        }
    }
    let _reset = Reset(CALLER.replace(env.as_c_arg()));
    f()
}

/// Not inlined: a guest's stack may go on on another thread, which has another `CALLER`.
#[inline(never)]
fn caller() -> Option<NonNull<ErlNifEnv>> {
    NonNull::new(CALLER.get())
}

/// Sends `message` from whatever thread this is. A process that is gone gets nothing.
pub fn deliver(message: Message, pid: LocalPid) {
    if !is_scheduler_thread() {
        message.send(pid);
    } else if let Some(caller) = caller() {
        message.send_from(caller, pid);
    } else {
        // A destructor or a callback of the VM: neither has an environment that may send.
        background::run(move || {
            let _ = message.send(pid);
        });
    }
}

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
        deliver(self.name.stream(tag(stream), bytes), self.pid);
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
