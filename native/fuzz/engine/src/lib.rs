//! Nothing: building this package leaves libFuzzer, as a static library, among what is built.

use libfuzzer_sys as _;
