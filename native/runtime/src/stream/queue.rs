//! Messages in their order, in few allocations: records of a length and its bytes, in segments that
//! grow with what they hold. So small messages cost little more than their bytes, and dropping a
//! full queue takes a call for each segment, not for each message.

use std::collections::VecDeque;

/// Bytes of a segment of several messages, at most; a larger message has one of its own.
const SEGMENT: usize = 64 << 10;

/// The length before each message.
const HEADER: usize = size_of::<u32>();

/// In the place of a length: a run of empty messages, whose number follows. No message is so long.
const RUN: u32 = u32::MAX;

/// Bytes of a run.
const RUN_SIZE: usize = 2 * HEADER;

#[derive(Default)]
pub(super) struct Queue {
    segments: VecDeque<Segment>,
    /// Bytes of the front message that were taken as a stream.
    taken: usize,
    weight: u64,
}

#[derive(Default)]
pub(super) struct Segment {
    records: Vec<u8>,
    /// Where the first message that is left begins.
    at: usize,
    /// Where the last record begins, if that is a run of empty messages.
    run: Option<usize>,
}

impl Segment {
    /// A message by itself, copied where nobody waits for a lock. Its length must fit `u32`.
    pub(super) fn of(message: &[u8]) -> Self {
        let mut segment =
            Segment { records: Vec::with_capacity(HEADER + message.len()), ..Segment::default() };
        segment.push(message);
        segment
    }

    fn push(&mut self, message: &[u8]) {
        if message.is_empty() {
            return self.push_empty();
        }
        self.run = None;
        self.records.extend_from_slice(&(message.len() as u32).to_le_bytes());
        self.records.extend_from_slice(message);
    }

    fn push_empty(&mut self) {
        if let Some(at) = self.run {
            let count = self.number(at + HEADER) + 1;
            return self.set_number(at + HEADER, count);
        }
        self.run = Some(self.records.len());
        self.records.extend_from_slice(&RUN.to_le_bytes());
        self.records.extend_from_slice(&1u32.to_le_bytes());
    }

    fn has_room(&self, len: usize) -> bool {
        match self.run {
            Some(at) if len == 0 => self.number(at + HEADER) < u32::MAX,
            _ => self.records.len() + HEADER + len.max(HEADER) <= SEGMENT,
        }
    }

    /// The first message.
    fn front(&self) -> &[u8] {
        match self.number(self.at) {
            RUN => &[],
            len => &self.records[self.at + HEADER..][..len as usize],
        }
    }

    /// How many empty messages come first.
    fn empties(&self) -> u32 {
        if self.number(self.at) == RUN { self.number(self.at + HEADER) } else { 0 }
    }

    /// Drops the first message, or that many empty ones.
    fn advance(&mut self, empties: u32) {
        match self.empties() {
            0 => self.at += HEADER + self.front().len(),
            count if count > empties => self.set_number(self.at + HEADER, count - empties),
            _ => self.at += RUN_SIZE,
        }
    }

    fn number(&self, at: usize) -> u32 {
        let bytes = &self.records[at..at + HEADER];
        bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
    }

    fn set_number(&mut self, at: usize, number: u32) {
        self.records[at..at + HEADER].copy_from_slice(&number.to_le_bytes());
    }
}

/// What a message counts: its bytes, and one when it has none, so that a limit bounds those too.
pub(super) fn weight(len: usize) -> u64 {
    len.max(1) as u64
}

impl Queue {
    /// What all messages count.
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    /// Adds a message. Its length must fit `u32`.
    pub(super) fn push(&mut self, message: &[u8]) {
        self.weight += weight(message.len());
        match self.segments.back_mut() {
            Some(last) if last.has_room(message.len()) => last.push(message),
            _ => self.segments.push_back(Segment::of(message)),
        }
    }

    /// Adds a segment made by [`Segment::of`].
    pub(super) fn push_segment(&mut self, segment: Segment) {
        self.weight += weight(segment.front().len());
        self.segments.push_back(segment);
    }

    /// What is left of the first message.
    pub(super) fn front(&self) -> Option<&[u8]> {
        self.segments.front().map(|segment| &segment.front()[self.taken..])
    }

    /// Drops the first message.
    pub(super) fn pop(&mut self) {
        let Some(left) = self.front().map(<[u8]>::len) else { return };
        // One that was taken from counts what is left of it.
        self.weight -= if self.taken == 0 { weight(left) } else { left as u64 };
        self.advance(1);
    }

