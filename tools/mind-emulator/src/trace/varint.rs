//! Numbers of one to ten bytes: seven bits a byte, the lowest first; the top bit says that more follow (LEB128). And
//! signed numbers as unsigned ones that are small where the signed ones are near 0.

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the front; `None` if there is no whole one of at most 64 bits.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..).step_by(7).take(10) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
pub(super) const fn folded(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// The other way round.
pub(super) const fn unfolded(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_numbers_take_one_byte() {
        let mut out = Vec::new();
        put(&mut out, 127);
        put(&mut out, 128);
        assert_eq!(out, [0x7f, 0x80, 0x01]);
        assert_eq!([0, -1, 1, -2].map(folded), [0, 1, 2, 3]);
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_no_number() {
        assert_eq!(take(&mut &[][..]), None);
        assert_eq!(take(&mut &[0x80][..]), None);
        assert_eq!(take(&mut &[0xff; 11][..]), None);
        let beyond = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02];
        assert_eq!(take(&mut &beyond[..]), None);
    }

    proptest! {
        #[test]
        fn a_number_comes_back(number: u64, signed: i64) {
            let mut out = Vec::new();
            put(&mut out, number);
            out.push(0x55);
            let mut bytes = &out[..];
            prop_assert_eq!(take(&mut bytes), Some(number));
            prop_assert_eq!(bytes, &[0x55][..]);
            prop_assert_eq!(unfolded(folded(signed)), signed);
        }
    }
}
