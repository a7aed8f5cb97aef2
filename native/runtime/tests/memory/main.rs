//! Linear memory: images, slots and their reset, pools, the extraction of segments, artifacts.

mod artifact;
mod extract;
mod guests;
mod observe;
mod pool;
mod reset;
mod support;