    /// Takes up to `most` bytes, whatever message they came in.
    pub(super) fn take(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(most.min(self.weight as usize));
        while let Some(front) = self.front() {
            if front.is_empty() {
                self.skip_empty();
                continue;
            }
            let count = front.len().min(most - bytes.len());
            bytes.extend_from_slice(&front[..count]);
            if count == front.len() {
                self.pop();
            } else {
                self.taken += count;
                self.weight -= count as u64;
                break;
            }
        }
        bytes
    }

    /// Drops empty messages at the front, however many: a stream of bytes has none.
    pub(super) fn skip_empty(&mut self) {
        while let Some(count) = self.segments.front().map(Segment::empties).filter(|n| *n > 0) {
            self.weight -= u64::from(count);
            self.advance(count);
        }
    }

    /// Drops the first message, or that many empty ones.
    fn advance(&mut self, empties: u32) {
        self.taken = 0;
        let Some(segment) = self.segments.front_mut() else { return };
        segment.advance(empties);
        if segment.at == segment.records.len() {
            self.segments.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator: the same sequence in every run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % n
        }

        fn message(&mut self) -> Vec<u8> {
            let most = [1, 20, 1000, SEGMENT / 2, SEGMENT + 10][self.below(5)];
            let len = self.below(most);
            (0..len).map(|at| (at * 7 + len) as u8).collect()
        }
    }

    /// The plain queue that this one stands for.
    #[derive(Default)]
    struct Model(VecDeque<Vec<u8>>, bool);

    impl Model {
        fn weight(&self) -> u64 {
            let begun = self.1;
            let one = |(at, m): (usize, &Vec<u8>)| {
                if at == 0 && begun { m.len() as u64 } else { weight(m.len()) }
            };
            self.0.iter().enumerate().map(one).sum()
        }

        fn pop(&mut self) {
            self.1 = false;
            self.0.pop_front();
        }

        fn take(&mut self, most: usize) -> Vec<u8> {
            let mut bytes = Vec::new();
            while let Some(front) = self.0.front_mut() {
                let count = front.len().min(most - bytes.len());
                bytes.extend(front.drain(..count));
                if !front.is_empty() {
                    self.1 |= count > 0;
                    break;
                }
                self.pop();
            }
            bytes
        }
    }

    /// Whatever is pushed, popped and taken, content, order and count are those of a plain queue.
    #[test]
    fn it_is_a_queue_of_messages() {
        let (mut queue, mut model, mut random) = (Queue::default(), Model::default(), Random(1));
        for _ in 0..50_000 {
            match random.below(8) {
                0..=2 => {
                    let message = random.message();
                    queue.push(&message);
                    model.0.push_back(message);
                }
                3 => {
                    let message = random.message();
                    queue.push_segment(Segment::of(&message));
                    model.0.push_back(message);
                }
                4 | 5 => {
                    queue.pop();
                    model.pop();
                }
                6 => {
                    let most = random.below(3000);
                    assert_eq!(queue.take(most), model.take(most));
                }
                _ => {
                    queue.skip_empty();
                    while model.0.front().is_some_and(Vec::is_empty) {
                        model.pop();
                    }
                }
            }
            assert_eq!(queue.front(), model.0.front().map(Vec::as_slice));
            assert_eq!(queue.weight(), model.weight());
        }
    }

    /// Empty messages cost nothing each: they are counted, and skipped at once.
    #[test]
    fn empty_messages_are_one_record() {
        let mut queue = Queue::default();
        queue.push(b"x");
        (0..1_000_000).for_each(|_| queue.push(b""));
        queue.push(b"y");
        assert!(queue.segments.len() == 1 && queue.segments[0].records.len() < 20);
        assert_eq!(queue.weight(), 1_000_002);
        queue.pop();
        queue.pop();
        assert_eq!((queue.front(), queue.weight()), (Some(&b""[..]), 1_000_000));
        queue.skip_empty();
        assert_eq!((queue.front(), queue.weight()), (Some(&b"y"[..]), 1));
    }

    /// A drained queue holds no memory.
    #[test]
    fn an_empty_queue_holds_nothing() {
        let mut queue = Queue::default();
        (0..1000).for_each(|_| queue.push(&[1; 100]));
        (0..1000).for_each(|_| queue.pop());
        assert!(queue.front().is_none() && queue.segments.is_empty() && queue.weight() == 0);
    }
}
