//! Idle slots: the last one of an image comes first, the one idle for longest goes first.
//! Rule: a slot stands here once, under the image it holds.

use super::slot::{Key, Slot};
use std::collections::{BTreeMap, VecDeque};

/// Idle slots by what they hold and by how long.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// The slots of each key with the turn they came in, oldest first. A key stays when its last
    /// slot is taken: it will be back.
    by_key: BTreeMap<Key, VecDeque<(u64, Slot)>>,
    by_age: BTreeMap<u64, Key>,
    turn: u64,
}

impl Idle {
    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }

    pub(super) fn put(&mut self, key: Key, slot: Slot) {
        self.turn += 1;
        self.by_age.insert(self.turn, key);
        self.by_key.entry(key).or_default().push_back((self.turn, slot));
    }

    /// Puts a slot back that was the oldest.
    pub(super) fn put_oldest(&mut self, key: Key, slot: Slot) {
        let Some((first, _)) = self.by_age.first_key_value() else { return self.put(key, slot) };
        let turn = first.saturating_sub(1);
        self.by_age.insert(turn, key);
        self.by_key.entry(key).or_default().push_front((turn, slot));
    }

    /// The slot of this key that was put last: its pages are the warmest.
    pub(super) fn take(&mut self, key: Key) -> Option<Slot> {
        let (turn, slot) = self.by_key.get_mut(&key)?.pop_back()?;
        self.by_age.remove(&turn);
        Some(slot)
    }

    /// The slot that was put first.
    pub(super) fn take_oldest(&mut self) -> Option<Slot> {
        let (_, key) = self.by_age.pop_first()?;
        self.by_key.get_mut(&key)?.pop_front().map(|(_, slot)| slot)
    }

    /// Every slot of this image.
    pub(super) fn take_image(&mut self, image: u64) -> Vec<Slot> {
        let keys = self.by_key.keys().filter(|key| key.image == image).copied();
        let keys: Vec<Key> = keys.collect();
        let slots = keys.iter().filter_map(|key| self.by_key.remove(key)).flatten();
        slots
            .map(|(turn, slot)| {
                self.by_age.remove(&turn);
                slot
            })
            .collect()
    }
}
