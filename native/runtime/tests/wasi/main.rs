//! WASI preview 1 seen from a guest: each option, each refusal, and what a guest may cost its host.

mod child;
mod clocks;
mod dirs;
mod env;
mod fifo;
mod guest;
mod limits;
mod poll;
mod stdio;
