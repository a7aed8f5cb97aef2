//! What is asked of a guest, by whom, and how it ends.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::control::destroyed;
use super::host_call::{HostCall, HostImport};
use super::number::next_id;
use super::refs::Ref;
use crate::counts::{Live, Object};
use crate::error::{Class, Error, Kind, Result};
use crate::module::{Function, Module};
use crate::ticker::Armed;
use crate::value::Value;

/// Numbers a job.
pub type JobId = u64;

/// What a job answers: the results of the function, none for an instantiation.
pub type Outcome = Result<Vec<Value>>;

/// Who asked for a job. The core knows no process: it hands over data.
pub trait Client: Send + Sync {
    /// A host call to serve; false when nobody is there any more.
    fn host_call(&self, call: HostCall, import: &HostImport) -> bool;
    /// A number for who asks.
    fn asker(&self) -> u64;
    /// A number for who serves the host calls: a request of that asker runs inside the call.
    fn host(&self) -> u64 {
        self.asker()
    }
    /// A number for who polls the guest, where clients take turns; 0 when it asks for nothing itself.
    fn poller(&self) -> u64 {
        self.asker()
    }
    /// True when the asker does nothing else until its job ended: it cannot serve a host call that
    /// the job queues behind.
    fn waits(&self) -> bool {
        true
    }
    /// The job ended. Called once.
    fn finish(&self, job: JobId, outcome: Outcome);
    /// It is this client's turn to poll. A client whose guest has a runner of its own ignores it.
    fn turn(&self) {}
    /// The running job must stop. A client that polls, but may be busy elsewhere, sees to it that
    /// somebody polls.
    fn stopped(&self) {}
}

/// What a guest can be asked to do.
#[derive(Debug)]
pub enum Request {
    /// Make the instance in the store and run its start section.
    Instantiate,
    /// A function that the guest's module exports.
    Call { function: Arc<Function>, args: Vec<Value>, fuel: Option<u64> },
    /// As `Call`, of a function that a reference refers to.
    CallRef { func: Ref, args: Vec<Value>, fuel: Option<u64> },
}

impl Request {
    /// A call of what `module`, the guest's, exports under this name.
    ///
    /// # Errors
    /// Class `call`, kind `unknown_export`.
    pub fn call(module: &Module, export: &str, args: Vec<Value>) -> Result<Self> {
        let function = module.function(export)?.clone();
        Ok(Request::Call { function, args, fuel: None })
    }

    /// The fuel that it was given.
    pub(super) fn fuel(&self) -> Option<u64> {
        match self {
            Request::Instantiate => None,
            Request::Call { fuel, .. } | Request::CallRef { fuel, .. } => *fuel,
        }
    }
}

/// A request under way.
pub struct Job {
    pub(crate) id: JobId,
    pub(crate) request: Request,
    client: Arc<dyn Client>,
    pub(crate) deadline: Option<Armed>,
    finished: bool,
    _live: Live,
}

impl Job {
    pub fn new(request: Request, client: Arc<dyn Client>) -> Self {
        Job::numbered(next_id(), request, client)
    }

    /// A job with a number that was taken for it before, so that its client knows it.
    pub fn numbered(id: JobId, request: Request, client: Arc<dyn Client>) -> Self {
        let _live = Live::new(Object::Job);
        Job { id, request, client, deadline: None, finished: false, _live }
    }

    pub(crate) fn client(&self) -> &Arc<dyn Client> {
        &self.client
    }

    pub fn id(&self) -> JobId {
        self.id
    }

    /// Ends the job.
    pub fn finish(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    /// Its client, who polled it, has the outcome already.
    pub fn settle(mut self) {
        self.forget();
    }

    /// A client's panic is its own: others are still to be told.
    fn end(&mut self, outcome: Outcome) {
        self.finished = true;
        let _ = catch_unwind(AssertUnwindSafe(|| self.client.finish(self.id, outcome)));
    }
}

impl Job {
    /// Its client learns of the refusal otherwise.
    pub(super) fn forget(&mut self) {
        self.finished = true;
    }
}

impl Drop for Job {
    /// A job that is dropped went with the run around it: whoever waits must not wait for ever.
    fn drop(&mut self) {
        if !self.finished {
            let lost = std::thread::panicking();
            self.end(Err(if lost {
                panicked(&"a panic took the call along")
            } else {
                Reason::Interrupt.error()
            }));
        }
    }
}

/// Why a job was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Timeout(Duration),
    Interrupt,
    HostTimeout(Duration),
    Destroyed,
}

impl Reason {
    /// What the stopped job answers.
    pub fn error(self) -> Error {
        match self {
            Reason::Timeout(after) => {
                let message = format!("the call did not end within {} ms", after.as_millis());
                Error::new(Class::Trap, Kind::Timeout, message)
            }
            Reason::Interrupt => {
                Error::new(Class::Trap, Kind::Interrupt, "the call was interrupted")
            }
            Reason::HostTimeout(after) => late("a host call", after),
            Reason::Destroyed => destroyed(),
        }
    }

    /// As [`Reason::error`], of a job that was in this host call.
    pub(super) fn error_in(self, import: Option<&HostImport>) -> Error {
        match (self, import) {
            (Reason::HostTimeout(after), Some(import)) => late(import, after),
            _ => self.error(),
        }
    }
}

fn late(what: impl Display, after: Duration) -> Error {
    let message = format!("{what} got no answer within {} ms", after.as_millis());
    Error::new(Class::Host, Kind::HostTimeout, message)
}

/// A panic's message as an error.
pub fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::new(Class::Internal, Kind::Panic, text.unwrap_or("a panic without a message"))
}
