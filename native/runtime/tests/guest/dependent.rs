//! Jobs that a host function has other guests do: how long they last.

use std::sync::Arc;
use std::time::Duration;

use wasmtime_beam::guest::{Client, Guest, HostCall};
use wasmtime_beam::{Error, Kind};

use crate::support::{
    Recorder, call, done, guest, host_call, poll, rests, start, submit, submit_within,
};

const WAT: &str = r#"(module
  (import "host" "ask" (func $ask))
  (func (export "one"))
  (func (export "ask") (call $ask))
  (func (export "loop") (loop (br 0))))"#;

/// A guest that asks its host, who has another guest do what never ends.
struct Asked {
    outer: Arc<Guest>,
    other: Arc<Guest>,
    client: Arc<Recorder>,
    inner: Arc<Recorder>,
    call: HostCall,
}

impl Asked {
    fn new(timeout: Option<Duration>) -> Self {
        let (outer, other) = (guest(WAT), guest(WAT));
        let (client, inner) = (Recorder::new(), Recorder::new());
        submit_within(&outer, &client, call("ask", &[]), timeout);
        let call = host_call(&outer);
        Asked { outer, other, client, inner, call }
    }

    /// The host of the outer guest is who asked.
    fn bind(&self, job: u64) {
        self.outer.control().bind(self.client.asker(), self.other.control(), job);
    }
}

/// However the host call ends, by its answer too, what it was for ends: where it runs.
#[test]
fn it_ends_with_the_host_call() {
    for end in ["interrupt", "deadline", "destroy", "answer", "failure"] {
        let asked = Asked::new((end == "deadline").then(|| Duration::from_millis(5)));
        let (outer, control) = (&asked.outer, asked.outer.control());
        asked.bind(start(&asked.other, &asked.inner, call("loop", &[])));
        match end {
            "interrupt" => assert!(control.interrupt()),
            "destroy" => drop(outer.destroy()),
            "answer" => control.reply(asked.call.id, Ok(vec![])),
            "failure" => control.host_down(asked.call.id),
            _ => {}
        }
        while asked.inner.outcomes() == 0 {
            poll(outer);
        }
        assert_eq!(asked.inner.outcome().unwrap_err().kind, Kind::Interrupt, "{end}");
        start(&asked.other, &asked.inner, call("one", &[]));
        assert!(asked.inner.outcome().is_ok());
    }
}

/// It ends in the queue of the other guest, too, and nothing else there does.
#[test]
fn it_ends_in_the_queue() {
    let (asked, others) = (Asked::new(None), Recorder::new());
    submit(&asked.other, &others, call("ask", &[]));
    host_call(&asked.other);
    asked.bind(submit(&asked.other, &asked.inner, call("one", &[])));
    submit(&asked.other, &Recorder::new(), call("one", &[]));
    assert!(asked.outer.control().interrupt());
    assert_eq!(done(&asked.outer).unwrap_err().kind, Kind::Interrupt);
    assert_eq!(asked.inner.outcome().unwrap_err().kind, Kind::Interrupt);
    assert_eq!(asked.other.control().activity().1, 1);
}

/// A host call that is over, or waits for somebody else, cannot be what it is for.
#[test]
fn it_ends_at_once_without_the_host_call() {
    for end in ["over", "answered", "another's"] {
        let asked = Asked::new(None);
        let job = submit(&asked.other, &asked.inner, call("one", &[]));
        match end {
            "over" => {
                asked.outer.control().interrupt();
                assert!(done(&asked.outer).is_err());
            }
            "answered" => asked.outer.control().reply(asked.call.id, Ok(vec![])),
            _ => assert!(asked.outer.control().claim(asked.call.id, 1).is_some()),
        }
        asked.bind(job);
        assert_eq!(asked.inner.outcome().unwrap_err().kind, Kind::Interrupt, "{end}");
    }
}

/// What one host call had done before leaves what it has done next alone; in a ring, too, which comes
/// back to the first guest.
#[test]
fn one_after_the_other() {
    let asked = Asked::new(None);
    let host = asked.client.clone();
    for _ in 0..3 {
        asked.bind(submit(&asked.other, &host, call("one", &[])));
        assert!(done(&asked.other).is_ok());
    }
    asked.bind(submit(&asked.other, &host, call("ask", &[])));
    let there = host_call(&asked.other);
    let back = submit(&asked.outer, &host, call("ask", &[]));
    asked.other.control().bind(host.asker(), asked.outer.control(), back);
    host_call(&asked.outer);
    rests(&asked.outer);
    assert!(asked.outer.control().interrupt());
    assert_eq!(done(&asked.outer).unwrap_err().kind, Kind::Interrupt);
    assert_eq!(done(&asked.other).unwrap_err().kind, Kind::Interrupt);
    asked.other.control().reply(there.id, Err(Error::internal("late")));
    submit(&asked.outer, &host, call("one", &[]));
    assert!(done(&asked.outer).is_ok());
}
