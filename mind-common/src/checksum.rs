//! The Internet checksum, adjusted rather than computed (RFC 1624, equation 3), so that a header
//! that arrived corrupted leaves corrupted and the receiver still finds out.
//!
//! All 16-bit numbers are as they lie in memory: one's complement sums come out the same in
//! either byte order (RFC 1071, section 2).

/// The changes to a header that its checksum must follow.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Change(u64);

impl Change {
    /// No change.
    pub const NONE: Self = Self(0);

    /// Two bytes at an even offset that were `old` are now `new`.
    #[inline(always)]
    pub const fn of2(self, old: [u8; 2], new: [u8; 2]) -> Self {
        let old = u16::from_ne_bytes(old);
        let new = u16::from_ne_bytes(new);
        Self(self.0 + (!old) as u64 + new as u64)
    }

    /// Four bytes at an even offset that were `old` are now `new`.
    #[inline(always)]
    pub const fn of4(self, old: [u8; 4], new: [u8; 4]) -> Self {
        let old = u32::from_ne_bytes(old);
        let new = u32::from_ne_bytes(new);
        // 32 bits at once: what is carried out of the lower half comes back in the folding.
        Self(self.0 + (!old) as u64 + new as u64)
    }

    /// What becomes of the checksum `check`.
    #[inline(always)]
    #[must_use]
    pub const fn apply(self, check: [u8; 2]) -> [u8; 2] {
        let sum = (!u16::from_ne_bytes(check)) as u64 + self.0;
        // At most a handful of changes, so below 2^36: 21 bits are left, then 17, then 16.
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        (!(sum as u16)).to_ne_bytes()
    }
}

/// The checksum of a header with its checksum field at 0; 0 for a header with the right one.
pub fn of(header: &[u8]) -> [u8; 2] {
    let sum = header
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_ne_bytes([pair[0], pair[1]])))
        .sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    (!(sum as u16)).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An IPv4 header from RFC 1071's many descendants: 192.168.0.1 to 192.168.0.199, UDP.
    const HEADER: [u8; 20] = [
        0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
        0xc7,
    ];

    #[test]
    fn a_right_header_sums_to_zero() {
        assert_eq!(of(&HEADER), [0, 0]);
        let mut unset = HEADER;
        unset[10..12].fill(0);
        assert_eq!(of(&unset), [0xb8, 0x61]);
    }

    proptest! {
        #[test]
        fn a_right_checksum_stays_right(ttl: [u8; 2], src: [u8; 4], dst: [u8; 4]) {
            let mut header = HEADER;
            let change = Change::NONE
                .of2([header[8], header[9]], ttl)
                .of4([header[12], header[13], header[14], header[15]], src)
                .of4([header[16], header[17], header[18], header[19]], dst);
            let check = change.apply([header[10], header[11]]);
            header[8..10].copy_from_slice(&ttl);
            header[10..12].copy_from_slice(&check);
            header[12..16].copy_from_slice(&src);
            header[16..20].copy_from_slice(&dst);
            prop_assert_eq!(of(&header), [0, 0]);
        }

        #[test]
        fn a_wrong_checksum_stays_wrong(bit in 0usize..160, src: [u8; 4]) {
            let mut header = HEADER;
            header[bit / 8] ^= 1 << (bit % 8);
            let old = [header[12], header[13], header[14], header[15]];
            let check = Change::NONE.of4(old, src).apply([header[10], header[11]]);
            header[10..12].copy_from_slice(&check);
            header[12..16].copy_from_slice(&src);
            prop_assert_ne!(of(&header), [0, 0]);
        }
    }
}
