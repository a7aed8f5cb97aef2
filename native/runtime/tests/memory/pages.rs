//! What the kernel tells of the pages of a range, read from its text and number files: nothing here
//! is shared with what the library asks it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::support::PAGE;

/// How many pages of a range are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    pub present: usize,
    pub swapped: usize,
}

impl Pages {
    /// From /proc/self/pagemap: bit 63 is present, bit 62 in swap.
    pub fn of(range: &Range<usize>) -> Pages {
        let mut entries = vec![0; range.len() / PAGE * 8];
        let file = File::open("/proc/self/pagemap").unwrap();
        file.read_exact_at(&mut entries, (range.start / PAGE * 8) as u64).unwrap();
        let top = entries.chunks_exact(8).map(|entry| entry[7] >> 6);
        top.fold(Pages::default(), |sum, bits| Pages {
            present: sum.present + usize::from(bits & 2 != 0),
            swapped: sum.swapped + usize::from(bits & 1 != 0),
        })
    }
}

/// KiB in huge pages, of a file or not, of the mappings within a range, from /proc/self/smaps.
pub fn huge_kib(range: &Range<usize>) -> usize {
    const HUGE: [&str; 3] = ["AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"];
    fields(range, |name| HUGE.contains(&name)).iter().map(|value| kib(value)).sum()
}

/// The flags of each accessible mapping within a range.
pub fn flags(range: &Range<usize>) -> Vec<String> {
    let flags = fields(range, |name| name == "VmFlags:");
    flags.into_iter().filter(|flags| flags.split(' ').any(|flag| flag == "rd")).collect()
}

fn kib(value: &str) -> usize {
    value.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The values of some fields of the mappings within a range.
fn fields(range: &Range<usize>, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut within, mut found) = (false, Vec::new());
    for line in text.lines() {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        if let Some((start, end)) = name.split_once('-') {
            let at = |hex| usize::from_str_radix(hex, 16).unwrap();
            within = at(start) < range.end && at(end) > range.start;
        } else if within && is_wanted(name) {
            found.push(value.trim().to_owned());
        }
    }
    found
}
