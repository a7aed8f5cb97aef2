//! Integers of any size on their way to a float. Rule: the float is the nearest, ties to even, as for
//! any conversion; beyond the largest it is infinite.

/// An integer of any size: its upper bits, the lowest set when any below is, so that a conversion
/// rounds as the whole would, times two to the power of `shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer {
    negative: bool,
    top: u128,
    shift: i32,
}

impl Integer {
    pub fn of_i64(v: i64) -> Self {
        Integer { negative: v < 0, top: u128::from(v.unsigned_abs()), shift: 0 }
    }

    /// Of a magnitude's bytes, the lowest first.
    pub fn of_bytes(negative: bool, bytes: &[u8]) -> Self {
        let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
        let bytes = &bytes[..bytes.len() - zeros];
        let below = bytes.len().saturating_sub(16);
        let top = bytes[below..].iter().rev().fold(0, |sum, byte| sum << 8 | u128::from(*byte));
        let rest = bytes[..below].iter().any(|byte| *byte != 0);
        Integer { negative, top: top | u128::from(rest), shift: below as i32 * 8 }
    }

    pub fn f64(&self) -> f64 {
        let magnitude = self.top as f64 * 2f64.powi(self.shift);
        if self.negative { -magnitude } else { magnitude }
    }

    pub fn f32(&self) -> f32 {
        let magnitude = self.top as f32 * 2f32.powi(self.shift);
        if self.negative { -magnitude } else { magnitude }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(negative: bool, bytes: &[u8]) -> (f64, f32) {
        let integer = Integer::of_bytes(negative, bytes);
        (integer.f64(), integer.f32())
    }

    /// A bit far below the tie decides it, whatever stands between; zeros above change nothing.
    #[test]
    fn every_byte_counts_and_no_zero_does() {
        let mut tie = [0; 40];
        // 2^192 and half of what f64 tells apart there.
        (tie[24], tie[17]) = (1, 8);
        assert_eq!(floats(false, &tie).0, 2f64.powi(192));
        tie[0] = 1;
        assert_eq!(floats(false, &tie).0, 2f64.powi(192) + 2f64.powi(140));
        assert_eq!(floats(true, &tie[..25]).0, -floats(false, &tie).0);
        assert_eq!(floats(false, &[0; 40]), (0.0, 0.0));
        assert_eq!(floats(false, &[]), (0.0, 0.0));
    }

    /// The largest floats, and what is half a step and more beyond them.
    #[test]
    fn beyond_the_largest_is_infinite() {
        let mut bytes = [0; 129];
        bytes[128] = 1;
        assert_eq!(floats(false, &bytes), (f64::INFINITY, f32::INFINITY));
        let mut most = [0xff; 16];
        most[..12].fill(0);
        most[12] = 0;
        assert_eq!(floats(false, &most).1, f32::MAX);
        most[12] = 0x7f;
        assert_eq!(floats(false, &most).1, f32::MAX);
        most[12] = 0x80;
        assert_eq!(floats(true, &most).1, f32::NEG_INFINITY);
    }
}
