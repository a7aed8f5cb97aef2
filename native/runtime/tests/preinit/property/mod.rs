//! Random modules: whatever the init calls did, a snapshot goes on as the original would.
//! A failure prints the seed, the module and the calls; `PREINIT_SEED` runs a seed again,
//! `PREINIT_ROUNDS` sets how many are tried (else `QUICK=1` takes fewer, `FULL=1` many thousands).

mod module;
mod ops;
mod random;

use crate::support::{Guest, Outcome, preinit_with, wasm};
use module::Spec;
use random::Random;
use wasmtime_beam::preinit::SnapshotOptions;

/// An export and its arguments.
type Call = (String, Vec<i64>);

/// Everything that can be seen of an instance, first by its own functions.
fn view(guest: &mut Guest, spec: &Spec, kept: &[String]) -> Vec<Outcome> {
    let mut seen: Vec<Outcome> =
        spec.observers.iter().map(|(name, args)| guest.call(name, args)).collect();
    if spec.exposed {
        seen.extend((0..spec.tables.len()).map(|at| Ok(guest.table(&format!("t{at}"), kept))));
        seen.extend((0..spec.globals.len()).map(|at| Ok(guest.global(&format!("g{at}")))));
    }
    seen
}

/// What one seed stands for.
struct Case {
    spec: Spec,
    wasm: Vec<u8>,
    init: Vec<Call>,
    then: Vec<Call>,
    /// Exports that the result shall not have.
    removed: Vec<String>,
    /// A second snapshot is taken of the result after `then`.
    twice: bool,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let spec = Spec::new(&mut random);
        let count = random.below(20) as usize;
        let init = spec.calls(&mut random, count);
        let then = spec.calls(&mut random, 25);
        let removed = spec.removable.iter().filter(|_| random.chance(4)).cloned().collect();
        let twice = random.chance(4);
        Case { wasm: wasm(&spec.wat), spec, init, then, removed, twice }
    }

    fn describe(&self, seed: u64) -> String {
        let Case { spec, init, then, removed, twice, .. } = self;
        let wat = &spec.wat;
        format!(
            "seed {seed}\n{wat}\ninit {init:?}\nthen {then:?}\nremoved {removed:?} twice {twice}"
        )
    }

    /// The snapshot of `module` after these calls. One that traps leaves what it did until then.
    fn snapshot(&self, module: &[u8], calls: &[Call], removed: &[String]) -> Vec<u8> {
        let options = SnapshotOptions { ran: Vec::new(), remove_exports: removed.to_vec() };
        let run = |guest: &mut Guest| calls.iter().for_each(|(op, args)| _ = guest.call(op, args));
        preinit_with(module, &options, run).unwrap_or_else(|error| panic!("{error}"))
    }

    fn same(&self, original: &mut Guest, result: &mut Guest, when: &str) {
        let kept: Vec<String> = self
            .spec
            .removable
            .iter()
            .filter(|name| !self.removed.contains(name))
            .cloned()
            .collect();
        let (a, b) = (view(original, &self.spec, &kept), view(result, &self.spec, &kept));
        assert_eq!(a, b, "{when}");
        for at in (0..self.spec.memories.len()).filter(|_| self.spec.exposed) {
            let name = format!("m{at}");
            assert!(original.memory(&name) == result.memory(&name), "{name} differs {when}");
        }
    }

    fn check(&self) {
        let first = self.snapshot(&self.wasm, &self.init, &self.removed);
        let (mut original, mut result) = (Guest::new(&self.wasm), Guest::new(&first));
        self.init.iter().for_each(|(op, args)| _ = original.call(op, args));
        self.same(&mut original, &mut result, "at once");
        self.go_on(&mut original, &mut result);
        if self.twice {
            // What `same` called changed the first result too.
            let second = self.snapshot_of_state(&first);
            let (mut original, mut result) = second;
            self.same(&mut original, &mut result, "after the second");
            self.go_on(&mut original, &mut result);
        }
    }

    /// The first result after `then`, and an instance of its own snapshot.
    fn snapshot_of_state(&self, first: &[u8]) -> (Guest, Guest) {
        let second = self.snapshot(first, &self.then, &[]);
        let mut original = Guest::new(first);
        self.then.iter().for_each(|(op, args)| _ = original.call(op, args));
        (original, Guest::new(&second))
    }

    fn go_on(&self, original: &mut Guest, result: &mut Guest) {
        for (op, args) in &self.then {
            assert_eq!(original.call(op, args), result.call(op, args), "{op}{args:?}");
        }
        self.same(original, result, "later");
    }
}

fn round(seed: u64) {
    let case = Case::new(seed);
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case.check()));
    assert!(checked.is_ok(), "{}", case.describe(seed));
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// How many seeds, and the first: a long run goes where none was before.
fn seeds() -> std::ops::Range<u64> {
    let is_set = |name| number(name) == Some(1);
    let start = std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_secs());
    let (start, rounds) = match (is_set("FULL"), is_set("QUICK")) {
        (true, _) => (start << 20, 10_000),
        (_, true) => (1, 200),
        _ => (1, 500),
    };
    start..start + number("PREINIT_ROUNDS").unwrap_or(rounds)
}

/// Original and snapshot cannot be told apart, now or later.
#[test]
fn random_modules() {
    match number("PREINIT_SEED") {
        Some(seed) => round(seed),
        None => seeds().for_each(round),
    }
}
