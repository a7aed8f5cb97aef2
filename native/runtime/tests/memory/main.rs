//! Linear memory: images, slots and their reset, pools, the extraction of segments, artifacts; and
//! the reset while pages are in swap, in huge pages, or shared with a child.

mod artifact;
mod extract;
mod guests;
mod keep;
mod observe;
mod pool;
mod reset;
mod restorer;
mod support;

#[cfg(target_os = "linux")]
mod fork;
#[cfg(target_os = "linux")]
mod huge;
#[cfg(target_os = "linux")]
mod pages;
#[cfg(target_os = "linux")]
mod swap;
#[cfg(target_os = "linux")]
mod swapped;
