//! What a target makes of its bytes: a module, and choices.

use arbitrary::Unstructured;
use xxhash_rust::xxh3::xxh3_64;

use crate::smith::{self, Sort};

/// Bytes of choices.
const CHOICES: usize = 128;

/// A module and what is done with it.
pub struct Input {
    pub wasm: Vec<u8>,
    /// False when it may run without end.
    pub ends: bool,
    choices: Vec<u8>,
}

impl Input {
    /// Bytes that are a module are taken for one, and the choices follow from them; of others the
    /// first are choices, and a random module is made of the rest.
    pub fn of(data: &[u8], sort: Sort) -> Option<Self> {
        if data.starts_with(b"\0asm") {
            let choices = Random::new(xxh3_64(data)).bytes(CHOICES);
            return Some(Input { wasm: data.to_vec(), ends: false, choices });
        }
        let (choices, dna) = data.split_at(CHOICES.min(data.len() / 4));
        let wasm = smith::module(dna, sort)?;
        Some(Input { wasm, ends: true, choices: choices.to_vec() })
    }

    pub fn choices(&self) -> Choices<'_> {
        Choices(Unstructured::new(&self.choices))
    }
}

/// Choices that never run out: without bytes each is the first.
pub struct Choices<'a>(Unstructured<'a>);

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Choices(Unstructured::new(bytes))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0.int_in_range(0..=limit - 1).unwrap_or(0)
    }

    /// True once in `n` times.
    pub fn chance(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Bits, of which those at the ends of their range are frequent.
    pub fn bits(&mut self) -> u64 {
        const ENDS: [u64; 10] = [
            0,
            1,
            u64::MAX,
            1 << 31,
            (1 << 31) - 1,
            1 << 63,
            (1 << 63) - 1,
            0x7ff8_0000_0000_0000,
            0x7fa0_0000_7fa0_0001,
            65_536,
        ];
        match self.below(4) {
            0 => ENDS[self.below(ENDS.len())],
            1 => u64::from(self.byte()),
            2 => u64::from(self.0.arbitrary::<u32>().unwrap_or(0)),
            _ => self.0.arbitrary().unwrap_or(0),
        }
    }

    /// Up to `most` bytes.
    pub fn some(&mut self, most: usize) -> &'a [u8] {
        let len = self.below(most + 1).min(self.0.len());
        self.0.bytes(len).unwrap_or(&[])
    }
}

/// xorshift64*: small, seeded, and the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.number() >> 32) as u8).collect()
    }
}
