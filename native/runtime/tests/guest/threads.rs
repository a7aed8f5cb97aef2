//! The thread runner: threads are reused, many guests run at once, nothing is left behind.

use std::collections::HashSet;

use wasmtime_beam::guest::Guest;
use wasmtime_beam::value::Value;

use crate::support::{Recorder, call, guest, module, options, start};

const WAT: &str = r#"(module
  (import "host" "ask" (func $ask (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "one") (result i32) (i32.const 1))
  (func (export "sum") (param $n i32) (result i32) (local $s i32)
    (block (loop (br_if 1 (i32.eqz (local.get $n)))
      (local.set $s (i32.add (local.get $s) (call $ask (local.get $n))))
      (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br 0)))
    (local.get $s)))"#;

fn guest_threads() -> HashSet<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| {
            let path = task.ok()?.path();
            let name = std::fs::read_to_string(path.join("comm")).ok()?;
            let id = path.file_name()?.to_str()?.parse().ok()?;
            name.starts_with("wasmtime-guest").then_some(id)
        })
        .collect()
}

/// In steady state no thread is created for a request.
#[test]
fn threads_are_reused() {
    let client = Recorder::new();
    let mut seen = HashSet::new();
    for _ in 0..500 {
        let guest = guest(WAT);
        start(&guest, &client, call("one", &[]));
        assert_eq!(client.outcome(), Ok(vec![Value::I32(1)]));
        seen.extend(guest_threads());
    }
    // Other tests run beside this one and have threads of the same cache.
    assert!(seen.len() < 100, "{} threads for 500 requests", seen.len());
}

/// Many guests, each with many host calls answered by one thread: every sum is right.
#[test]
fn many_guests_call_the_host_at_once() {
    let module = module(WAT);
    let guests: Vec<_> = (0..14).map(|_| Guest::new(&module, &options(&module)).unwrap()).collect();
    let clients: Vec<_> = guests.iter().map(|_| Recorder::new()).collect();
    for (guest, client) in guests.iter().zip(&clients) {
        guest.instantiate().unwrap();
        start(guest, client, call("sum", &[Value::I32(200)]));
    }
    let mut left: Vec<_> = guests.iter().zip(&clients).collect();
    while !left.is_empty() {
        left.retain(|(guest, client)| {
            let (calls, outcome) =
                client.wait(|state| Some((std::mem::take(&mut state.calls), state.outcomes.pop())));
            for call in calls {
                guest.control().reply(call.id, Ok(call.args));
            }
            if let Some((_, outcome)) = outcome {
                assert_eq!(outcome, Ok(vec![Value::I32(20_100)]));
                return false;
            }
            true
        });
        std::thread::yield_now();
    }
}
