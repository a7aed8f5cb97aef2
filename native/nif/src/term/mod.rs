//! Terms to data and back. Both directions of a conversion stand side by side.

pub mod error;
pub mod map;
pub mod name;
pub mod options;
pub mod stored;
pub mod type_name;
pub mod value;
