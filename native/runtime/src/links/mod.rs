//! Several modules in one store: the exports of links serve the imports of the modules after them.
//!
//! - `Link`: a module and the name from which others import.
//! - `Chain`: links in order and the main module, with every import resolved. It is made once; an
//!   instantiation only fetches what was resolved.
//! - `types`: whether an export fits an import, and how a message says so.

mod chain;
mod types;

pub use chain::{Chain, Link};

pub(crate) use chain::Part;
