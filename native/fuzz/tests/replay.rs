//! Every target with its corpus, and with seeded random bytes. Rule: the same bytes in every run;
//! `FUZZ_ROUNDS` sets how many of the random ones (else `QUICK=1` takes fewer, `FULL=1` many).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use wasmtime_beam::options::Runner;
use wasmtime_fuzz::input::Random;
use wasmtime_fuzz::sequence::exhaust;
use wasmtime_fuzz::{TARGETS, Target, count_reached};

/// Live objects are counted for the whole process: one target at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Longest random input in bytes.
const LONGEST: u64 = 2_000;

fn target(name: &str) -> Target {
    TARGETS.iter().find(|(known, _)| *known == name).expect("a target").1
}

fn rounds(usual: u64) -> u64 {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("FUZZ_ROUNDS"), number("FULL"), number("QUICK")) {
        (Some(rounds), ..) => rounds,
        (_, Some(1), _) => usual * 50,
        (.., Some(1)) => usual / 2,
        _ => usual,
    }
}

fn corpus(name: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

/// As `replay`, of a target that takes only part of what it is given: a quarter comes to a comparison.
fn replay_most(name: &str, usual: u64) {
    let reached = replay(name, usual) as u64;
    assert!(reached >= rounds(usual) / 4, "only {reached} inputs were compared");
}

/// Runs a target; a failure names the bytes.
fn try_one(target: Target, data: &[u8], what: &str) {
    let ran = catch_unwind(AssertUnwindSafe(|| target(data)));
    assert!(ran.is_ok(), "{what}, {} bytes", data.len());
}

/// Tries the corpus and random bytes; answers how many comparisons were made.
fn replay(name: &str, usual: u64) -> usize {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let before = count_reached();
    let target = target(name);
    for path in corpus(name) {
        try_one(target, &std::fs::read(&path).expect("readable"), &path.display().to_string());
    }
    for seed in 0..rounds(usual) {
        let mut random = Random::new(seed);
        let len = random.number() % LONGEST;
        try_one(target, &random.bytes(len as usize), &format!("seed {seed}"));
    }
    count_reached() - before
}

#[test]
fn artifact() {
    replay("artifact", 600);
}

#[test]
fn preinit() {
    replay_most("preinit", 150);
}

#[test]
fn extraction() {
    replay_most("extraction", 300);
}

#[test]
fn value() {
    replay("value", 2_000);
}

#[test]
fn sequence() {
    replay("sequence", 1_000);
}

#[test]
fn differential() {
    replay_most("differential", 150);
}

/// Every order of a few steps: 12^4 for either runner, 12^5 with `FULL=1`.
#[test]
fn every_short_sequence() {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let full = std::env::var("FULL").is_ok_and(|full| full == "1");
    for runner in [Runner::Thread, Runner::Scheduler] {
        let depth = if full { 5 } else { 4 };
        assert_eq!(exhaust(runner, depth), 12usize.pow(depth));
    }
}
