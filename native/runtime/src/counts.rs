//! Counts of live native objects, so that a test can see that nothing is left behind.
//! An object that must not leak holds a `Live`.

use std::sync::atomic::Ordering::Relaxed;

use crate::shard::Counter;

/// The sorts of objects that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    Engine,
    Module,
    Guest,
    Store,
    Job,
    RunningThread,
    ParkedThread,
    Preinit,
    Slot,
    Image,
    Reference,
    Term,
    Outlet,
}

impl Object {
    pub const ALL: &'static [Object] = &[
        Object::Engine,
        Object::Module,
        Object::Guest,
        Object::Store,
        Object::Job,
        Object::RunningThread,
        Object::ParkedThread,
        Object::Preinit,
        Object::Slot,
        Object::Image,
        Object::Reference,
        Object::Term,
        Object::Outlet,
    ];

    /// The name in the table of live objects.
    pub const fn as_str(self) -> &'static str {
        match self {
            Object::Engine => "engines",
            Object::Module => "modules",
            Object::Guest => "instances",
            Object::Store => "stores",
            Object::Job => "jobs",
            Object::RunningThread => "threads_running",
            Object::ParkedThread => "threads_parked",
            Object::Preinit => "preinits",
            Object::Slot => "slots",
            Object::Image => "images",
            Object::Reference => "references",
            Object::Term => "terms",
            Object::Outlet => "outlets",
        }
    }

    const fn counter(self) -> Counter {
        Counter::numbered(self as usize)
    }
}

/// How many objects of a sort are alive.
pub fn live(object: Object) -> usize {
    object.counter().sum(Relaxed)
}

/// Counts its owner while it lives.
#[derive(Debug)]
pub struct Live(Object);

impl Live {
    pub fn new(object: Object) -> Self {
        object.counter().increment();
        Live(object)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.counter().decrement();
    }
}
