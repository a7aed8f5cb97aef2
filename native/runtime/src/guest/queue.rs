//! The jobs that wait until the guest comes to them. Rule: nothing here takes long because the queue is
//! long, and a queue of one job searches nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::job::{Job, JobId};

/// Tells which job came first.
type Place = u64;

#[derive(Default)]
pub(super) struct Queue {
    /// The first job, apart: most queues have no other. Without it there are no others.
    first: Option<Job>,
    others: BTreeMap<Place, Job>,
    places: BTreeMap<JobId, Place>,
    /// Who does nothing else until its job ended, and where that is.
    waiting: BTreeSet<(u64, Place)>,
    last: Place,
}

impl Queue {
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub fn front(&self) -> Option<&Job> {
        self.first.as_ref()
    }

    pub fn push_back(&mut self, job: Job) {
        if self.first.is_none() {
            self.first = Some(job);
            return;
        }
        self.last += 1;
        self.places.insert(job.id, self.last);
        if job.client().waits() {
            self.waiting.insert((job.client().asker(), self.last));
        }
        self.others.insert(self.last, job);
    }

    pub fn pop_front(&mut self) -> Option<Job> {
        let first = self.first.take()?;
        let next = self.others.first_key_value().map(|(place, _)| *place);
        self.first = next.and_then(|place| self.take(place));
        Some(first)
    }

    pub fn remove(&mut self, job: JobId) -> Option<Job> {
        if self.first.as_ref().is_some_and(|first| first.id == job) {
            return self.pop_front();
        }
        let place = self.places.get(&job).copied()?;
        self.take(place)
    }

    /// Takes out the jobs that `asker` waits for.
    pub fn remove_awaited(&mut self, asker: u64) -> VecDeque<Job> {
        let places = self.waiting.range((asker, Place::MIN)..=(asker, Place::MAX));
        let places: Vec<Place> = places.map(|(_, place)| *place).collect();
        let mut jobs: VecDeque<Job> =
            places.into_iter().filter_map(|place| self.take(place)).collect();
        let awaits = |job: &Job| job.client().waits() && job.client().asker() == asker;
        if self.first.as_ref().is_some_and(awaits) {
            self.pop_front().into_iter().for_each(|job| jobs.push_front(job));
        }
        jobs
    }

    fn take(&mut self, place: Place) -> Option<Job> {
        let job = self.others.remove(&place)?;
        self.places.remove(&job.id);
        if job.client().waits() {
            self.waiting.remove(&(job.client().asker(), place));
        }
        Some(job)
    }
}

/// Everybody who waits, at once.
impl IntoIterator for Queue {
    type Item = Job;
    type IntoIter = std::iter::Chain<
        std::option::IntoIter<Job>,
        std::collections::btree_map::IntoValues<Place, Job>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others.into_values())
    }
}
