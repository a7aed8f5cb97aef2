//! Who polls guests here. (The thread runner stands in the runtime crate.)

mod caller;
pub mod scheduler;
