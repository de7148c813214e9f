//! How much memory the process has taken at most.

use std::fs;

/// The most memory that the process has had at once, in bytes; nothing where the system doesn't say.
pub(super) fn peak_bytes() -> Option<u64> {
    peak_in(&fs::read_to_string("/proc/self/status").ok()?)
}

/// The peak in what Linux tells of a process: `VmHWM:     1234 kB`.
fn peak_in(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_in_bytes() {
        let status = "Name:\tx\nVmPeak:\t   9 kB\nVmHWM:\t   3024 kB\nVmRSS:\t   7 kB\n";
        assert_eq!(peak_in(status), Some(3024 * 1024));
        assert_eq!(peak_in("VmHWM:\t many\n"), None);
        assert_eq!(peak_in(""), None);
    }
}
