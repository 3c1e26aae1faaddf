//! Writing a frame's headers so that the switch reads them at its usual speed.

use core::sync::atomic::{Ordering, compiler_fence};

use mind_common::table::Headers;

/// Writes `headers` field by field, each in the width in which the switch reads it. Copied as a
/// whole they go byte by byte, in a loop; copied in wider words, the processor cannot hand what was
/// just written to reads across two of them, and waits. The bench would time either.
#[inline(always)]
pub fn copy(to: *mut u8, headers: &Headers) {
    let mut copy = Copy {
        from: headers.0.as_ptr(),
        to,
        at: 0,
    };
    // Ethernet: two addresses and the type.
    copy.next::<u32>().next::<u16>();
    copy.next::<u32>().next::<u16>().next::<u16>();
    // IPv4: version, service; length, identification, fragment; time to live, protocol; checksum;
    // two addresses.
    copy.next::<u8>().next::<u8>();
    copy.next::<u16>().next::<u16>().next::<u16>();
    copy.next::<u8>().next::<u8>().next::<u16>();
    copy.next::<u32>().next::<u32>();
    // UDP: ports, length, checksum.
    copy.next::<u16>().next::<u16>();
    copy.next::<u16>().next::<u16>();
    // BTH: read in bytes.
    copy.next::<u32>().next::<u32>().next::<u32>();
    // RETH: address, domain, length; and the rest.
    copy.next::<u64>().next::<u32>().next::<u32>();
    copy.next::<u64>().next::<u64>();
}

/// A copy under way.
struct Copy {
    from: *const u8,
    to: *mut u8,
    at: usize,
}

impl Copy {
    #[inline(always)]
    fn next<T>(&mut self) -> &mut Self {
        // SAFETY: the fields are those of the headers, so they end where the headers do, and the
        // caller has checked that the packet has so many bytes.
        unsafe {
            let value = self.from.add(self.at).cast::<T>().read_unaligned();
            self.to.add(self.at).cast::<T>().write_unaligned(value);
        }
        // Or the compiler would join the fields again.
        compiler_fence(Ordering::SeqCst);
        self.at += size_of::<T>();
        self
    }
}
