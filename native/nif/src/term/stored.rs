//! Terms that are kept outside of any process: what a guest's `externref` holds.

use parking_lot::Mutex;
use rustler::env::SavedTerm;
use rustler::{Env, MapIterator, OwnedEnv, Term, TermType};
use wasmtime_beam::counts::{Live, Object};

/// A copy of a term, freed wherever its last user lets go of it.
pub struct Stored {
    home: Mutex<(OwnedEnv, SavedTerm)>,
    /// Copying it takes no time worth mentioning.
    small: bool,
    _live: Live,
}

/// Parts of a term that is small.
const SMALL: usize = 1000;

impl Stored {
    pub fn new(term: Term<'_>) -> Self {
        let env = OwnedEnv::new();
        let saved = env.save(term);
        let small = measure(term, SMALL).is_some();
        Stored { home: Mutex::new((env, saved)), small, _live: Live::new(Object::Term) }
    }

    pub fn is_small(&self) -> bool {
        self.small
    }

    /// A copy in `env`.
    pub fn load<'a>(&self, env: Env<'a>) -> Term<'a> {
        let home = self.home.lock();
        let (home, saved) = &*home;
        home.run(|home| saved.load(home).in_env(env))
    }
}

/// What is left of `budget` when each part of the term takes one; `None` when it is not enough.
fn measure(term: Term<'_>, budget: usize) -> Option<usize> {
    let budget = budget.checked_sub(1)?;
    match term.get_type() {
        TermType::Atom | TermType::Float | TermType::Pid | TermType::Port | TermType::Ref => {
            Some(budget)
        }
        // Long ones are shared.
        TermType::Binary => Some(budget),
        TermType::Integer => term.decode::<i64>().ok().map(|_| budget),
        TermType::List => list(term, budget),
        TermType::Tuple => parts(rustler::types::tuple::get_tuple(term).ok()?.into_iter(), budget),
        TermType::Map => {
            let pairs = MapIterator::new(term)?.flat_map(|(key, value)| [key, value]);
            parts(pairs, budget)
        }
        _ => None,
    }
}

fn list(mut term: Term<'_>, mut budget: usize) -> Option<usize> {
    while let Ok((head, tail)) = term.list_get_cell() {
        (term, budget) = (tail, measure(head, budget)?);
    }
    if term.is_empty_list() { Some(budget) } else { measure(term, budget) }
}

fn parts<'a>(parts: impl Iterator<Item = Term<'a>>, budget: usize) -> Option<usize> {
    let mut parts = parts;
    parts.try_fold(budget, |budget, part| measure(part, budget))
}
