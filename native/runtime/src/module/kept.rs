//! What a module keeps of what was linked from it, for the next instance that is given the same imports.
//! Rule: nothing of an instance's data; and under the lock nothing is compared, copied or freed whose
//! size a user chooses.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::linker::Shape;

/// Linked forms of one module that are kept.
const MAX_KEPT: usize = 16;

/// The latest values, by their shapes.
pub(super) struct Kept<V>(Mutex<Vec<Entry<V>>>);

struct Entry<V> {
    hash: u64,
    shape: Arc<Shape>,
    value: Arc<V>,
}

impl<V> Default for Kept<V> {
    fn default() -> Self {
        Kept(Mutex::default())
    }
}

impl<V> Kept<V> {
    /// What `make` made of `shape`, made once as long as it is among the latest. Of a large shape it
    /// is made each time, and not kept.
    pub(super) fn get(&self, shape: &Shape, make: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        if shape.is_large() {
            return make().map(Arc::new);
        }
        let hash = shape.hashed();
        if let Some((known, value)) = self.find(hash)
            && *known == *shape
        {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        let entry = Entry { hash, shape: Arc::new(shape.clone()), value: value.clone() };
        drop(self.put(entry));
        Ok(value)
    }

    fn find(&self, hash: u64) -> Option<(Arc<Shape>, Arc<V>)> {
        let kept = self.0.lock();
        let entry = kept.iter().find(|entry| entry.hash == hash)?;
        Some((entry.shape.clone(), entry.value.clone()))
    }

    /// Answers what made room: the one of the same hash, which is as good as never found, or the oldest.
    fn put(&self, entry: Entry<V>) -> Option<Entry<V>> {
        let mut kept = self.0.lock();
        let same = kept.iter().position(|known| known.hash == entry.hash);
        let at = same.or((kept.len() >= MAX_KEPT).then_some(0));
        let old = at.map(|at| kept.remove(at));
        kept.push(entry);
        old
    }
}
