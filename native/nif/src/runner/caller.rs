//! What a guest wants of the process that polls it, or waits for its turn, until the process looks.
//! Rule: a process that said it sleeps gets one message, and only one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use parking_lot::{Mutex, MutexGuard};
use rustler::{LocalPid, ResourceArc, Term};
use wasmtime_beam::guest::{Client, HostCall, HostImport, JobId, Outcome};
use wasmtime_beam::runner::Nap;

use crate::background;
use crate::client::number;
use crate::post::{Home, Message};
use crate::resource::Instance;

/// Who asked for a job, as the guest knows it, and its waker.
pub(super) struct Caller {
    pid: LocalPid,
    instance: ResourceArc<Instance>,
    /// Serves the host calls, when it is another process.
    host: Option<LocalPid>,
    /// Is told instead, when the process that polls is not the one that asked.
    asker: Option<Arc<dyn Client>>,
    job: JobId,
    news: Mutex<News>,
    /// False until there are news, so that the process need not take the lock to see that.
    has_news: AtomicBool,
    /// The message of the process that sleeps, and who that is.
    nap: Nap<(LocalPid, Message)>,
}

#[derive(Default)]
pub(super) struct News {
    pub outcome: Option<Outcome>,
    pub host_call: Option<HostCall>,
}

impl Caller {
    /// `pid` asks for `job`, and polls itself; `host` serves the host calls.
    pub fn new(
        job: JobId,
        pid: LocalPid,
        host: LocalPid,
        instance: &ResourceArc<Instance>,
    ) -> Self {
        Caller {
            pid,
            instance: instance.clone(),
            host: (number(host) != number(pid)).then_some(host),
            asker: None,
            job,
            news: Mutex::default(),
            has_news: AtomicBool::new(false),
            nap: Nap::default(),
        }
    }

    /// `asker` asks for `job`, and another process polls.
    pub fn in_place_of(
        job: JobId,
        asker: Arc<dyn Client>,
        pid: LocalPid,
        instance: &ResourceArc<Instance>,
    ) -> Self {
        Caller { asker: Some(asker), ..Caller::new(job, pid, pid, instance) }
    }

    pub fn pid(&self) -> LocalPid {
        self.pid
    }

    pub fn instance(&self) -> &ResourceArc<Instance> {
        &self.instance
    }

    /// What there is to tell the process, if anything.
    pub fn news(&self) -> Option<MutexGuard<'_, News>> {
        self.has_news.load(Ordering::Acquire).then(|| self.news.lock())
    }

    /// True when the process that polls serves this host call.
    pub fn is_host(&self, call: &HostCall) -> bool {
        call.job == self.job && self.host.is_none() && self.asker.is_none()
    }

    fn tell(&self, change: impl FnOnce(&mut News)) {
        let mut news = self.news.lock();
        change(&mut news);
        self.has_news.store(true, Ordering::Release);
        drop(news);
        self.notify();
    }

    /// The process looks: what happens from here on is noticed.
    pub fn look(&self) {
        self.nap.look();
    }

    /// True when something happened since the process looked.
    pub fn is_woken(&self) -> bool {
        self.nap.is_woken()
    }

    /// The process `pid` is about to wait for a message with `reference`: true when it will get one,
    /// false when something happened already.
    pub fn sleep(&self, pid: LocalPid, reference: Term<'_>) -> bool {
        self.nap.sleep((pid, Message::wake(reference)))
    }

    /// Something happened: the process looks before it sleeps, or is sent its message.
    pub fn notify(&self) {
        if let Some((pid, message)) = self.nap.notify() {
            message.send(pid);
        }
    }

    /// Ends the job from the background: the process may be in a host function, or gone.
    pub fn expire(&self) {
        background::expire(self.instance.guest().clone(), self.job);
    }
}

impl Client for Caller {
    fn host_call(&self, call: HostCall, import: &HostImport) -> bool {
        if let Some(asker) = &self.asker {
            return asker.host_call(call, import);
        }
        if let Some(host) = self.host {
            let message = |id: &Home| id.host_call(&call, import, &self.instance);
            return self.instance.id().is_some_and(|id| message(id).send(host));
        }
        self.tell(|news| news.host_call = Some(call));
        true
    }

    fn asker(&self) -> u64 {
        number(self.pid)
    }

    fn host(&self) -> u64 {
        match (&self.asker, &self.host) {
            (Some(asker), _) => asker.host(),
            (None, Some(host)) => number(*host),
            (None, None) => number(self.pid),
        }
    }

    fn poller(&self) -> u64 {
        if self.waits() { self.asker() } else { 0 }
    }

    fn waits(&self) -> bool {
        self.asker.is_none()
    }

    fn finish(&self, job: JobId, outcome: Outcome) {
        let outcome = match &self.asker {
            Some(asker) => {
                asker.finish(job, outcome);
                Ok(Vec::new())
            }
            None => outcome,
        };
        self.tell(|news| (news.outcome, news.host_call) = (Some(outcome), None));
    }

    fn turn(&self) {
        self.notify();
    }

    fn stopped(&self) {
        self.expire();
    }
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}
