//! Every sequence of a few steps, in every order. Rule: as the random ones, but no choice is left out.

use std::sync::Arc;

use wasmtime_beam::guest::{Activity, Guest, Job, Reason, Request, Submitted};
use wasmtime_beam::options::Runner;
use wasmtime_beam::value::Value;

use super::party::Party;
use super::{Asked, World, counts, module, settle};
use crate::input::Choices;
use crate::ours::instance_options;

/// Kinds of steps.
pub const ACTS: usize = 12;

/// Runs every sequence of `depth` steps with a guest of its own; answers how many there were.
pub fn exhaust(runner: Runner, depth: u32) -> usize {
    wasmtime_beam::ticker::start().expect("the ticker");
    let before = counts();
    let sequences = ACTS.pow(depth);
    for number in 0..sequences {
        let script = (0..depth).map(|at| number / ACTS.pow(at) % ACTS);
        let mut world = World::fresh(runner);
        for act in script {
            world.act(act);
            world.follow_up();
        }
        world.end();
        settle(|| counts() == before, "something is left");
    }
    sequences
}

impl World {
    fn fresh(runner: Runner) -> Self {
        let guest = Guest::new(module(), &instance_options(module(), runner)).expect("a guest");
        guest.instantiate().expect("an instance");
        World::around(guest, runner)
    }

    fn act(&mut self, act: usize) {
        let control = self.guest.control().clone();
        let (first, last) = (self.jobs.first().map_or(0, |asked| asked.id), self.jobs.last());
        let last = last.map_or(0, |asked| asked.id);
        let call = self.calls.last().copied().unwrap_or(0);
        match act {
            0 => self.ask("one", 1, 1, true),
            1 => self.ask("ask", 1, 1, true),
            2 => self.ask("ask", 2, 1, true),
            3 => self.ask("one", 1, 1, false),
            4 => self.poll(&mut Choices::new(&[])),
            5 => control.reply(call, Ok(vec![Value::I32(1)])),
            6 => self.interrupt(),
            7 => drop(control.cancel(last, Reason::Interrupt)),
            8 => drop(control.wait_for(last, 1)),
            9 => drop(control.claim(call, 2)),
            10 => control.host_gone(1),
            _ => match self.runner {
                Runner::Scheduler => drop(self.guest.expire(first)),
                Runner::Thread => drop(self.guest.destroy()),
            },
        }
    }

    /// Ends what runs, or what begins next, and says whether there was any.
    fn interrupt(&mut self) {
        let control = self.guest.control();
        let (activity, queued) = control.activity();
        let there = activity != Activity::Idle || queued > 0;
        let interrupted = control.interrupt();
        assert!(activity == Activity::Destroyed || interrupted == there);
        let left = control.activity().1;
        assert_eq!(queued - left, usize::from(interrupted && activity == Activity::Idle));
    }

    fn ask(&mut self, export: &str, asker: u64, host: u64, waits: bool) {
        let party = Party::new(asker, host, waits);
        let args = if export == "ask" { vec![Value::I32(3)] } else { vec![] };
        let request = Request::call(self.guest.module(), export, args).expect("an export");
        let job = Job::new(request, Arc::clone(&party) as _);
        let id = job.id();
        let Ok(submitted) = self.guest.submit(job, None) else { return };
        if submitted == Submitted::NeedsRunner {
            self.attach();
        }
        self.jobs.push(Asked { id, party, over: false });
    }
}
