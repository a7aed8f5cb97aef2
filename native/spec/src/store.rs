//! The script's instances: which name stands for which, and which of them share a store.
//!
//! A script links a module to instances that live already. The Erlang API links modules: all that
//! are linked are made together. So a module that imports from others gets a new store with all of
//! them in it, in their order; from then on these are the ones that their names mean.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::driver::driver;
use crate::shape::Shape;
use crate::term::{Term, tagged};

/// The module of the host that every script may import from.
const SPECTEST: &str = "spectest";

#[derive(Default)]
pub struct Store {
    instances: Vec<Instance>,
    /// What `register` made importable, now.
    registered: HashMap<String, usize>,
    /// Instances by their names in the script.
    named: HashMap<String, usize>,
    last: Option<usize>,
}

struct Instance {
    shape: Shape,
    /// Instances that are in the same store, this one included.
    group: BTreeSet<usize>,
    /// What this one imports from, by the names at the time.
    imports: BTreeMap<String, usize>,
}

impl Store {
    /// How a module is instantiated, and the number that it would have. `stays`: the script goes on
    /// with it; otherwise it must fail.
    pub fn instantiate(&mut self, id: Option<&str>, shape: Shape, stays: bool) -> (usize, Term) {
        let number = self.instances.len();
        let imports: BTreeMap<String, usize> = shape
            .imports
            .iter()
            .filter_map(|from| Some((from.clone(), *self.registered.get(from)?)))
            .collect();
        let mut group: BTreeSet<usize> =
            imports.values().flat_map(|from| self.instances[*from].group.clone()).collect();
        group.insert(number);
        self.instances.push(Instance { shape, group: group.clone(), imports });
        let setup = self.setup(number, &group, stays);
        if stays {
            group.iter().for_each(|member| self.instances[*member].group.clone_from(&group));
            self.last = Some(number);
            if let Some(id) = id {
                self.named.insert(id.to_owned(), number);
            }
        }
        (number, setup)
    }

    /// The instance that a script means, by its name or as the last one.
    pub fn find(&self, id: Option<&str>) -> Option<usize> {
        match id {
            Some(id) => self.named.get(id).copied(),
            None => self.last,
        }
    }

    /// Makes an instance importable. One that another of that name shares a store with keeps that.
    pub fn register(&mut self, name: &str, id: Option<&str>) {
        if let Some(number) = self.find(id) {
            self.registered.insert(name.to_owned(), number);
        }
    }

    fn setup(&self, number: usize, group: &BTreeSet<usize>, stays: bool) -> Term {
        let spectest = group.iter().any(|member| self.needs_spectest(*member));
        let names = match self.names(group) {
            Ok(names) => names,
            Err(reason) => return tagged("impossible", [reason.as_str().into()]),
        };
        let mut links = Vec::new();
        if spectest {
            links.push(Term::Tuple(vec![SPECTEST.into(), Term::Atom(SPECTEST)]));
        }
        let alone = group.len() == 1;
        let linked = group.iter().filter(|member| **member != number || (stays && !alone));
        links.extend(
            linked.map(|member| Term::Tuple(vec![names[member].as_str().into(), (*member).into()])),
        );
        if alone || !stays {
            return tagged("main", [Term::List(links)]);
        }
        let members: Vec<_> = group
            .iter()
            .map(|member| (names[member].clone(), *member, &self.instances[*member].shape))
            .collect();
        tagged("group", [Term::List(links), Term::Binary(driver(&members))])
    }

    fn needs_spectest(&self, member: usize) -> bool {
        self.instances[member].shape.imports.iter().any(|from| from == SPECTEST)
    }

    /// The one name that each member of a group has among the links.
    fn names(&self, group: &BTreeSet<usize>) -> Result<HashMap<usize, String>, String> {
        let mut names: HashMap<usize, String> = HashMap::new();
        for (name, from) in group.iter().flat_map(|member| &self.instances[*member].imports) {
            match names.insert(*from, name.clone()) {
                Some(other) if other != *name => {
                    return Err("one instance is imported under two names".into());
                }
                _ => {}
            }
        }
        let distinct: BTreeSet<&String> = names.values().collect();
        if distinct.len() < names.len() {
            return Err("one name means two instances of the same store".into());
        }
        for member in group {
            names.entry(*member).or_insert_with(|| format!("#{member}"));
        }
        Ok(names)
    }
}
