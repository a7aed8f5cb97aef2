//! A live instance, and the processes it depends on. Rule: whoever dies, what waits for that process
//! ends at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use rustler::{Env, LocalPid, Monitor, Resource, ResourceArc, Term};
use wasmtime_beam::guest::{Guest, JobId, Reason};
use wasmtime_beam::inject::point;
use wasmtime_beam::options::Runner;

use super::jobs::Jobs;
use crate::background;
use crate::client::number;
use crate::post::Home;

/// Bytes of output that a destructor frees.
const INLINE_OUTPUT: usize = 256 << 10;

/// Jobs of a dead process that are ended on its scheduler: some microseconds each.
const FEW_JOBS: usize = 16;

pub struct Instance {
    guest: Option<Arc<Guest>>,
    /// Serves host calls, when it is not the calling process.
    host: Option<LocalPid>,
    /// The instance's name, kept when somebody other than a caller is sent messages.
    id: Option<Home>,
    /// Jobs under way that depend on processes.
    jobs: Jobs,
    /// Host calls that processes serve in the host's place.
    servers: Mutex<Vec<Server>>,
}

struct Server {
    pid: LocalPid,
    call: u64,
    monitor: Monitor,
}

impl Instance {
    pub fn new(guest: Arc<Guest>, host: Option<LocalPid>, id: Term<'_>) -> Self {
        Instance {
            guest: Some(guest),
            host,
            id: host.is_some().then(|| Home::new(id)),
            jobs: Jobs::default(),
            servers: Mutex::default(),
        }
    }

    pub fn guest(&self) -> &Arc<Guest> {
        self.guest.as_ref().expect("only drop takes the guest out")
    }

    /// Who serves the host calls of a request by `caller`.
    pub fn host(&self, caller: LocalPid) -> LocalPid {
        self.host.unwrap_or(caller)
    }

    /// The reference in messages to processes that do not wait for a call of their own.
    pub fn id(&self) -> Option<&Home> {
        self.id.as_ref()
    }

    /// What is asked of it, and by whom.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// A job of this instance that `asker` waits for is there for a host call of `outer`.
    pub fn bind(&self, job: JobId, asker: LocalPid, outer: Option<&Instance>) {
        let outer = outer.map(|outer| outer.guest().control());
        outer.into_iter().for_each(|outer| outer.bind(number(asker), self.guest().control(), job));
    }

    /// Takes a host call over for the calling process. False when it was taken, answered or ended
    /// before.
    pub fn claim(this: &ResourceArc<Self>, env: Env<'_>, call: u64) -> bool {
        let (pid, control) = (env.pid(), this.guest().control());
        let Some(host) = control.claim(call, number(pid)) else { return false };
        if host != number(pid) {
            match this.monitor(Some(env), &pid) {
                Some(monitor) => this.servers.lock().push(Server { pid, call, monitor }),
                None => control.host_down(call),
            }
        }
        true
    }

    /// The host call is answered: who served it may go.
    pub fn served(this: &ResourceArc<Self>, env: Env<'_>, call: u64) {
        let mut servers = this.servers.lock();
        let at = servers.iter().position(|server| server.call == call);
        let server = at.map(|at| servers.swap_remove(at));
        drop(servers);
        if let Some(server) = server {
            this.demonitor(Some(env), &server.monitor);
        }
    }

    /// From here on the death of the host ends the host calls that wait for it. One that is dead
    /// already gets no message, and that ends them too.
    pub fn watch_host(this: &ResourceArc<Self>, env: Env<'_>) {
        if let Some(host) = this.host {
            this.monitor(Some(env), &host);
        }
    }

    /// Ends what a dead process asked for, or polled.
    fn end_jobs_of(&self, pid: LocalPid) {
        let (jobs, guest) = (self.jobs.of(pid), self.guest());
        match guest.runner() {
            _ if jobs.is_empty() => {}
            Runner::Thread if jobs.len() <= FEW_JOBS => {
                for job in jobs.into_iter().rev() {
                    guest.control().cancel(job, Reason::Interrupt);
                }
            }
            // Where clients take turns, nobody else polls the guest to its end.
            _ => background::end_jobs(guest.clone(), jobs),
        }
    }

    /// Ends the host calls that a dead process was to answer.
    fn end_host_calls_of(&self, pid: LocalPid) {
        let calls: Vec<u64> = {
            let mut servers = self.servers.lock();
            let (gone, left) = servers.drain(..).partition(|server| server.pid == pid);
            *servers = left;
            let gone: Vec<Server> = gone;
            gone.into_iter().map(|server| server.call).collect()
        };
        let control = self.guest().control();
        calls.into_iter().for_each(|call| control.host_down(call));
        if self.host == Some(pid) {
            control.host_gone(number(pid));
        }
    }
}

#[rustler::resource_impl]
impl Resource for Instance {
    const IMPLEMENTS_DOWN: bool = true;

    fn down<'a>(&'a self, _: Env<'a>, pid: LocalPid, _: Monitor) {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            point("down");
            self.end_jobs_of(pid);
            self.end_host_calls_of(pid);
        }));
        if ended.is_err() {
            // Nobody else ends what the process left behind.
            let guest = self.guest().clone();
            background::run(move || guest.destroy_at_leisure());
        }
    }
}

/// True when freeing what the guest wrote takes long.
fn holds_much(guest: &Guest) -> bool {
    guest.output().is_some_and(|output| output.held() > INLINE_OUTPUT)
}

impl Drop for Instance {
    fn drop(&mut self) {
        point("resource");
        let Some(guest) = self.guest.take() else { return };
        if guest.is_gone() && !guest.holds_last_module() && !holds_much(&guest) {
            return;
        }
        background::run(move || {
            point("background");
            guest.destroy_at_leisure();
        });
    }
}
